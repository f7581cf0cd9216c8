"""Replay of layers on the CPU: the kernels of a pass are captured once and called again without the layer's code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import is_
from typing import Any, TypeAlias

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import Layer
from singa_dask.ops.contract import Ops

# The first passes allocate scratch memory and make primitives.
FIRST_PASSES = 2
# Gives up after so many captures in a row, where arguments differ from step to step.
MAX_CAPTURES = 8
# Captures anew after so many passes in a row that found something else; one may be the start of another text.
MAX_MISSES = 2

# What gives memory or facts, and computes nothing.
NO_KERNELS = {"scratch", "empty", "zeros", "features", "address"}


# Runs a verb of a layer, by its name.
Run: TypeAlias = Callable[[Layer, Phase, str], None]


def run_verb(layer: Layer, phase: Phase, verb: str) -> None:
    """Run `Layer.forward` or `Layer.backward`."""
    getattr(layer, verb)(phase)


class Replays:
    """Runs layers; on a CPU it replays those that are `capturable` and our own. A GPU captures whole steps.

    Two passes in a row have to call the same kernels with the same arguments, arrays in the same memory. Later passes
    call these kernels again, as long as what the layer reads and writes is where it was. What layers do on the host is
    in `Layer.prepare`, which is not part of this.

    Parameters
    ----------
    ops : Ops
        Kernels that compute the net.
    """

    def __init__(self, ops: Ops) -> None:
        self._passes: dict[tuple[Layer, str, int], _Pass | None] = {}
        self._possible = ops.device == "cpu"

    def run(self, layer: Layer, phase: Phase, verb: str) -> None:
        """Run ``layer.forward`` or ``layer.backward``, or replay it."""
        key = (layer, verb, phase.value)
        try:
            known = self._passes[key]
        except KeyError:
            known = self._passes[key] = _Pass(layer, verb) if self._possible and is_replayable(layer) else None
        if known is None:
            run_verb(layer, phase, verb)
        elif not known.replay():
            known.run(phase)
            if known.n_captures > MAX_CAPTURES:
                self._passes[key] = None


def is_replayable(layer: Layer) -> bool:
    """Tell whether a layer says that it only calls kernels, and is one of ours, which call them by ``self.ops``.

    The copies of a recurrent layer, one for each time step, leave states to each other.
    """
    is_copy = layer.traits.steps == "recurrent" and layer.name != layer.conf_name
    is_ours = type(layer).__module__.startswith("singa_dask.layers.")
    return layer.speed.capturable and is_ours and not is_copy


class _Pass:
    """A pass of a layer in one phase.

    Attributes
    ----------
    n_captures : int
        How often its kernels were captured since two captures were the same.
    """

    def __init__(self, layer: Layer, verb: str) -> None:
        self._layer, self._name, self._verb = layer, verb, getattr(layer, verb)
        self._n_passes = self._n_misses = self.n_captures = 0
        self._captured: Capture | None = None
        self._kernels: list[Callable[[], Any]] | None = None
        # where the layer finds what it reads and writes, and what was there
        self._held: list[tuple[Mapping[str, Any], str, Any]] = []
        self._own: list[Any] = []
        self._conditions: object = None

    def replay(self) -> bool:
        """Call the kernels again; returns False if they are not known, or the layer holds something else now."""
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

    def _is_valid(self) -> bool:
        for attributes, name, value in self._held:
            if (now := attributes.get(name)) is not value and not is_in_place(now, value):
                return False
        own = vars(self._layer).values() if self._own else ()
        if not all(map(is_, own, self._own)):
            for now, value in zip(own, self._own, strict=False):
                if now is not value and not is_in_place(now, value):
                    return False
        return self._layer.ops.conditions() == self._conditions

    def run(self, phase: Phase) -> None:
        """Run the layer, and capture the kernels that it calls."""
        self._n_passes += 1
        if self._n_passes <= FIRST_PASSES or self._kernels is not None:
            self._verb(phase)
            return
        layer, ops, before, self._captured = self._layer, self._layer.ops, self._captured, None
        self.n_captures += 1
        captured = layer.ops = Capture(ops)  # type: ignore[assignment]
        try:
            self._verb(phase)
        finally:
            layer.ops = ops
        if before is None or not captured.repeats(before):
            self._captured = captured
            return
        self._kernels, self._conditions, self.n_captures = captured.bound(), ops.conditions(), 0
        self._held = [(attributes, key, attributes.get(key)) for attributes, key in places(layer, self._name)]
        # what `prepare` leaves to the kernels, and a forward pass to the one back
        is_alone = self._name == "forward" and type(layer).prepare is Layer.prepare
        self._own = [] if is_alone else list(vars(layer).values())


# What a layer consumes of a source that can be another object in each step.
CHANGING = {"raw": "raw", "one_hot_index": "one_hot_index", "labels": "records", "ids": "records"}


def places(layer: Layer, verb: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield where a pass of a layer finds what it reads and writes: attributes by name."""
    context, names = layer.context, ("_data",) if verb == "forward" else ("_data", "_grad")
    yield from ((vars(context), "stream_start"), (vars(context), "frozen"), (vars(context), "states"))
    yield context.states, layer.conf_name
    for k, source in enumerate(layer.sources):
        consumed = {CHANGING[each] for each in layer.traits.consumed(k) if each in CHANGING}
        yield from ((vars(source), name) for name in (*names, *consumed))
    for feature in layer.features:
        yield from ((vars(feature), name) for name in names)
    for param in layer.params:
        yield vars(param.owner), "_data"
        if verb == "backward":
            yield vars(param), "_grad"


class Capture:
    """Kernels that note each call: what a layer has as ``ops`` while its kernels are captured."""

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
            # a number that the layer goes on with
            self._is_void |= result is not None
            self._calls.append((name, args, kwargs))
            return result

        return call

    def repeats(self, before: Capture) -> bool:
        """Tell whether these are the calls of another capture, with the same arguments."""
        if self._is_void or len(self._calls) != len(before._calls):
            return False
        return all(
            name == other and same(args, other_args) and same(kwargs, other_kwargs)
            for (name, args, kwargs), (other, other_args, other_kwargs) in zip(self._calls, before._calls, strict=True)
        )

    def bound(self) -> list[Callable[[], Any]]:
        """Return the calls, with their arguments bound."""
        return [self._ops.bound(name, *args, **kwargs) for name, args, kwargs in self._calls]


def same(one: Any, other: Any) -> bool:
    """Tell whether two arguments of a kernel are the same: arrays in the same memory, other values equal."""
    if isinstance(one, np.ndarray):
        return is_in_place(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and same(list(one.values()), list(other.values()))
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def is_in_place(one: Any, other: Any) -> bool:
    """Tell whether two objects are one, or arrays in the same memory, or tuples of such."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and place_of(one) == place_of(other)
    if type(one) is tuple:
        return type(other) is tuple and len(one) == len(other) and all(map(is_in_place, one, other))
    return one is other


def place_of(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return address, shape, strides and dtype of an array."""
    return array.ctypes.data, array.shape, array.strides, array.dtype
