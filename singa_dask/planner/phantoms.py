"""Phantom arrays: they have shape, dtype and strides, and count what is done with them; nothing is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.conf import UpdaterConf
from singa_dask.ops.contract import ArrayList, Arrays, Ops, Preparation
from singa_dask.ops.numpy.memory import in_layout
from singa_dask.ops.update_rules import UpdateRule
from singa_dask.training import Updater


class Meter:
    """Counts the work of whoever runs now, until it is taken.

    Attributes
    ----------
    n_messages : int
        That a stub or a server has handled, the parts of packs by themselves.
    n_bytes : int
        Copied or added up.
    updates : list of list of int
        Sizes of the slices of each update.
    """

    def __init__(self) -> None:
        self.n_messages = self.n_bytes = 0
        self.updates: list[list[int]] = []
        self._memory = np.empty(0, np.uint8)

    def clear(self) -> None:
        """Forget what was counted."""
        self.n_messages = self.n_bytes = 0
        self.updates.clear()

    def array(self, shape: int | Sequence[int], dtype: DType) -> Phantom:
        """Return a phantom array in C order.

        All share memory that nobody writes to, so that the system never provides it.
        """
        kind, sizes = np.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
        n_bytes = math.prod(sizes) * kind.itemsize
        if self._memory.size < n_bytes:
            self._memory = np.empty(max(n_bytes, 2 * self._memory.size, 1 << 26), np.uint8)
        array = np.ndarray.__new__(Phantom, sizes, kind, self._memory.data)
        array.meter = self
        return array


class Phantom(np.ndarray[Any, Any]):
    """An array of a `Meter`; so are its views, its copies, and what arithmetic makes of it."""

    meter: Meter | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.meter = getattr(source, "meter", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if out is None:
            shape = np.broadcast_shapes(*(np.shape(each) for each in inputs))
            return self._counted(_meter_of(inputs).array(shape, self.dtype))
        _meter_of((*inputs, *out)).n_bytes += out[0].nbytes
        return out[0]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.copyto:
            _meter_of(args).n_bytes += args[0].nbytes
            return None
        if function is np.concatenate:
            return self._counted(_meter_of(args[0]).array(sum(each.size for each in args[0]), args[0][0].dtype))
        return super().__array_function__(function, types, args, kwargs)

    def __setitem__(self, index: Any, values: Any) -> None:
        _meter_of((self,)).n_bytes += self[index].nbytes

    def copy(self, order: Any = "C") -> Phantom:
        return self._counted(_meter_of((self,)).array(self.shape, self.dtype))

    def _counted(self, array: Phantom) -> Phantom:
        _meter_of((array,)).n_bytes += array.nbytes
        return array


def _meter_of(arrays: Iterable[Any]) -> Meter:
    return next(meter for each in arrays if (meter := getattr(each, "meter", None)) is not None)


class PhantomOps(Ops):
    """Kernels whose memory is of phantom arrays.

    Parameters
    ----------
    meter : Meter
    """

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        return self._meter.array(shape, dtype)

    zeros = pinned = empty

    def features(self, shape: Sequence[int], dtype: DType) -> Array:
        return in_layout(self._meter.array(math.prod(shape), dtype), shape)

    def sum_squares(self, x: Array, weights: Array | None = None) -> float:
        self._meter.n_bytes += x.nbytes
        return 0.0

    def update(
        self, rule: UpdateRule, prep: Preparation | None, numbers: Sequence[float], g: Arrays, w: Arrays, *state: Arrays
    ) -> None:
        self._meter.n_bytes += sum(each.nbytes for each in _listed(w))


class PhantomUpdater(Updater):
    """Notes what is updated.

    Parameters
    ----------
    conf : UpdaterConf
    meter : Meter
    """

    def __init__(self, conf: UpdaterConf, meter: Meter) -> None:
        super().__init__(conf)
        self._meter = meter

    def update(self, step: int, n_updates: int, value: Arrays, grad: Arrays, state: Any, **options: Any) -> None:
        self._meter.updates.append([each.size for each in _listed(value)])


def _listed(arrays: Arrays) -> Sequence[Array]:
    return arrays if isinstance(arrays, ArrayList) else [arrays]
