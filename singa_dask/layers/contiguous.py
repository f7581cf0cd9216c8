"""Contiguous: features in C order, for layers that depend on the order of a record's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from singa_dask.layers.feature import Feature
from singa_dask.ops.contract import Array, Ops

__all__ = ["Contiguous"]


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
