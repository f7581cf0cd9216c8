"""The RBM of the benchmarks, with our layers, CD and updater in one loop, without servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.loop import FixedBatch, Loop
from singa_dask.conf import JobConf
from singa_dask.ops import NumpyOps

__all__ = ["DECAY", "HIDDEN", "MOMENTUM", "RATE", "VISIBLE", "N", "first_values", "loop_of"]

N, VISIBLE, HIDDEN = 100, 784, 1000
RATE, MOMENTUM, DECAY = 0.1, 0.8, 0.0002


def first_values() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the batch, (N, VISIBLE) in 0..1, and the weights, (HIDDEN, VISIBLE)."""
    random = np.random.default_rng(0)
    batch = (random.random((N, VISIBLE)) < 0.2) * random.random((N, VISIBLE))
    return batch.astype(np.float32), random.normal(0, 0.1, (HIDDEN, VISIBLE)).astype(np.float32)


def job() -> JobConf:
    """Return the job of the benchmark."""
    rbm = {"hdim": HIDDEN}
    layers = [
        {"name": "data", "type": FixedBatch.__name__, "user_conf": {"shape": [N, VISIBLE]}},
        {"name": "vis", "type": "RBMVis", "srclayers": ["data", "hid"], "rbm_conf": rbm, "param": [{"name": "w"}]},
        {"name": "hid", "type": "RBMHid", "srclayers": ["vis"], "rbm_conf": rbm,
         "param": [{"name": "w_", "share_from": "w", "share_gradient": "sum"}]},
    ]  # fmt: skip
    updater = {"type": "SGD", "momentum": MOMENTUM, "weight_decay": DECAY}
    return JobConf.model_validate({
        "neuralnet": {"layer": layers}, "train_one_batch": {"alg": "CD"}, "train_steps": 1,
        "updater": {**updater, "learning_rate": {"type": "Fixed", "base_lr": RATE}},
    })  # fmt: skip


def loop_of(ops: NumpyOps, precision: str = "float32") -> Loop:
    """Return the net with the values and the batch of all contenders."""
    batch, weights = first_values()

    def values(shapes: list[tuple[int, ...]]) -> Iterator[np.ndarray[Any, Any]]:
        return (weights if len(shape) == 2 else np.zeros(shape) for shape in shapes)

    loop = Loop(job(), ops, values, precision=precision)
    loop.n_steps = 1
    data = loop.net.name2layer("data")
    assert isinstance(data, FixedBatch)
    data.hold(batch)
    return loop
