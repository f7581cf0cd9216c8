"""Phantom arrays, which have a shape, a dtype and strides, but no data.

Operations on them are counted instead of computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.conf import Phase, UpdaterConf
from singa_dask.layers import Layer
from singa_dask.layers.bridge import Bridge
from singa_dask.net import NeuralNet
from singa_dask.net.replay import run_method
from singa_dask.ops import NumpyOps
from singa_dask.ops.contract import ArrayList, Arrays
from singa_dask.ops.numpy.memory import in_layout
from singa_dask.planner.model import Costs
from singa_dask.training import Updater


class Meter:
    """Counts the work of the simulated code until `take_s` is called.

    Attributes
    ----------
    n_messages : int
        Number of messages that a stub or a server has handled. Parts of a pack count one by one.
    n_bytes : int
        Number of bytes of arrays that were copied or added.
    updates : list of list of int
        For each update, the sizes of its slices.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self.clear()

    def clear(self) -> None:
        """Reset all counts."""
        self.n_messages = self.n_bytes = 0
        self.updates: list[list[int]] = []

    def take_s(self, costs: Costs, n_busy: int) -> float:
        """Return the seconds of the counted work, and reset the counts."""
        seconds = self.n_messages * costs.handled_s + sum(costs.update_s(sizes, n_busy) for sizes in self.updates)
        seconds += self.n_bytes * costs.copied_byte_s(n_busy) if self.n_bytes else 0.0
        self.clear()
        return seconds

    def array(self, shape: int | Sequence[int], dtype: DType) -> Phantom:
        """Return a phantom array in C order.

        All phantom arrays share memory that is never touched, so they take up no physical memory.
        """
        kind, sizes = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
        n_bytes = math.prod(sizes) * kind.itemsize
        if self._memory.size < n_bytes:
            self._memory = np.empty(max(2 * n_bytes, 1 << 26), np.uint8)
        array = np.ndarray.__new__(Phantom, sizes, kind, self._memory.data)
        array.meter = self
        return array


class Phantom(np.ndarray[Any, Any]):
    """An array without data that belongs to a `Meter`.

    Views and copies of a phantom, and results of arithmetic with phantoms, are phantoms.
    """

    meter: Meter | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.meter = getattr(source, "meter", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is None:
            return _counted(inputs, np.broadcast_shapes(*map(np.shape, inputs)), self.dtype)
        _counted((*inputs, *out), out[0].shape, out[0].dtype)
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto:
            _counted(args, args[0].shape, args[0].dtype)
        elif function is np.concatenate:
            return _counted(args[0], sum(each.size for each in args[0]), args[0][0].dtype)
        else:
            return super().__array_function__(function, types, args, kwargs)

    def __setitem__(self, index: Any, values: Any) -> None:
        self[index].copy()

    def copy(self, order: Any = "C") -> Phantom:
        return _counted([self], self.shape, self.dtype)


def _counted(arrays: Iterable[Any], shape: Any, dtype: DType) -> Phantom:
    """Return the result of an operation on arrays as a phantom, and count its bytes."""
    meter = next(meter for each in arrays if (meter := getattr(each, "meter", None)))
    result: Phantom = meter.array(shape, dtype)
    meter.n_bytes += result.nbytes
    return result


class PhantomOps(NumpyOps):
    """Kernels that allocate phantom arrays."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        return self.meter.array(shape, dtype)

    zeros = pinned = empty

    def recycled(self, size: int, dtype: DType) -> Array:
        return self.meter.array(size, dtype)

    def features(self, shape: Sequence[int], dtype: DType) -> Array:
        return in_layout(self.meter.array(math.prod(shape), dtype), shape)

    def sum_squares(self, x: Array, weights: Array | None = None) -> float:
        self.meter.n_bytes += x.nbytes
        return 0.0

    def update(self, rule: Any, prep: Any, numbers: Any, g: Arrays, w: Arrays, *state: Arrays) -> None:
        self.meter.updates.append(_sizes(w))


class PhantomUpdater(Updater):
    """Counts the updates of slices instead of computing them."""

    def __init__(self, conf: UpdaterConf, meter: Meter) -> None:
        super().__init__(conf)
        self._meter = meter

    def update(self, step: int, n_updates: int, value: Arrays, grad: Arrays, state: Any, **options: Any) -> None:
        self._meter.updates.append(_sizes(value))


def _sizes(arrays: Arrays) -> list[int]:
    return [each.size for each in (arrays if isinstance(arrays, ArrayList) else [arrays])]


def replace_layers(net: NeuralNet, compute: Callable[[Layer, str], None]) -> None:
    """Make a net call ``compute(layer, verb)`` instead of running layers.

    ``verb`` is "forward" or "backward".

    Bridges to other workers still run.
    """

    def run(verb: str, layer: Layer, phase: Phase) -> None:
        if isinstance(layer, Bridge):
            run_method(layer, phase, verb)
        else:
            compute(layer, verb)

    vars(net).update({verb: partial(run, verb) for verb in ("forward", "backward")})
