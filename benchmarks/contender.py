"""What both sides of the benchmark of nets share: the nets, their first values, and how a contender is driven.

A contender is a process of its own: no thread pool or allocator of one disturbs another. It takes a request a line on
stdin, ``{"steps": n, "limit_s": s}``, and answers it with a line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

__all__ = [
    "CHECKED",
    "NETS",
    "Contender",
    "Net",
    "Shape",
    "batch",
    "first_values",
    "job_on_records",
    "made_records",
    "peak_mb",
    "serve",
    "trained_layers",
]

ROOT = Path(__file__).parents[1]
CHECKED = 5
Shape = tuple[int, ...]


class Net(NamedTuple):
    """A job file, the batch that it is timed on, and a factor of its learning rate: some diverge on one batch."""

    config: str
    n_rows: int
    shape: Shape
    n_classes: int
    rate: float = 1.0

    def job(self) -> Any:
        """Return the job file, as it is written."""
        return yaml.safe_load((ROOT / "configs" / self.config).read_text())


NETS = {
    "cifar": Net("cifar10/convnet.yaml", 100, (3, 32, 32), 10),
    "cifar-bn": Net("cifar10/convnet_bn.yaml", 100, (3, 32, 32), 10),
    "lenet": Net("mnist/lenet.yaml", 64, (1, 28, 28), 10),
    "mlp": Net("mnist/mlp.yaml", 64, (28, 28), 10),
    "alexnet": Net("alexnet/alexnet.yaml", 8, (3, 227, 227), 1000, 0.01),
}


def trained_layers(net: Net) -> list[dict[str, Any]]:
    """Return the layers of the training net behind its pictures, which come from a layer ``data``."""
    layers = [layer for layer in net.job()["neuralnet"]["layer"] if layer.get("include", ["train"]) == ["train"]]
    left_out = {layer["name"] for layer in layers if layer["type"] in ("RecordInput", "ImagePreprocess")}
    kept = [layer for layer in layers if layer["name"] not in left_out]
    return [
        {**layer, "srclayers": ["data" if name in left_out else name for name in layer["srclayers"]]} for layer in kept
    ]


def batch(net: Net) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the one batch that all contenders train on: floats (N, ...), classes (N,)."""
    random = np.random.default_rng(0)
    x = random.normal(size=(net.n_rows, *net.shape)).astype(np.float32)
    return x, random.integers(0, net.n_classes, net.n_rows)


def first_values(layers: list[dict[str, Any]], shapes: list[Shape]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield first values for the params of ``layers``, which have ``shapes``.

    Constants are the job's. Weights are uniform with a variance of 1 / inputs: with those of some jobs the loss of
    the first steps would hardly depend on them.
    """
    params = [param for layer in layers for param in layer.get("param", ())]
    for k, (param, shape) in enumerate(zip(params, shapes, strict=True)):
        if param["init"]["type"] == "Constant":
            yield np.full(shape, param["init"]["value"], np.float32)
            continue
        bound = math.sqrt(3 / math.prod(shape[1:])) if len(shape) > 1 else 0.05
        yield np.random.default_rng(k).uniform(-bound, bound, shape).astype(np.float32)


def made_records(net: Net) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return pictures and classes for ten batches of a net."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (10 * net.n_rows, *net.shape), np.uint8)
    return images, random.integers(0, net.n_classes, len(images)).astype(np.int32)


def job_on_records(net: Net, path: str, mean: str) -> dict[str, Any]:
    """Return the job of a net on a store of `made_records`, without tests."""
    store = {"path": path, "mean_file": mean, "std_value": 64, "batchsize": net.n_rows, "shape": list(net.shape)}
    data = {"name": "data", "type": "RecordInput", "store_conf": store}
    given = net.job()
    # what is to be learnt from these records makes no difference to the time of a step
    updater = {**given["updater"], "learning_rate": {"type": "Fixed", "base_lr": 1e-5}}
    layers = {"neuralnet": {"layer": [data, *trained_layers(net)]}}
    return {"name": given["name"], "train_steps": 0, "train_one_batch": {"alg": "BP"}, "updater": updater, **layers}


# -- the contender's end ----------------------------------------------------------------------------


def peak_mb() -> float:
    """Return the most memory that this process has held so far, in 10**6 bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def serve(losses: list[float], step: Callable[[], object], note: str = "") -> None:
    """Answer requests for steps until stdin ends; ``losses`` are those of the first `CHECKED` steps."""
    say({"losses": losses, "note": note})
    for line in sys.stdin:
        request, times = json.loads(line), list[float]()
        ends = time.perf_counter() + request["limit_s"]
        while len(times) < request["steps"] and (not times or time.perf_counter() < ends):
            started = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - started))
        say({"ms": times, "peak_mb": peak_mb()})


def say(answer: dict[str, Any]) -> None:
    """Answer one request."""
    print(json.dumps(answer), flush=True)


# -- the referee's end ------------------------------------------------------------------------------


class Contender:
    """A child process that runs steps when asked to.

    Parameters
    ----------
    module : str
        Started as ``python -m benchmarks.<module>``.
    args : sequence of str
    threads : int
        Of every library that reads the environment.
    """

    def __init__(self, module: str, *args: str, threads: int) -> None:
        pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(pools, str(threads)),
            cwd=ROOT,
            text=True,
        )
        self.ms: list[float] = []
        self.medians: list[float] = []
        self.last: dict[str, Any] = {}

    def hear(self) -> dict[str, Any]:
        """Return its next answer."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()}.")  # type: ignore[arg-type]
        self.last = json.loads(line)
        return self.last

    def ask(self, steps: int, limit_s: float = 60.0) -> None:
        """Ask for some steps; the answer is to be heard."""
        assert self.process.stdin
        print(json.dumps({"steps": steps, "limit_s": limit_s}), file=self.process.stdin, flush=True)

    def round(self, steps: int, limit_s: float) -> None:
        """Have some steps run, and keep their times."""
        self.ask(steps, limit_s)
        times = self.hear()["ms"]
        self.ms += times
        self.medians.append(float(np.median(times)))

    def close(self) -> None:
        """End it."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
