"""A contender: SINGA's char-rnn with our layers, BPTT and updater in one loop, without servers.

``python -m tests.benchmarks.char_rnn_ours KIND OPS``
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, LayerConf, Phase
from singa_dask.layers import LAYERS, Context, Feature, Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.ops import get_ops
from singa_dask.train import BP, UPDATERS
from tests.benchmarks import char_rnn as net
from tests.benchmarks.contender import CHECKED, serve


@LAYERS.register("Windows")
class Windows(Layer):
    """Windows of random text."""

    n_sources = (0, 0)
    is_input = True
    splits = False

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.feature((net.N_ROWS, net.N_STEPS + 1), wants_grad=False, dtype=np.int32)
        self.windows = net.windows()

    def compute_feature(self, phase: Phase) -> None:
        self.features[0].data[...] = next(self.windows)


def job_of(kind: str) -> JobConf:
    """Return the job."""
    layers = [
        {"name": "data", "type": "Windows", "unroll_len": 1},
        {"name": "onehot", "type": "OneHot", "srclayers": ["data"], "onehot_conf": {"vocab_size": net.N_CHARS}},
        {"name": "label", "type": "RNNLabel", "srclayers": ["data"]},
        {"name": "cells", "type": kind, "srclayers": ["onehot"], f"{kind.lower()}_conf": {"dim_hidden": net.N_HIDDEN}},
        {
            "name": "ip",
            "type": "InnerProduct",
            "srclayers": ["cells"],
            "innerproduct_conf": {"num_output": net.N_CHARS},
        },
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["ip", "label"]},
    ]
    updater = {
        "type": "RMSProp", "rmsprop_conf": {"rho": net.RHO}, "clip_low": -net.CLIP, "clip_high": net.CLIP,
        "delta": net.DELTA, "learning_rate": {"type": "Fixed", "base_lr": net.RATE},
    }  # fmt: skip
    return JobConf.model_validate({
        "name": "char-rnn", "train_steps": 1, "train_one_batch": {"alg": "BPTT"}, "updater": updater,
        "neuralnet": {"layer": layers, "unroll_len": net.N_STEPS},
    })  # fmt: skip


class Loop:
    """The net with its params, and who updates them."""

    def __init__(self, kind: str, ops: str) -> None:
        job = job_of(kind)
        self.net = NeuralNet.build(job, Context(), get_ops(ops))
        self.net.allocate()
        self.net.allocate_params()
        for param, values in zip(self.net.owners, net.first_values(kind), strict=True):
            param.data[...] = values
        self.updater = UPDATERS.find(job.updater.type)(job.updater)
        names = self.updater.state_names
        self.state = {p.name: {name: np.zeros(p.size, np.float32) for name in names} for p in self.net.owners}
        self.algorithm = BP(self.net, update=self.update)
        self.step = 0

    def update(self, step: int, param: Param) -> None:
        """Change a param by its gradient."""
        self.updater.update(0, step, param.data.reshape(-1), param.grad.reshape(-1), self.state[param.name])

    def train_one_batch(self) -> float:
        """Train for one step; return its loss."""
        self.algorithm.train_one_batch(self.step)
        self.step += 1
        total, count = self.net.take_metrics()["loss"]
        return total / count


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=net.GATES)
    parser.add_argument("ops")
    given = parser.parse_args()
    loop = Loop(given.kind, given.ops)
    serve([loop.train_one_batch() for _ in range(CHECKED)], loop.train_one_batch)


if __name__ == "__main__":
    main()
