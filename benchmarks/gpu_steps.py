"""A training step of a net on a GPU: ours beside every form of PyTorch, in one process, in turn; and ours by layer.

Both have the same first values, batch, precision and update rule, and must find the same losses before they are timed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contender import CHECKED
from benchmarks.gpu_card import bytes_per_s, operations_per_s
from benchmarks.gpu_nets import DEVICE, floor, has_images, loop_of
from benchmarks.gpu_report import Report, limit, spread
from benchmarks.loop import Loop
from singa_dask.layers import Layer
from singa_dask.ops import get_ops
from singa_dask.training.captured_step import FIRST_STEPS

__all__ = ["profile", "steps"]

WITHIN = {"float32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
OURS = BY_KERNEL, CAPTURED = "ours by kernel", "ours captured"
FORMS = ("eager", "channels_last", "graph", "compile")
ROUNDS, ROUND_S = 9, 0.1
# of making a form, and in which precision the slowest of them is made
FORM_S, COMPILED = 40.0, "tf32"


class Runner(NamedTuple):
    """One contender: its first losses, a step that waits for nothing, and what waits."""

    losses: list[float]
    step: Callable[[], object]
    wait: Callable[[], object]


def precisions(what: str) -> list[str]:
    """Return what a net computes in: recurrent layers know no bfloat16."""
    return [precision for precision in WITHIN if precision != "bf16" or what != "gru"]


def steps(what: str, report: Report, small: bool) -> None:
    """Time a net in each precision."""
    for precision in precisions(what):
        report.attempt(precision, lambda precision=precision: _match(what, precision, report, small))


def _match(what: str, precision: str, report: Report, small: bool) -> None:
    """Time ours and all forms of PyTorch in one precision."""
    with ExitStack() as stack:
        ops = get_ops(DEVICE, precision)
        stack.enter_context(ops.activate())
        operations, moved = floor(loop_of(what, ops, precision, small))
        floors = (operations / operations_per_s(ops, precision, small), moved / max(bytes_per_s(ops, small)))
        runners = {BY_KERNEL: _ours(what, precision, small, capture=False)}

        def add_captured() -> None:
            runners[CAPTURED] = _ours(what, precision, small, capture=True)

        report.attempt(f"{precision} {CAPTURED}", add_captured)
        if not small:
            _add_torch(what, precision, runners, report)
        _check(precision, runners, report)
        times, enqueued = _race(runners, 2 if small else ROUNDS, 0.0 if small else ROUND_S)
    middle = {name: float(np.median(ms)) for name, ms in times.items()}
    theirs = {name: ms for name, ms in middle.items() if name not in OURS}
    ours = min(middle[name] for name in OURS if name in middle)
    for name, ms in times.items():
        report.tell(f"{precision} {name}", **spread(ms), enqueued=enqueued[name], losses=runners[name].losses)
    compared = {"best": min(theirs, key=theirs.__getitem__)} if theirs else {}
    compared |= {f"against_{name}": theirs[form] / ours
                 for name, form in (*compared.items(), ("eager", "eager")) if form in theirs}  # fmt: skip
    least = {"floor_ms": 1e3 * max(floors), "bound_by": "products" if floors[0] > floors[1] else "memory"}
    least["floor_share"] = least["floor_ms"] / ours
    report.tell(f"{precision} share", **compared, **least, gflop=operations / 1e9, mb=moved / 1e6)


def _ours(what: str, precision: str, small: bool, capture: bool) -> Runner:
    """Return ours, each kernel enqueued by itself or all of them captured and replayed."""
    ops = get_ops(DEVICE, precision)
    ops.supports_capture = capture and ops.supports_capture
    loop = loop_of(what, ops, precision, small)
    losses = []
    # a captured step would go on without Dropout
    if not capture or all(layer.conf.type != "Dropout" for layer in loop.net.layers):
        undo = loop.without_dropout()
        losses = [loop.train_one_batch() for _ in range(CHECKED)]
        undo()
    if capture:
        for _ in range(FIRST_STEPS + 1):
            loop.train()
        if not loop.algorithm.n_captures:
            raise RuntimeError("its steps cannot be captured")
    return Runner(losses, loop.train, ops.synchronize)


def _add_torch(what: str, precision: str, runners: dict[str, Runner], report: Report) -> None:
    """Add the forms of PyTorch that can be made."""
    try:
        from benchmarks import gpu_torch
    except ImportError as error:
        report.tell(precision, skipped=f"no PyTorch: {error}")
        return

    def add(form: str) -> None:
        with limit(FORM_S):
            runners[form] = gpu_torch.runner(what, form, precision)

    for form in FORMS:
        if form == "channels_last" and not has_images(what):
            continue
        if form == "compile" and precision != COMPILED:
            continue
        report.attempt(f"{precision} {form}", lambda form=form: add(form))


def _check(precision: str, runners: dict[str, Runner], report: Report) -> None:
    """Tell who does not train as ours does."""
    wanted = np.array(runners[BY_KERNEL].losses)
    for name, runner in runners.items():
        if not runner.losses:
            continue
        apart = float(np.max(np.abs(np.array(runner.losses) - wanted) / np.maximum(1, np.abs(wanted))))
        if not apart <= WITHIN[precision]:
            told = f"losses {runner.losses}, ours {wanted.tolist()}: these are not the same nets"
            report.tell(f"{precision} {name}", failed=told)


def _race(runners: dict[str, Runner], rounds: int, round_s: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the milliseconds of a step in each round, the contenders in turn; and those until it is enqueued."""
    n_steps, enqueued = {}, {}
    for name, (_, step, wait) in runners.items():
        for _ in range(3):  # the first ones warm up
            wait()
            started = time.perf_counter()
            for _ in range(3):
                step()
            enqueued[name] = 1e3 * (time.perf_counter() - started) / 3
            wait()
            taken = (time.perf_counter() - started) / 3
        n_steps[name] = max(1, min(500, int(round_s / taken)))
    times: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, (_, step, wait) in runners.items():
            wait()
            started = time.perf_counter()
            for _ in range(n_steps[name]):
                step()
            wait()
            times[name].append(1e3 * (time.perf_counter() - started) / n_steps[name])
    return times, enqueued


# -- by layer -----------------------------------------------------------------------------------------


def profile(what: str, report: Report, small: bool) -> None:
    """Tell how long each layer takes, forward and backward, and how long the updates do."""
    for precision in precisions(what)[1:]:
        ops = get_ops(DEVICE, precision)
        ops.supports_capture = False  # each layer by itself
        with ops.activate():
            loop = loop_of(what, ops, precision, small)
            for _ in range(2 if small else 20):
                loop.train()
            clock = _Waits(ops.synchronize) if small else _Events()
            _watch(loop, clock)
            n_steps = 2 if small else 20
            for _ in range(n_steps):
                loop.train()
            ops.synchronize()
            taken = clock.taken()
        whole = sum(taken.values())
        for name, ms in sorted(taken.items(), key=lambda pair: -pair[1]):
            report.tell(f"{precision} {name}", ms=ms / n_steps, share=ms / whole)


def _watch(loop: Loop, clock: Any) -> None:
    """Have the clock note what the layers do, and the updates."""
    for layer in loop.net.layers:
        for name in ("forward", "backward"):
            setattr(layer, name, clock.timed(getattr(layer, name), f"{_name(layer)} {name}"))
    loop.algorithm.update = clock.timed(loop.algorithm.update, "updates")


def _name(layer: Layer) -> str:
    return f"{layer.conf_name} ({layer.conf.type})"


class _Waits:
    """Times each call on its own; waits for it."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self.wait = wait
        self.found: dict[str, float] = defaultdict(float)

    def timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.wait()
            started = time.perf_counter()
            result = call(*args)
            self.wait()
            self.found[name] += 1e3 * (time.perf_counter() - started)
            return result

        return run

    def taken(self) -> dict[str, float]:
        return self.found


class _Events:
    """Times by events of the stream: nothing waits for anything until all is done."""

    def __init__(self) -> None:
        import cupy

        self.cuda: Any = cupy.cuda
        self.pairs: list[tuple[str, Any, Any]] = []

    def timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            begins, ends = self.cuda.Event(), self.cuda.Event()
            begins.record(self.cuda.get_current_stream())
            result = call(*args)
            ends.record(self.cuda.get_current_stream())
            self.pairs.append((name, begins, ends))
            return result

        return run

    def taken(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for name, begins, ends in self.pairs:
            found[name] += float(self.cuda.get_elapsed_time(begins, ends))
        return found
