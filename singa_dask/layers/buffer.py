"""Buffer: a workspace of a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from singa_dask.ops.contract import Array, DType

When: TypeAlias = Literal["always", "training", "backward"]


class Buffer:
    """A workspace of a layer, which `Layer.forward` and `Layer.backward` can both use.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    when : {"always", "training", "backward"}
        When the buffer is needed: in every net, in nets for training, or only if the layer computes gradients.
    make : callable
        Allocates the array, given shape and dtype.
    data : ndarray
        The array. Reading it raises RuntimeError if the buffer is not needed; see `data_if_needed`.
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
            raise RuntimeError(
                f"buffer {self.shape}: it has no memory, as it is only for {self.when}. See Layer.buffer."
            )
        return self._data

    @property
    def data_if_needed(self) -> Array | None:
        """`data`, or None if the buffer is not needed."""
        return self._data
