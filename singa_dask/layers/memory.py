"""Memory that layers declare in `Layer.setup`, which the net allocates once, and features in C order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from singa_dask.layers.feature import Feature
from singa_dask.ops.contract import Array, DType, Ops

When: TypeAlias = Literal["always", "training", "backward"]


class Memory(NamedTuple):
    """Memory that is to be allocated.

    Attributes
    ----------
    owner : object
        What it belongs to. Memory of one owner is allocated once, though several layers may ask for it.
    shape : tuple of int
    dtype : dtype
    allocate : callable
        Allocates it, unless the owner has it.
    """

    owner: object
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    allocate: Callable[[], None]

    @property
    def n_bytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Buffer:
    """Memory that a layer keeps between its verbs.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    when : {"always", "training", "backward"}
        Whether it is needed in every net, in training nets, or where the layer has gradients.
    make : callable
        (shape, dtype) returns the memory.
    data : ndarray
        The memory; RuntimeError where it is not needed, see `has_data`.
    """

    def __init__(self, shape: Sequence[int], dtype: DType, when: When, make: Callable[..., Array]) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.when = when
        self.make = make
        self._data: Array | None = None

    def allocate(self) -> None:
        """Allocate the memory."""
        self._data = self.make(self.shape, self.dtype)

    @property
    def data(self) -> Array:
        if self._data is None:
            raise RuntimeError(f"buffer {self.shape}: it has no memory, as it is for {self.when}. See Layer.buffer.")
        return self._data

    @property
    def data_if_needed(self) -> Array | None:
        """`data`, None where it is not needed."""
        return self._data

    @property
    def has_data(self) -> bool:
        """Whether there is `data`."""
        return self._data is not None


class Contiguous:
    """Rows of sources and of their gradients, a base of `Layer`. Images, stored as N, H, W, C, are copied."""

    ops: Ops
    sources: Sequence[Feature]

    def __init__(self) -> None:
        self._contiguous: dict[str, Array] = {}

    def rows(self, source: int = 0) -> Array:
        """Return the data of a source as (N, D), one row a record, the values of images in the order C, H, W."""
        data = self.sources[source].data
        return data if data.ndim == 2 else self.contiguous(data, f"data{source}").reshape(len(data), -1)

    @contextmanager
    def grad_rows(self, source: int = 0) -> Iterator[Array]:
        """Yield memory (N, D) for the gradient of a source, in the order of `rows`."""
        grad = self.sources[source].output_grad
        with self.contiguous_out(grad, f"grad{source}") as memory:
            yield memory if memory.ndim == 2 else memory.reshape(len(grad), -1)

    def contiguous(self, values: Array, key: str) -> Array:
        """Return an array in C order: itself, or a copy in memory that is kept under ``key``."""
        memory = self._contiguous_memory(values, key)
        if memory is not values:
            self.ops.copy(values, out=memory)
        return memory

    @contextmanager
    def contiguous_out(self, out: Array, key: str) -> Iterator[Array]:
        """Yield memory in C order for what is to be written to ``out``: itself, or memory that is then copied there."""
        memory = self._contiguous_memory(out, key)
        yield memory
        if memory is not out:
            self.ops.copy(memory, out=out)

    def _contiguous_memory(self, values: Array, key: str) -> Array:
        if values.flags.c_contiguous:
            return values
        if key not in self._contiguous:
            self._contiguous[key] = self.ops.empty(values.shape, values.dtype)
        return self._contiguous[key]
