"""A contender: a net of a job file with our layers, BP and updater in one loop, without servers.

``python -m benchmarks.net_ours NET FORM``; a form is what a job calls ops, or bf16: oneDNN in that precision.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.contender import CHECKED, NETS, Net, batch, first_values, serve, trained_layers
from benchmarks.loop import FixedBatch, Loop
from singa_dask.conf import JobConf
from singa_dask.ops import NumpyOps, get_ops

__all__ = ["job_of", "loop_of"]


def job_of(net: Net) -> JobConf:
    """Return the job of a net, on a fixed batch."""
    data = {"name": "data", "type": FixedBatch.__name__, "user_conf": {"shape": [net.n_rows, *net.shape]}}
    given = net.job()
    job = {key: given[key] for key in ("name", "train_steps", "train_one_batch", "updater")}
    return JobConf.model_validate({**job, "neuralnet": {"layer": [data, *trained_layers(net)]}})


def loop_of(net: Net, ops: NumpyOps, precision: str = "float32") -> Loop:
    """Return a net with the values and the batch that all contenders have."""
    values = partial(first_values, trained_layers(net))
    loop = Loop(job_of(net), ops, values, precision=precision, rate=net.rate)
    data = loop.net.name2layer("data")
    assert isinstance(data, FixedBatch)
    data.hold(*batch(net))
    return loop


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form")
    given = parser.parse_args()
    how = ("onednn", "bf16") if given.form == "bf16" else (given.form, "float32")
    loop = loop_of(NETS[given.net], get_ops(*how), how[1])
    undo = loop.without_dropout()
    losses = [loop.train_one_batch() for _ in range(CHECKED)]
    undo()
    serve(losses, loop.train_one_batch)


if __name__ == "__main__":
    main()
