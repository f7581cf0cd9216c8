"""A whole training step of ResNet-20 and of the transformer: ours, beside every form of PyTorch.

The nets are those of ``configs/cifar10/resnet20.yaml`` and ``configs/char-rnn/transformer.yaml``, on one batch of their
own size, at one learning rate. Each contender is a process of its own, trains from the same values on the same batch,
and must find the same losses in its first steps before it is timed. They run in turn, some steps in each round.
``python -m benchmarks.residual [--net NAME ...] [--threads N ...] [--rounds N] [--steps N] [--limit S]
[--ours FORM ...] [--torch FORM ...]``
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contender import Contender
from singa_dask.conf import load

__all__ = ["NETS", "Net", "batch", "first_values", "layers"]

ROOT = Path(__file__).parents[1]
OURS = ("numpy", "onednn", "bf16")
TORCH = ("eager", "channels_last", "compile", "compile_channels_last")
TORCH_BF16 = tuple(f"{form}_bf16" for form in TORCH)
TOLERANCE, TOLERANCE_BF16 = 1e-3, 5e-2
# What params of a type start with: weights, biases, zeros and ones.
PARAMS = {
    "Convolution": "w",
    "BatchNorm": "1001",
    "InnerProduct": "wb",
    "Embedding": "w",
    "PositionalEmbedding": "w",
    "LayerNorm": "10",
    "MultiHeadAttention": "wwbb",
}


class Net(NamedTuple):
    """A job file, its batch, and the learning rate of all steps: at that of the job ResNet-20 forgets its start."""

    config: str
    n_rows: int
    shape: tuple[int, ...]
    n_classes: int
    rate: float
    n_steps: int = 1

    def job(self) -> Any:
        """Return the job file with the layers of its blocks."""
        return load(ROOT / "configs" / self.config).job.model_dump(mode="json", exclude_unset=True)


NETS = {
    "resnet20": Net("cifar10/resnet20.yaml", 128, (3, 32, 32), 10, 0.01),
    "transformer": Net("char-rnn/transformer.yaml", 32, (129,), 153, 0.0005, 128),
}


def layers(net: Net) -> list[dict[str, Any]]:
    """Return the layers of the training net behind its records, which come from a layer ``data``."""
    found = [layer for layer in net.job()["neuralnet"]["layer"] if layer.get("include", ["train"]) == ["train"]]
    left_out = {layer["name"] for layer in found if layer["type"] in ("RecordInput", "ImagePreprocess", "CharRNN")}
    kept = [layer for layer in found if layer["name"] not in left_out]
    return [
        {**layer, "srclayers": ["data" if name in left_out else name for name in layer["srclayers"]]} for layer in kept
    ]


def batch(net: Net) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the one batch: images and classes, or windows of characters twice."""
    random = np.random.default_rng(0)
    if net.n_steps > 1:
        text = random.integers(0, net.n_classes, (net.n_rows, *net.shape))
        return text, text
    return random.normal(size=(net.n_rows, *net.shape)).astype(np.float32), random.integers(0, 10, net.n_rows)


def first_values(net: Net, shapes: list[tuple[int, ...]]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield first values of all params, which have ``shapes``, in the order of the job."""
    kinds = "".join(PARAMS.get(layer["type"], "") for layer in layers(net))
    random = np.random.default_rng(1)
    for kind, shape in zip(kinds, shapes, strict=True):
        if kind in "01":
            yield np.full(shape, float(kind), np.float32)
        else:
            bound = math.sqrt(3 / math.prod(shape[1:])) if kind == "w" else 0.05
            yield random.uniform(-bound, bound, shape).astype(np.float32)


def check_losses(contenders: Mapping[str, Contender]) -> None:
    """End the benchmark where two contenders do not train the same net."""
    wanted = np.array(contenders["eager"].last["losses"])
    for name, one in contenders.items():
        tolerance = TOLERANCE_BF16 if "bf16" in name else TOLERANCE
        if (np.abs(np.array(one.last["losses"]) - wanted) > tolerance * np.maximum(1, wanted)).any():
            sys.exit(f"{name}: losses {one.last['losses']}, expected {wanted} as PyTorch has them.")


def match(net: str, threads: int, given: argparse.Namespace) -> None:
    """Time all contenders on a net, and print their lines of the table."""
    forms = [form for form in given.torch if len(NETS[net].shape) == 3 or "channels_last" not in form]
    with ExitStack() as stack:
        contenders = {}
        for form in [*forms, *given.ours]:
            module = "residual_ours" if form in OURS else "residual_torch"
            contenders[form] = Contender(module, net, form, threads=threads)
            stack.callback(contenders[form].close)
            contenders[form].hear()
        check_losses(contenders)
        for _ in range(given.rounds):
            for one in contenders.values():
                one.round(given.steps, given.limit)
        middle = {name: float(np.median(one.ms)) for name, one in contenders.items()}
        for name, one in contenders.items():
            best = min((form for form in forms if ("bf16" in form) == ("bf16" in name)), key=middle.__getitem__)
            ratio = np.median([b / a for a, b in zip(one.medians, contenders[best].medians, strict=True)])
            note = f"{ratio:6.2f}" if name in OURS else "  best" if name == best else ""
            print(
                f"{net:12} {threads:7}  {name:22} {middle[name]:8.1f} {note:7} {one.last['peak_mb']:7.0f}", flush=True
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of one contender in a round, at most")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds after which it begins no other step")
    parser.add_argument("--ours", nargs="+", choices=OURS, default=["numpy", "onednn"])
    parser.add_argument("--torch", nargs="+", choices=TORCH + TORCH_BF16, default=list(TORCH))
    given = parser.parse_args()
    if "eager" not in given.torch:
        parser.error("--torch: eager is what the others are checked by.")
    if "bf16" in given.ours and not {*TORCH_BF16} & {*given.torch}:
        given.torch += TORCH_BF16
    print(
        f"cores: {len(os.sched_getaffinity(0))}; median ms of a step; times as fast as the best of PyTorch; peak memory"
    )
    print(f"{'net':12} {'threads':>7}  {'contender':22} {'ms':>8} {'ratio':7} {'MB':>7}")
    for net in given.net:
        for threads in given.threads:
            match(net, threads, given)


if __name__ == "__main__":
    main()
