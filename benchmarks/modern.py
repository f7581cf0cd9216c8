"""A whole training step of nets with skips, depthwise convolutions, towers and sequences: ours, beside PyTorch's.

``python -m benchmarks.modern [--net NAME ...] [--rounds N] [--steps N]``. The nets are job files, on one batch of their
own size, in float32 on one thread. Both train from the same values and must find the same losses in their first steps.
They take turns in one process; PyTorch's images are in the better of its two formats.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.loop import Loop
from benchmarks.modern_torch import MODELS, copy_values
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase, load
from singa_dask.inputs import InputLayer
from singa_dask.layers import LAYERS, RecordIds
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.training.initialisers import with_initialisers

__all__ = ["batch_of", "loop_of"]

CONFIGS = Path(__file__).parents[1] / "configs"
Batch = dict[str, np.ndarray[Any, Any]]
N_CHECKED, TOLERANCE = 5, 1e-3


def batch_of(name: str, n: int) -> Batch:
    """Return ``n`` random records for each input layer of a job, and ``label``."""
    random = np.random.default_rng(0)

    def padded(high: int, length: int, shortest: int) -> np.ndarray[Any, Any]:
        values = random.integers(0, high, (n, length), dtype=np.int32)
        values[np.arange(length) >= random.integers(shortest, length + 1, (n, 1))] = -1
        return values

    def images(side: int) -> np.ndarray[Any, Any]:
        return random.normal(size=(n, 1, side, side)).astype(np.float32)

    made: dict[str, Callable[[], Batch]] = {
        "shapes/unet": lambda: {
            "data": images(32), "pixels": random.integers(0, 4, (n, 1024)).astype(np.float32)
        },
        "digits/mobilenet": lambda: {"data": images(28), "label": random.integers(0, 10, n)},
        "towers/items": lambda: {
            "history": padded(300, 12, 4),
            "item": random.integers(0, 300, (n, 1), dtype=np.int32),
            "liked": random.integers(0, 2, (n, 1)).astype(np.float32),
        },
        "sequences/reviews": lambda: {"data": padded(50, 16, 4), "label": random.integers(0, 2, n)},
        "sequences/reverse": lambda: {
            "number": padded(10, 8, 1), "answer": random.integers(0, 12, (n, 10), dtype=np.int32)
        },
    }  # fmt: skip
    return made[name]()


@LAYERS.register("FixedRecords")
class FixedRecords(InputLayer):
    """The same records in every step, which are numbers of words or images."""

    def setup(self) -> None:
        conf = self.conf.user_conf
        self.add_output(conf["shape"], requires_grad=False, dtype=np.dtype(conf["dtype"]) if conf["dtype"] else None)

    def forward(self, phase: Phase) -> None:
        pass


def loop_of(name: str, batch: Batch, ops: NumpyOps, precision: str = "float32", seed: int = 0) -> Loop:
    """Return the net of a job on one batch, with its updater at the rate of its first step."""
    job = load(CONFIGS / f"{name}.yaml", (), None, REGISTRIES).job
    layers = []
    for layer in job.neuralnet.layer:
        given: dict[str, Any] = {key: value for key, value in layer.model_dump(exclude_unset=True).items()}
        if layer.type == "RecordInput":
            values = batch[layer.name]
            dtype = "int32" if values.dtype == np.int32 else ""
            given = {"name": layer.name, "type": "FixedRecords", "include": layer.include, "unroll_len": 1}
            given["user_conf"] = {"shape": list(values.shape), "dtype": dtype}
        layers.append(given)
    keys = {"name": job.name, "train_steps": 1, "train_one_batch": {"alg": "BP"}}
    updater = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": job.updater.learning_rate.base_lr}}
    net = {"layer": layers, "unroll_len": job.neuralnet.unroll_len}
    made = JobConf.model_validate({**keys, "updater": updater, "neuralnet": net})
    loop = Loop(with_initialisers(made, build_nets(made)[Phase.TRAIN]), ops, precision=precision, seed=seed)
    for layer in loop.net.inputs:
        ops.copy(batch[layer.conf_name], out=layer.features[0].data)
        if "label" in batch:
            layer.features[0].records = RecordIds(ops.labels(batch["label"].astype(np.int32)))
    return loop


def torch_step(name: str, batch: Batch, loop: Loop, layout: Any) -> Callable[[], float]:
    """Return a step of the same net in PyTorch, from the values of ``loop``."""
    model = MODELS[name]().to(memory_format=layout)
    copy_values(model, [np.array(param.data) for param in loop.net.owners])
    records = [torch.from_numpy(values) for values in batch.values()]
    records = [each.contiguous(memory_format=layout) if each.dim() == 4 else each for each in records]
    rate = loop.updater.conf.learning_rate.base_lr
    updater = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], rate, fused=True)

    def step() -> float:
        updater.zero_grad()
        loss = model.loss(*records)  # type: ignore[operator]
        loss.backward()
        updater.step()
        return float(loss.detach())

    return step


def match(name: str, n_rounds: int, n_steps: int) -> None:
    """Time both on a net, and print its line of the table."""
    job = load(CONFIGS / f"{name}.yaml", (), None, REGISTRIES).job
    batch = batch_of(name, next(layer for layer in job.neuralnet.layer).store_conf.batchsize[0])
    loop = loop_of(name, batch, get_ops("onednn"))
    layouts = {"eager": torch.contiguous_format, "channels_last": torch.channels_last}
    steps = {form: torch_step(name, batch, loop, layout) for form, layout in layouts.items()}
    steps["ours"] = loop.train_one_batch
    losses = {form: [step() for _ in range(N_CHECKED)] for form, step in steps.items()}
    np.testing.assert_allclose(losses["ours"], losses["eager"], rtol=TOLERANCE)
    times: dict[str, list[float]] = {form: [] for form in steps}
    for _ in range(n_rounds):
        for form, step in steps.items():
            for _ in range(n_steps):
                started = time.perf_counter()
                step()
                times[form].append(1e3 * (time.perf_counter() - started))
    ms = {form: float(np.median(each)) for form, each in times.items()}
    ratio = min(ms["eager"], ms["channels_last"]) / ms["ours"]
    print(f"{name:20} {ms['eager']:9.2f} {ms['channels_last']:13.2f} {ms['ours']:9.2f} {ratio:7.2f}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="of one contender in a round")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"median ms of a step on one thread; PyTorch {torch.__version__}; load {os.getloadavg()[0]:.1f}")
    print(f"{'net':20} {'eager':>9} {'channels_last':>13} {'ours':>9} {'ratio':>7}")
    with threadpool_limits(1):
        for name in given.net:
            match(name, given.rounds, given.steps)


if __name__ == "__main__":
    main()
