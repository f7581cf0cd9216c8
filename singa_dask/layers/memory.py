"""Memory that layers declare in `Layer.setup`: the net counts it, and allocates it once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

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
    data : ndarray or None
        The memory; None where it is not needed.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, when: When, make: Callable[..., Any]) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.when = when
        self.make = make
        self.data: Any = None

    def allocate(self) -> None:
        """Allocate the memory."""
        self.data = self.make(self.shape, self.dtype)
