"""A whole training step of SINGA's char-rnn, GRU or LSTM: ours, beside PyTorch's ``nn.GRU`` and ``nn.LSTM``.

One-hot characters, one recurrent layer, an inner product, softmax loss at each of the time steps, RMSProp with clipped
gradients. Each contender is a process of its own, trains from the same values on the same windows of random text, and
must find the same losses in its first steps before it is timed. They run in turn, some steps in each round.
``python -m benchmarks.char_rnn [--kind GRU|LSTM|RNN ...] [--threads N ...] [--rounds N] [--steps N]``
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.contender import Contender

__all__ = [
    "CLIP",
    "DELTA",
    "GATES",
    "N_CHARS",
    "N_HIDDEN",
    "N_ROWS",
    "N_STEPS",
    "N_WINDOWS",
    "RATE",
    "RHO",
    "first_values",
    "windows",
]

N_CHARS, N_HIDDEN, N_ROWS, N_STEPS, N_WINDOWS = 101, 512, 50, 50, 4
RATE, RHO, CLIP, DELTA = 0.002, 0.95, 5.0, 1e-20
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
OURS = ("numpy", "onednn")
TOLERANCE = 1e-3


def windows() -> Iterator[np.ndarray[Any, Any]]:
    """Yield windows of characters, (N_ROWS, N_STEPS + 1) int32, without end."""
    random = np.random.default_rng(0)
    made = [random.integers(0, N_CHARS, (N_ROWS, N_STEPS + 1), np.int32) for _ in range(N_WINDOWS)]
    while True:
        yield from made


def first_values(kind: str) -> list[np.ndarray[Any, Any]]:
    """Return first values for all W, all U, all b of the recurrent layer, in our order, then those of the last."""
    random, n = np.random.default_rng(1), GATES[kind]
    shapes = n * [(N_HIDDEN, N_CHARS)] + n * [(N_HIDDEN, N_HIDDEN)] + n * [(N_HIDDEN,)]
    shapes += [(N_CHARS, N_HIDDEN), (N_CHARS,)]
    return [random.uniform(-0.04, 0.04, shape).astype(np.float32) for shape in shapes]


def match(kind: str, threads: int, given: argparse.Namespace) -> None:
    """Time the contenders on a kind of layer, and print their lines of the table."""
    with ExitStack() as stack:
        contenders = {"torch": Contender("char_rnn_torch", kind, threads=threads)}
        contenders |= {form: Contender("char_rnn_ours", kind, form, threads=threads) for form in given.ours}
        for one in contenders.values():
            stack.callback(one.close)
            one.hear()
        wanted = np.array(contenders["torch"].last["losses"])
        for name, one in contenders.items():
            if np.abs(np.array(one.last["losses"]) - wanted).max() > TOLERANCE:
                sys.exit(f"{name}: losses {one.last['losses']}, expected {wanted} as PyTorch has them.")
        for _ in range(given.rounds):
            for one in contenders.values():
                one.round(given.steps, given.limit)
        base = contenders["torch"]
        for name, one in contenders.items():
            ratio = np.median([b / a for a, b in zip(one.medians, base.medians, strict=True)])
            note = "" if one is base else f"{ratio:6.2f}"
            print(
                f"{kind:5} {threads:7}  {name:8} {np.median(one.ms):8.1f} {note:7} {one.last['peak_mb']:6.0f}",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", nargs="+", choices=GATES, default=["GRU", "LSTM"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="of one contender in a round, at most")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds after which it begins no other step")
    parser.add_argument("--ours", nargs="+", choices=OURS, default=list(OURS))
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; median ms of a step; times as fast as PyTorch; peak memory")
    print(f"{'layer':5} {'threads':>7}  {'':8} {'ms':>8} {'ratio':7} {'MB':>6}")
    for kind in given.kind:
        for threads in given.threads:
            match(kind, threads, given)


if __name__ == "__main__":
    main()
