"""Memory that layers declare in `Layer.setup`: the net counts it, and allocates it once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from singa_dask.ops.contract import Array, DType

__all__ = ["Buffer", "Memory", "When"]

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
