"""The floor of a training step: its kernels measured alone, beside what each layer takes in a real step.

The floor of a convolution, product, pooling or normalisation is oneDNN's primitive alone, without copies to other
layouts, on warm arrays of its shapes: in our layout or in the one that oneDNN chooses, whichever is faster; products
also by numpy. That of all else is a copy of as many bytes. A kernel inside another counts where it is oneDNN's.
``<`` marks what takes more than 10 % longer than its floor; ``update`` is all outside layers. Rounds
of steps and of floors alternate.
``python -m benchmarks.floor [--net NAME ...] [--threads N ...] [--rounds N] [--steps N] [--by type]``
"""

from __future__ import annotations

import argparse
import inspect
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import char_rnn_ours, net_ours, rbm_ours, residual_ours
from benchmarks.char_rnn import GATES
from benchmarks.contender import NETS
from benchmarks.loop import Loop
from benchmarks.residual import NETS as RESIDUAL
from singa_dask.layers import Layer
from singa_dask.net.replay import run_method
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.onednn import OneDnnOps, recipes
from singa_dask.ops.onednn.call import Call, Copied, described
from singa_dask.ops.onednn.library import Engine

ALL = [*NETS, *RESIDUAL, "gru", "lstm", "rbm"]
MARK = 0.9
SHORT_S = 2e-3
NO_KERNELS = {name for name, _ in inspect.getmembers(NumpyMemory, inspect.isfunction)} | {
    *("for_thread", "lrn_memory", "place_dtype", "update_pieces", "pieces", "activate", "synchronize", "scratch"),
}
PRODUCTS: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, b, out, transpose: np.matmul(x, w if transpose else w.T, out=out),
    "linear_grad_input": lambda gy, w, out, transpose, _: np.matmul(gy, w.T if transpose else w, out=out),
    "linear_grad_weight": lambda x, gy, out, transpose, _: np.matmul(*((x.T, gy) if transpose else (gy.T, x)), out=out),
}
Place = tuple[str, str]
UPDATE: Place = ("update", "backward")  # all that is outside layers


def loop_of(what: str, ops: NumpyOps) -> Loop:
    """Return a net on its batch."""
    if what in NETS:
        return net_ours.loop_of(NETS[what], ops)
    if what in RESIDUAL:
        return residual_ours.loop_of(RESIDUAL[what], ops)
    if what.upper() in GATES:
        return char_rnn_ours.loop_of(what.upper(), ops)
    return rbm_ours.loop_of(ops)


# -- floors -------------------------------------------------------------------------------------------


def ms_of(run: Callable[[], object]) -> float:
    """Return the median milliseconds of a call whose arrays are warm."""
    run()
    times, ends = list[float](), time.perf_counter() + SHORT_S
    while len(times) < 3 or time.perf_counter() < ends:
        started = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times))


def blocked(engine: Engine, x: np.ndarray[Any, Any]) -> int:
    """Describe images in the layout in which oneDNN would have a convolution write them."""
    n = x.shape[1]
    ones, image = recipes.integers((1, 1)), engine.md(x.shape, x.dtype)
    zeros, args = recipes.integers((0, 0)), (recipes.Prop.TRAINING, recipes.Alg.CONVOLUTION)
    mds = (image, engine.md((n, n, 3, 3), x.dtype), None, image)
    convolution = engine.describe("convolution_forward", *args, *mds, ones, zeros, ones, ones, engine.attributes())
    md = engine.wanted(convolution, recipes.Arg.DST)
    assert md is not None
    return md


def alone(call: Call | Copied, arrays: Sequence[Any]) -> Callable[[], object]:
    """Return the primitive of a call, without the copies around it."""
    call(arrays)
    inner = call._call if isinstance(call, Copied) else call
    step = inner._steps[len(inner._before)]
    # the arrays live as long as the primitive reads them
    return lambda kept=(call, arrays): inner._execute(*step)


def primitives(
    ops: OneDnnOps, kernel: str, arrays: Sequence[Any], parameters: Sequence[Any]
) -> Iterator[Callable[[], object]]:
    """Yield the ways to compute a kernel by oneDNN, and a product by numpy."""
    call = ops._prepare(kernel, arrays, parameters)
    if isinstance(call, Call | Copied):
        yield alone(call, arrays)
    any_layout = kernel.startswith(("conv2d", "linear"))

    def chosen(engine: Engine, x: np.ndarray[Any, Any]) -> int:
        if any_layout and x.ndim > 1:
            return engine.md(x.shape, x.dtype)
        return blocked(engine, x) if x.ndim == 4 else described(engine, x)

    if any(x is not None and x.ndim == 4 for x in arrays) or any_layout:
        with mock.patch.object(recipes, "described", chosen):
            call = ops._prepare(kernel, arrays, parameters)
        if isinstance(call, Call | Copied):
            yield alone(call, arrays)
    if kernel in PRODUCTS:
        yield lambda: PRODUCTS[kernel](*arrays, *parameters)


def copies(ops: OneDnnOps, n_bytes: int) -> Iterator[Callable[[], object]]:
    """Yield the ways to read and write as many bytes in all."""
    x, out = np.ones((2, max(1, n_bytes // 8)), np.float32)
    yield lambda: np.copyto(out, x)
    yield alone(recipes.copy(ops._engine, x, out), (x, out))


class Floors:
    """The kernels of a step, by layer, and how long each takes alone: those of equal shapes are measured once."""

    def __init__(self, ops: OneDnnOps) -> None:
        self._ops = ops
        self._twins: dict[Any, Any] = {}
        self._ways: dict[Any, list[Callable[[], object]]] = {}
        self._counts: defaultdict[Place, Counter[Any]] = defaultdict(Counter)

    def _twin(self, x: Any) -> Any:
        """Return a copy of an array, in the same layout, for all kernels of the net that take it."""
        if x is None:
            return None
        key = (x.ctypes.data, x.shape, x.strides, x.dtype)
        if key not in self._twins:
            self._twins[key] = x.copy(order="K")
        return self._twins[key]

    def add(self, place: Place, kernel: str, arrays: Sequence[Any], parameters: Sequence[Any], n_bytes: int) -> None:
        """Add a kernel of a layer."""
        shapes = tuple(None if x is None else (x.shape, x.strides, x.dtype) for x in arrays)
        key = (kernel, shapes, tuple(parameters)) if arrays else n_bytes
        if key not in self._ways:
            ways = primitives(self._ops, kernel, [self._twin(x) for x in arrays], parameters) if arrays else iter(())
            self._ways[key] = list(ways) or list(copies(self._ops, n_bytes))
        self._counts[place][key] += 1

    def round(self) -> dict[Place, float]:
        """Measure all, and return the milliseconds of each layer."""
        ms = {key: min(map(ms_of, ways)) for key, ways in self._ways.items()}
        return {place: sum(ms[key] * n for key, n in counts.items()) for place, counts in self._counts.items()}


# -- ours ---------------------------------------------------------------------------------------------


def arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of an argument."""
    if isinstance(value, np.ndarray):
        return [value]
    parts: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    )
    return [x for part in parts for x in arrays_in(part)]


class Watch:
    """Sees the kernels of a step as it runs: what each was given, and how long all took."""

    def __init__(self, loop: Loop, ops: OneDnnOps) -> None:
        self.kernel_ms, self.places = 0.0, list[tuple[int, str, list[Any], Sequence[Any], int]]()
        self._loop, self._ops, self._depth, self._inner = loop, ops, 0, 0

    def _watched(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return kernel(*args, **kwargs)
            began, self._depth, self._inner = time.monotonic_ns(), 1, 0
            try:
                return kernel(*args, **kwargs)
            finally:
                self._depth = 0
                self.kernel_ms += (time.monotonic_ns() - began) / 1e6
                if not self._inner:
                    changed = args[4:] if name == "update" else ()  # values and the updater's state
                    n_bytes = sum(x.nbytes for value in (*args, *kwargs.values(), *changed) for x in arrays_in(value))
                    self.places.append((began, name, [], (), n_bytes))

        return run

    def _ran(self, kernel: str, arrays: Sequence[Any], *parameters: Any) -> bool:
        did = OneDnnOps._run(self._ops, kernel, arrays, *parameters)
        if did:
            self._inner += 1
            n_bytes = sum(x.nbytes for x in arrays if x is not None)
            self.places.append((time.monotonic_ns(), kernel, list(arrays), parameters, n_bytes))
        return did

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile, while layers compute by their own code."""
        replays = self._loop.net._replays
        self._loop.net._replays = mock.Mock(run=run_method)
        kernels = {name: k for name, k in inspect.getmembers(self._ops, inspect.ismethod) if name[0] != "_"}
        names = kernels.keys() - NO_KERNELS
        for name in names:
            setattr(self._ops, name, self._watched(name, kernels[name]))
        self._ops._run = self._ran  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._loop.net._replays = replays
            for name in (*names, "_run"):
                delattr(self._ops, name)


def layers_of(loop: Loop) -> tuple[dict[Place, float], list[tuple[Place, int, int]]]:
    """Train for a step; return milliseconds of each layer and of all outside layers, and when each ran."""
    ms, spans = defaultdict[Place, float](float), list[tuple[Place, int, int]]()

    def on_layer(layer: Layer, direction: str, start: int) -> None:
        now = time.monotonic_ns()
        ms[layer.conf_name, direction] += (now - start) / 1e6
        spans.append(((layer.conf_name, direction), start, now))

    loop.net.on_layer = on_layer
    started = time.monotonic_ns()
    loop.train_one_batch()
    total = (time.monotonic_ns() - started) / 1e6
    loop.net.on_layer = None
    ms[UPDATE] = total - sum(ms.values())
    return ms, spans


def floors_of(loop: Loop, ops: OneDnnOps) -> Floors:
    """Return the floors of the kernels that a step runs, of those outside layers as the update's."""
    watch, floors = Watch(loop, ops), Floors(ops)
    with watch.watching():
        _, spans = layers_of(loop)
    for at, *what in watch.places:
        inside = (place for place, start, end in spans if start <= at <= end)
        floors.add(next(inside, UPDATE), *what)
    return floors


def measure(what: str, threads: int, rounds: int, steps: int, types_only: bool) -> None:
    """Measure a net, and print its table."""
    ops = get_ops("onednn")
    assert isinstance(ops, OneDnnOps)
    loop = loop_of(what, ops)
    for _ in range(3):
        loop.train_one_batch()
    floors = floors_of(loop, ops)
    step_ms, outside, ours, least = [], [], [], []
    for _ in range(rounds):
        times, seen = [], []
        for _ in range(steps):
            started = time.perf_counter()
            loop.train_one_batch()
            times.append(1e3 * (time.perf_counter() - started))
            seen.append(layers_of(loop)[0])
        step_ms.append(float(np.median(times)))
        ours.append({place: float(np.median([one[place] for one in seen])) for place in seen[0]})
        watch = Watch(loop, ops)
        with watch.watching():
            loop.train_one_batch()
        outside.append(step_ms[-1] - watch.kernel_ms)
        least.append(floors.round())
    types = {layer.conf_name: layer.conf.type for layer in loop.net.layers} | {UPDATE[0]: loop.updater.conf.type}
    title, n_layers = f"{what:11} {threads:2}", len(loop.net.layers)
    sums = [sum(one.values()) for one in least]
    if types_only:
        ours, least = ([by_type(one, types) for one in each] for each in (ours, least))
        types = {kind: "" for kind in types.values()}
    show(title, types, ours, least)
    share, left = np.median(np.divide(sums, step_ms)), np.median(outside)
    print(
        f"{title}  step {np.median(step_ms):.2f} ms, floors {np.median(sums):.2f} ms, share {share:.2f}; outside "
        f"kernels {left / np.median(step_ms):.1%}, {1e3 * left / n_layers:.0f} us a layer",
        flush=True,
    )


def show(title: str, types: dict[str, str], ours: list[dict[Place, float]], least: list[dict[Place, float]]) -> None:
    """Print the lines of a net: medians of the rounds, and medians of the ratios of each round."""
    for name, kind in types.items():
        cells, total, floor = [], np.zeros(len(ours)), np.zeros(len(ours))
        for direction in ("forward", "backward"):
            taken = np.array([one.get((name, direction), 0.0) for one in ours])
            needed = np.array([one.get((name, direction), 0.0) for one in least])
            total, floor = total + taken, floor + needed
            cells.append(f"{np.median(taken):9.3f} {np.median(needed):9.3f}")
        if floor.any():
            share = float(np.median(floor / total))
            print(f"{title}  {name:22.22} {kind:20.20} {' '.join(cells)} {share:6.2f} {'<' if share < MARK else ''}")


def by_type(ms: dict[Place, float], types: dict[str, str]) -> dict[Place, float]:
    """Return the sums of the layers of each type."""
    sums = defaultdict[Place, float](float)
    for (name, direction), each in ms.items():
        sums[types[name], direction] += each
    return sums


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of a net in a round")
    parser.add_argument("--by", choices=["layer", "type"], default="layer")
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; load {os.getloadavg()[0]:.1f}; ms; share: floor / ours")
    heads = f"{'forward':>9} {'floor':>9} {'backward':>9} {'floor':>9}  share"
    print(f"{'net':6} threads  {'layer':22} {'type':20} {heads}")
    get_ops("onednn")  # loads the library, whose threads are limited from now on
    for what in given.net:
        for threads in given.threads:
            with threadpool_limits(threads):
                measure(what, threads, given.rounds, given.steps, given.by == "type")


if __name__ == "__main__":
    main()
