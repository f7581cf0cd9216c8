"""A contender: a net of a job file with our layers, BP and updater in one loop, without servers.

``python -m tests.benchmarks.net_ours NET FORM``; a form is what a job calls ops, or bf16: oneDNN in that precision.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, LayerConf, Phase
from singa_dask.layers import LAYERS, Context, Feature, Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.train import BP, UPDATERS
from tests.benchmarks.contender import CHECKED, NETS, Net, batch, first_values, serve, trained_layers


@LAYERS.register("FixedBatch")
class FixedBatch(Layer):
    """The same records in every step."""

    n_sources = (0, 0)
    is_input = True
    splits = False

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.feature(conf.user_conf["shape"], wants_grad=False)

    def compute_feature(self, phase: Phase) -> None:
        pass


def job_of(net: Net) -> JobConf:
    """Return the job of a net, on a fixed batch."""
    data = {"name": "data", "type": "FixedBatch", "user_conf": {"shape": [net.n_rows, *net.shape]}}
    given = net.job()
    job = {key: given[key] for key in ("name", "train_steps", "train_one_batch", "updater")}
    return JobConf.model_validate({**job, "neuralnet": {"layer": [data, *trained_layers(net)]}})


class Loop:
    """A net with the params, and who updates them."""

    def __init__(self, net: Net, form: str) -> None:
        job = job_of(net)
        if form == "bf16":
            self.net = NeuralNet.build(job, Context(dtype=BFLOAT16), get_ops("onednn", form))
        else:
            self.net = NeuralNet.build(job, Context(), get_ops(form))
        self.net.allocate()
        self.net.allocate_params()
        params = self.net.params
        for param, values in zip(params, first_values(trained_layers(net), [p.shape for p in params]), strict=True):
            param.data[...] = values
        feature = self.net.name2layer("data").features[0]
        feature.data[...], classes = batch(net)
        feature.labels = classes.astype(np.int32)
        self.updater = UPDATERS.find(job.updater.type)(job.updater)
        names = self.updater.state_names
        self.state = {p.name: {name: np.zeros(p.size, np.float32) for name in names} for p in params}
        self.rate = net.rate
        self.algorithm = BP(self.net, update=self.update)
        self.step = 0

    def update(self, step: int, param: Param) -> None:
        """Change a param by its gradient."""
        if param.statistic:
            param.data -= param.grad
            return
        conf, value, grad = param.conf, param.data.reshape(-1), param.grad.reshape(-1)
        self.updater.update(
            0, step, value, grad, self.state[param.name], lr_scale=self.rate * conf.lr_scale, wd_scale=conf.wd_scale
        )

    def train_one_batch(self) -> float:
        """Train for one step; return its loss."""
        self.algorithm.train_one_batch(self.step)
        self.step += 1
        total, count = self.net.take_metrics()["loss"]
        return total / count


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form")
    given = parser.parse_args()
    loop = Loop(NETS[given.net], given.form)
    drops = {layer: layer.keep for layer in loop.net.layers if isinstance(layer, LAYERS.find("Dropout"))}
    for drop in drops:
        drop.keep = 1.0
    losses = [loop.train_one_batch() for _ in range(CHECKED)]
    for drop, keep in drops.items():
        drop.keep = keep
    serve(losses, loop.train_one_batch)


if __name__ == "__main__":
    main()
