"""Call: a prepared kernel, with its primitive, its memory, and copies of arrays to other layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from singa_dask.arrays import Array
from singa_dask.ops.onednn.library import Engine, Md, Unsupported, failure


def channels_last_strides(x: Array) -> tuple[int, ...]:
    """Return the strides in bytes of a dense array (N, C, ...) in the order N, ..., C."""
    return dense_strides(x, [0, *range(2, x.ndim), 1])


def dense_strides(x: Array, order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in bytes of a dense array with axes in ``order``, the slowest first."""
    strides, step = [0] * x.ndim, x.itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= x.shape[axis]
    return tuple(strides)


def layout(x: Array) -> tuple[int, ...]:
    """Return the strides of an array in bytes. Axes of length 1 have the strides of a dense array.

    If images and other arrays fit several orders of axes, images count as N, H, W, C, and other arrays as C order.
    """
    orders = [range(x.ndim)] if x.ndim < 3 else [[0, *range(2, x.ndim), 1], range(x.ndim)]
    for dense in (dense_strides(x, list(order)) for order in orders):
        if all(size == 1 or own == step for size, own, step in zip(x.shape, x.strides, dense, strict=True)):
            return dense
    return tuple(x.itemsize if size == 1 else own for size, own in zip(x.shape, x.strides, strict=True))


@dataclass(frozen=True)
class Operand:
    """An array of a call.

    Parameters
    ----------
    place : int
        Number of the argument of the primitive.
    array : ndarray
        An example with the shape, strides and dtype.
    written : bool
        Whether the primitive writes the array. Otherwise it reads the array.
    add : bool
        Whether the result is added to earlier values.
    opaque : bool
        Whether only primitives know the layout of the array.
    """

    place: int
    array: Array
    written: bool = False
    add: bool = False
    opaque: bool = False


def read(place: int, array: Array | None) -> Operand | None:
    """Return an operand to read; None for None."""
    return None if array is None else Operand(place, array)


def write(place: int, array: Array | None, add: bool = False) -> Operand | None:
    """Return an operand to write or add to; None for None."""
    return None if array is None else Operand(place, array, True, add)


class Call:
    """A primitive with everything it needs to run on arrays of one shape, layout and dtype.

    Parameters
    ----------
    engine : Engine
    description : int
        Handle of the primitive's description.
    *operands : Operand or None
        Description of each array, in the order in which a call takes the arrays; None if an array is None.
    unread : sequence of int
        Numbers of arguments that the primitive requires but does not read.
    """

    def __init__(self, engine: Engine, description: int, *operands: Operand | None, unread: Sequence[int] = ()) -> None:
        self.implementation = engine.implementation(description)
        self.written = [operand is not None and operand.written for operand in operands]
        self._engine = engine
        self._execute, self._set = engine.functions["primitive_execute"], engine.functions["memory_set_data_handle"]
        self._kept: list[Array] = []
        self._handles: list[int] = []
        self._before: list[Any] = []
        self._after: list[Any] = []
        memories = {place: self._own(engine.wanted(description, place)) for place in unread}
        for operand in operands:
            if operand is not None:
                memories[operand.place] = self._attach(description, operand)
            else:
                self._handles.append(0)
        # the handle of an argument that is None is always 0
        self._addresses = [0 if handle else None for handle in self._handles]
        self._steps = [*self._before, engine.primitive(description, memories), *self._after]

    def _attach(self, description: int, operand: Operand) -> int:
        """Return the memory object of an operand: the array, or a copy in the layout of the primitive."""
        engine, array = self._engine, operand.array
        wanted = engine.wanted(description, operand.place)
        if wanted is None or (operand.opaque and array.nbytes < engine.size(wanted)):
            raise Unsupported(f"{self.implementation} does not take this array as argument {operand.place}")
        own_md = wanted if operand.opaque else engine.md(array.shape, array.dtype, layout(array))
        handle = engine.memory(own_md)
        self._handles.append(handle)
        if engine.same(own_md, wanted) and not operand.add:
            return handle
        own = self._own(wanted)
        if operand.written:
            self._after.append(engine.reorder((own, wanted), (handle, own_md), operand.add))
        else:
            self._before.append(engine.reorder((handle, own_md), (own, wanted)))
        return own

    def _own(self, md: Md) -> int:
        """Return a memory object whose memory lives as long as the call."""
        handle, values = self._engine.buffer(md)
        self._kept.append(values)
        return handle

    def __call__(self, arrays: Sequence[Array | None]) -> None:
        """Run on arrays in the order of the operands."""
        self._run(_addresses(arrays))

    def bound(self, arrays: Sequence[Array | None]) -> Callable[[], None]:
        """Return a function that runs on these arrays, and keeps them alive."""
        addresses = _addresses(arrays)

        def run(_: object = arrays) -> None:
            self._run(addresses)

        return run

    def _run(self, addresses: list[int | None]) -> None:
        if addresses != self._addresses:
            for handle, address, before in zip(self._handles, addresses, self._addresses, strict=True):
                if address != before:
                    self._set(handle, address)
            self._addresses = addresses
        for step in self._steps:
            status = self._execute(*step)
            if status:
                raise failure("primitive_execute", status)


class Copied:
    """A call that copies arrays to dense memory and back, because oneDNN rejects their strides."""

    def __init__(self, call: Any, copies: Sequence[Array | None]) -> None:
        self._call = call
        self._copies = copies

    def __call__(self, arrays: Sequence[Array | None]) -> None:
        """Run on arrays in the order of the operands."""
        taken = [array if copy is None else copy for array, copy in zip(arrays, self._copies, strict=True)]
        for array, copy in zip(arrays, self._copies, strict=True):
            if array is not None and copy is not None:
                np.copyto(copy, array)
        self._call(taken)
        for array, copy, written in zip(arrays, self._copies, self._call.written, strict=True):
            if array is not None and copy is not None and written:
                np.copyto(array, copy)


def _addresses(arrays: Sequence[Array | None]) -> list[int | None]:
    return [None if array is None else array.ctypes.data for array in arrays]


def described(engine: Engine, x: Array) -> int:
    """Describe an array for primitives: images as N, H, W, C, other arrays with their own layout."""
    return engine.md(x.shape, x.dtype, channels_last_strides(x) if x.ndim == 4 else layout(x))


def fast(engine: Engine, name: str, *args: Any) -> int:
    """Describe a primitive that is faster than NumPy.

    Raises
    ------
    Unsupported
        oneDNN has no such primitive, or only a slow reference implementation of it.
    """
    description = engine.describe(name, *args)
    implementation = engine.implementation(description)
    if implementation.startswith("ref"):
        raise Unsupported(f"dnnl_{name}: only {implementation}")
    return description


def flat(*arrays: Array) -> list[Array]:
    """Return flat views of arrays if all are dense and have the same layout; otherwise, return the arrays."""
    first = layout(arrays[0])
    dense = sum((size - 1) * step for size, step in zip(arrays[0].shape, first, strict=True)) + arrays[0].itemsize
    if dense != arrays[0].nbytes or any(layout(array) != first or min(first) <= 0 for array in arrays):
        return list(arrays)
    return [as_strided(array, (array.size,), (array.itemsize,)) for array in arrays]
