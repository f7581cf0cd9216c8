"""One step of CD-1 (an RBM of 784 - 1000 units, batches of 100, SGD with momentum and decay): ours, beside PyTorch.

Each contender is a process of its own, trains from the same values on the same batch, and must find the same errors in
its first steps, where both sample by the same random numbers, before it is timed. They run in turn, some steps in each
round. ``python -m benchmarks.rbm [--threads N ...] [--rounds N] [--steps N] [--torch FORM ...]``
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import torch

from benchmarks.contender import CHECKED, Contender, serve
from benchmarks.rbm_ours import DECAY, HIDDEN, MOMENTUM, RATE, VISIBLE, N, first_values, loop_of
from singa_dask.conf import Phase
from singa_dask.ops import get_ops, philox

OURS, TORCH = ("numpy", "onednn"), ("eager", "stacked", "compile")
TOLERANCE = 1e-4


def ours(form: str) -> Callable[[], float]:
    """Return a step with our layers, CD and updater, without servers."""
    return loop_of(get_ops(form)).train_one_batch


def pytorch(form: str) -> Callable[[], float]:
    """Return the same step on PyTorch's tensors; after the first `CHECKED` it draws its own random numbers."""
    v, w = (torch.from_numpy(values) for values in first_values())
    b, c = torch.zeros(VISIBLE), torch.zeros(HIDDEN)
    speeds = [torch.zeros_like(values) for values in (w, b, c)]
    n_steps = 0

    def sample(h: torch.Tensor) -> torch.Tensor:
        if n_steps >= CHECKED:
            return torch.bernoulli(h)
        key = (0, "vis", 0, int(Phase.TRAIN), n_steps + 1, "hidden", 0)
        return (torch.from_numpy(philox.uniform(key, tuple(h.shape))) < h).float()

    def up() -> torch.Tensor:
        return torch.sigmoid(torch.addmm(c, v, w.t()))

    def rest(h: torch.Tensor, sampled: torch.Tensor) -> torch.Tensor:
        model = torch.sigmoid(torch.addmm(b, sampled, w))
        again = torch.sigmoid(torch.addmm(c, model, w.t()))
        if form == "stacked":
            both, signed = torch.cat((model, v)), torch.cat((again, -h))
            gradient = torch.addmm(w, signed.t(), both, beta=DECAY, alpha=1 / N)
        else:
            gradient = torch.addmm(w, again.t(), model, beta=DECAY, alpha=1 / N)
            gradient = gradient.addmm_(h.t(), v, alpha=-1 / N)
        gradients = (gradient, (model - v).mean(0) + DECAY * b, (again - h).mean(0) + DECAY * c)
        for value, speed, each in zip((w, b, c), speeds, gradients, strict=True):
            speed.mul_(MOMENTUM).sub_(each, alpha=RATE)
            value.add_(speed)
        return (v - model).square().sum() / N

    up_, rest_ = (torch.compile(up), torch.compile(rest)) if form == "compile" else (up, rest)

    def step() -> float:
        nonlocal n_steps
        with torch.no_grad():
            h = up_()
            error = float(rest_(h, sample(h)))
        n_steps += 1
        return error

    return step


def match(threads: int, rounds: int, steps: int, torches: Sequence[str]) -> None:
    """Time all contenders, and print their lines of the table."""
    with ExitStack() as stack:
        contenders = {}
        for form in (*torches, *OURS):
            one = contenders[form] = Contender("rbm", "--contender", form, threads=threads)
            stack.callback(one.close)
            errors, wanted = one.hear()["losses"], contenders[torches[0]].last["losses"]
            if not np.allclose(errors, wanted, rtol=TOLERANCE):
                sys.exit(f"{form}: errors {errors}, expected {wanted}: these do not train the same.")
        for _ in range(rounds):
            for one in contenders.values():
                one.round(steps, 1.0)
    middle = {form: float(np.median(one.ms)) for form, one in contenders.items()}
    best = min(torches, key=middle.__getitem__)
    for form, one in contenders.items():
        ratio = np.median([b / a for a, b in zip(one.medians, contenders[best].medians, strict=True)])
        note = f"{ratio:6.2f}" if form in OURS else "  best" if form == best else ""
        print(f"{threads:7}  {form:10} {middle[form]:8.2f} {note}", flush=True)


def main() -> None:
    """Print the table, or run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="of one contender in a round")
    parser.add_argument("--torch", nargs="+", choices=TORCH, default=list(TORCH))
    parser.add_argument("--contender", choices=(*OURS, *TORCH), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        step = (ours if given.contender in OURS else pytorch)(given.contender)
        serve([step() for _ in range(CHECKED)], step)
        return
    print(f"cores: {len(os.sched_getaffinity(0))}; median ms of a step; times as fast as the best of PyTorch")
    print(f"{'threads':>7}  {'contender':10} {'ms':>8} ratio")
    for threads in given.threads:
        match(threads, given.rounds, given.steps, given.torch)


if __name__ == "__main__":
    main()
