"""Copies of arrays in C order, for kernels that need it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from singa_dask.ops.contract import Array, Ops


def contiguous(ops: Ops, values: Array, name: str) -> Array:
    """Return an array in C order: the array itself, or a copy.

    The copy is valid until the next call with the same ``name``.
    """
    if values.flags.c_contiguous:
        return values
    memory = _scratch(ops, values, name)
    ops.copy(values, out=memory)
    return memory


@contextmanager
def contiguous_out(ops: Ops, out: Array, name: str) -> Iterator[Array]:
    """Yield an array in C order to write to: ``out`` itself, or a buffer.

    A buffer is copied to ``out`` at the end of the context.
    """
    memory = out if out.flags.c_contiguous else _scratch(ops, out, name)
    yield memory
    if memory is not out:
        ops.copy(memory, out=out)


def _scratch(ops: Ops, values: Array, name: str) -> Array:
    # scratch memory with four axes would be laid out like images, so allocate one axis and reshape it
    return ops.scratch(name, (values.size,), values.dtype).reshape(values.shape)
