"""A contender: ResNet-20 or the transformer with our layers, BP and updater in one loop, without servers.

``python -m benchmarks.residual_ours NET FORM``; a form is what a job calls ops, or bf16 for oneDNN in bfloat16.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from benchmarks.contender import CHECKED, serve
from benchmarks.loop import FixedBatch, Loop
from benchmarks.residual import NETS, Net, batch, first_values, layers
from singa_dask.conf import JobConf, Phase
from singa_dask.layers import LAYERS, Layer, Traits
from singa_dask.ops import NumpyOps, get_ops

__all__ = ["job_of", "loop_of"]


@LAYERS.register("FixedText")
class FixedText(Layer):
    """The same windows of characters in every step."""

    traits = Traits(n_sources=(0, 0), role="input")

    def setup(self) -> None:
        self.add_output(self.conf.user_conf["shape"], requires_grad=False, dtype=np.int32)

    def forward(self, phase: Phase) -> None:
        pass


def job_of(net: Net) -> JobConf:
    """Return the job of a net, on a fixed batch."""
    given = net.job()
    kind = "FixedText" if net.n_steps > 1 else "FixedBatch"
    data = {"name": "data", "type": kind, "unroll_len": 1, "user_conf": {"shape": [net.n_rows, *net.shape]}}
    job = {key: given[key] for key in ("name", "train_steps", "train_one_batch", "updater")}
    job["updater"]["learning_rate"] = {"type": "Fixed", "base_lr": net.rate}
    return JobConf.model_validate({**job, "neuralnet": {"layer": [data, *layers(net)], "unroll_len": net.n_steps}})


def loop_of(net: Net, ops: NumpyOps, precision: str = "float32") -> Loop:
    """Return a net with the values and the batch that all contenders have."""
    loop = Loop(job_of(net), ops, partial(first_values, net), precision=precision)
    data, (records, labels) = loop.net.name2layer("data"), batch(net)
    if isinstance(data, FixedBatch):
        data.hold(records, labels)
    else:
        data.features[0].data[...] = records
    return loop


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form")
    given = parser.parse_args()
    how = ("onednn", "bf16") if given.form == "bf16" else (given.form, "float32")
    loop = loop_of(NETS[given.net], get_ops(*how), how[1])
    serve([loop.train_one_batch() for _ in range(CHECKED)], loop.train_one_batch)


if __name__ == "__main__":
    main()
