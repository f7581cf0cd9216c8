"""Replay layers on the CPU: capture the kernels of a pass once, then call them without the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import Layer
from singa_dask.ops.contract import Ops

# Number of passes before the first capture. They allocate scratch memory and prepare primitives.
FIRST_PASSES = 2
# After this many captures in a row with different calls, a layer is no longer captured.
MAX_CAPTURES = 8
# After this many passes in a row in which its arrays have moved, a layer is captured again. One such pass is not
# enough, because it may be the start of a stream.
MAX_MISSES = 2

# Methods that return memory or properties, and compute nothing.
NO_KERNELS = {"scratch", "empty", "zeros", "features", "address"}


# Kernels that NumPy computes without BLAS.
WITHOUT_BLAS = {
    "add",
    "copy",
    "elementwise",
    "gelu",
    "multiply",
    "normalize",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
}


# A function of (layer, phase, name) that runs the method "forward" or "backward" of a layer.
Run: TypeAlias = Callable[[Layer, Phase, str], None]


def run_method(layer: Layer, phase: Phase, name: str) -> None:
    """Run `Layer.forward` or `Layer.backward`, unless a neighbour does its work; see `Fused.idle`."""
    if name not in layer.fused.idle:
        getattr(layer, name)(phase)


class Replays:
    """Runs layers. On a CPU, the kernels of built-in layers that are `capturable` are replayed.

    A layer is replayed after two successive passes have called the same kernels with the same arguments, and as long
    as its arrays stay in the same memory. `Layer.prepare` is never replayed. On a GPU, whole steps are captured
    instead.
    """

    def __init__(self, ops: Ops) -> None:
        self._passes: dict[tuple[Layer, str, int], _Pass | None] = {}
        self._possible = ops.device == "cpu"

    def run(self, layer: Layer, phase: Phase, name: str) -> None:
        """Run or replay ``layer.forward`` or ``layer.backward``."""
        key = (layer, name, phase.value)
        try:
            known = self._passes[key]
        except KeyError:
            may_replay = self._possible and is_replayable(layer) and name not in layer.fused.idle
            known = self._passes[key] = _Pass(layer, name) if may_replay else None
        if known is None:
            run_method(layer, phase, name)
        elif not known.replay():
            known.run(phase)
            if known.n_captures > MAX_CAPTURES:
                self._passes[key] = None

    def captured(self, layer: Layer, phase: Phase, name: str) -> list[Callable[[], Any]] | None:
        """Return the captured kernels of a pass if they are valid until arrays of the net move; else None."""
        known = self._passes.get((layer, name, phase.value))
        return known.lasting_kernels() if known is not None else None


def is_without_blas(kernel: Callable[[], Any]) -> bool:
    """Return whether a captured kernel is known to compute without BLAS."""
    return not isinstance(kernel, partial) or kernel.func.__name__ in WITHOUT_BLAS


def is_replayable(layer: Layer) -> bool:
    """Return whether a layer is `capturable` and built-in.

    Built-in layers call kernels only through ``self.ops``.

    The result is False for a recurrent layer with a copy for each time step, because its copies pass states to each
    other.
    """
    is_copy = layer.traits.steps == "recurrent" and layer.name != layer.conf_name
    is_ours = type(layer).__module__.startswith("singa_dask.layers.")
    return layer.speed.capturable and is_ours and not is_copy


class _Pass:
    """The forward or backward method of one layer in one phase, and its captured kernels.

    Attributes
    ----------
    n_captures : int
        Number of captures since two successive captures were last equal.
    """

    def __init__(self, layer: Layer, name: str) -> None:
        self._layer, self._name, self._method = layer, name, getattr(layer, name)
        self._n_passes = self._n_misses = self.n_captures = 0
        self._captured: Capture | None = None
        self._kernels: list[Callable[[], Any]] | None = None
        # (object, attribute, value) of each array that the layer reads or writes
        self._held: list[tuple[Any, str, Any]] = []
        self._own: list[Any] = []
        self._conditions: object = None

    def replay(self) -> bool:
        """Call the captured kernels, and return True.

        If nothing is captured, or if arrays of the layer have moved, call nothing and return False.
        """
        if self._kernels is None:
            return False
        self._n_misses = 0 if self._is_valid() else self._n_misses + 1
        if self._n_misses:
            if self._n_misses == MAX_MISSES:
                self._kernels, self._n_misses = None, 0
            return False
        for kernel in self._kernels:
            kernel()
        return True

    def lasting_kernels(self) -> list[Callable[[], Any]] | None:
        """Return the captured kernels; None if the layer has state, or reads a new object in each step."""
        changes = any(name in CHANGING.values() or (name == "state" and value) for _, name, value in self._held)
        return None if self._kernels is None or self._own or changes or not self._is_valid() else self._kernels

    def _is_valid(self) -> bool:
        for owner, name, value in self._held:
            if (now := getattr(owner, name)) is not value and not is_in_place(now, value):
                return False
        own = vars(self._layer).values() if self._own else ()
        if not all(map(is_, own, self._own)):
            for now, value in zip(own, self._own, strict=False):
                if now is not value and not is_in_place(now, value):
                    return False
        return self._layer.ops.conditions() == self._conditions

    def run(self, phase: Phase) -> None:
        """Run the layer, and capture its kernels, except in the first passes."""
        self._n_passes += 1
        if self._n_passes <= FIRST_PASSES or self._kernels is not None:
            self._method(phase)
            return
        layer, ops, before, self._captured = self._layer, self._layer.ops, self._captured, None
        self.n_captures += 1
        captured = layer.ops = Capture(ops)  # type: ignore[assignment]
        try:
            self._method(phase)
        finally:
            layer.ops = ops
        if before is None or not captured.repeats(before):
            self._captured = captured
            return
        self._kernels, self._conditions, self.n_captures = captured.bound(), ops.conditions(), 0
        self._held = [(owner, key, getattr(owner, key)) for owner, key in places(layer, self._name)]
        # record all attributes, to compare them later: `prepare` and `forward` may set attributes that other methods
        # read
        is_alone = self._name == "forward" and type(layer).prepare is Layer.prepare
        self._own = [] if is_alone else list(vars(layer).values())


# Value of `Traits.consumes` -> attribute of the source that is a new object in each step.
CHANGING = {"raw": "raw", "one_hot_index": "one_hot_index", "labels": "records", "ids": "records"}


def places(layer: Layer, method: str) -> Iterator[tuple[Any, str]]:
    """Yield, as (object, name), each attribute through which a pass of a layer reads or writes arrays."""
    context, names = layer.context, ("_data",) if method == "forward" else ("_data", "_grad")
    yield from ((context, "stream_start"), (context, "frozen"), (context, "states"), (layer, "state"))
    for k, source in enumerate(layer.sources):
        consumed = {CHANGING[each] for each in layer.traits.consumed(k) if each in CHANGING}
        yield from ((source, name) for name in (*names, *consumed))
    for feature in layer.features:
        yield from ((feature, name) for name in names)
    for param in layer.params:
        yield param.owner, "_data"
        if method == "backward":
            yield param, "_grad"


class Capture:
    """Stands in for ``layer.ops`` and records each call of a kernel."""

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._is_void = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ops, name)
        if name in NO_KERNELS or not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            # a call that returns a value cannot be replayed, because the layer's code may use the value
            self._is_void |= result is not None
            self._calls.append((name, args, kwargs))
            return result

        return call

    def repeats(self, before: Capture) -> bool:
        """Return whether this capture has the same calls, with the same arguments, as the capture ``before``."""
        if self._is_void or len(self._calls) != len(before._calls):
            return False
        return all(
            name == other and same(args, other_args) and same(kwargs, other_kwargs)
            for (name, args, kwargs), (other, other_args, other_kwargs) in zip(self._calls, before._calls, strict=True)
        )

    def bound(self) -> list[Callable[[], Any]]:
        """Return the captured calls as functions without arguments."""
        return [self._ops.bound(name, *args, **kwargs) for name, args, kwargs in self._calls]


def same(one: Any, other: Any) -> bool:
    """Return whether two arguments of a kernel are the same: the same memory, or equal other values."""
    if isinstance(one, np.ndarray):
        return is_in_place(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and same(list(one.values()), list(other.values()))
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def is_in_place(one: Any, other: Any) -> bool:
    """Return whether two objects are the same object, arrays in the same memory, or tuples of such pairs."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and place_of(one) == place_of(other)
    if type(one) is tuple:
        return type(other) is tuple and len(one) == len(other) and all(map(is_in_place, one, other))
    return one is other


def place_of(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return the address, shape, strides and dtype of an array, which identify its memory."""
    return array.ctypes.data, array.shape, array.strides, array.dtype
