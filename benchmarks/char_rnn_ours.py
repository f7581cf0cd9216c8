"""A contender: SINGA's char-rnn with our layers, BPTT and updater in one loop, without servers.

``python -m benchmarks.char_rnn_ours KIND OPS``
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks import char_rnn as net
from benchmarks.contender import CHECKED, serve
from benchmarks.loop import Loop
from singa_dask.conf import JobConf, Phase
from singa_dask.inputs import InputLayer
from singa_dask.layers import LAYERS
from singa_dask.ops import NumpyOps, get_ops

__all__ = ["job_of", "loop_of"]


@LAYERS.register("Windows")
class Windows(InputLayer):
    """Windows of random text."""

    def setup(self) -> None:
        self.add_output((net.N_ROWS, net.N_STEPS + 1), requires_grad=False, dtype=np.int32)
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


def loop_of(kind: str, ops: NumpyOps, precision: str = "float32") -> Loop:
    """Return the net with the values that all contenders have."""
    return Loop(job_of(kind), ops, lambda shapes: net.first_values(kind), precision=precision)


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=net.GATES)
    parser.add_argument("ops")
    given = parser.parse_args()
    loop = loop_of(given.kind, get_ops(given.ops))
    serve([loop.train_one_batch() for _ in range(CHECKED)], loop.train_one_batch)


if __name__ == "__main__":
    main()
