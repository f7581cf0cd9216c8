"""Decodes chunks of HDF5. Gzip and shuffle are undone here, and lengths compared; the library does other filters.

The library does not compare the decoded length of a chunk with that of its values: of a damaged chunk it returns
memory that nothing was written to.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask.lazy import require

GZIP, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALE_OFFSET = 1, 2, 3, 4, 5, 6
# filters of the library that may read beyond damaged data
REFUSED = {SZIP: "szip", NBIT: "nbit", SCALE_OFFSET: "scaleoffset"}
CHECKSUM_BYTES = 4


class Filter(NamedTuple):
    """A filter that chunks went through when they were written.

    Attributes
    ----------
    id : int
    flags : int
    values : tuple of int
        Its parameters.
    name : str
    """

    id: int
    flags: int
    values: tuple[int, ...]
    name: str


def load_h5py(url: str) -> Any:
    """Import h5py.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    return require("h5py", "hdf5", url)


def check_filters(filters: Sequence[Filter], h5py: Any) -> None:
    """Check that all filters can be undone.

    Raises
    ------
    ValueError
        One cannot.
    """
    for each in filters:
        if each.id in REFUSED:
            raise ValueError(f"its chunks went through {REFUSED[each.id]}, which is not read. Store them with gzip")
        if not h5py.h5z.filter_avail(each.id):
            name = each.name or f"number {each.id}"
            raise ValueError(f"its chunks went through the filter {name}, which h5py lacks. Store them with gzip")


def decode_chunk(data: memoryview, n_bytes: int, itemsize: int, filters: Sequence[Filter], mask: int) -> Any:
    """Return the values of a chunk, as bytes.

    Parameters
    ----------
    data : memoryview
        The chunk as stored.
    n_bytes, itemsize : int
        Length of all its values, and of one.
    filters : sequence of Filter
        In the order of writing.
    mask : int
        Bit i is set if the chunk did not go through filter i.

    Raises
    ------
    ValueError
        The chunk is damaged.
    """
    found: Any = data
    applied = [each for i, each in enumerate(filters) if not mask >> i & 1]
    for each in reversed(applied):
        if each.id == GZIP:
            found = _inflate(found, n_bytes)
        elif each.id == SHUFFLE:
            found = _unshuffle(found, itemsize)
        elif each.id == FLETCHER32:
            found = _by_library(found, len(found) - CHECKSUM_BYTES, each)
        else:
            found = _by_library(found, n_bytes, each)
    if len(found) != n_bytes:
        raise ValueError(f"a chunk has {len(found)} bytes of values, expected {n_bytes}")
    return found


def _inflate(data: Any, n_bytes: int) -> bytes:
    # a checksum may follow the values
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, n_bytes + CHECKSUM_BYTES)
        if not stream.eof:
            # the end may need another call
            found += stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error as error:
        raise ValueError(f"a damaged chunk: {error}") from error
    if not stream.eof:
        raise ValueError(f"a chunk that is truncated, or has more than {n_bytes} bytes of values")
    return found


def _unshuffle(data: Any, itemsize: int) -> Any:
    """Undo a shuffle, which puts the first byte of all values first, and so on."""
    if itemsize == 1:
        return data
    n = len(data) // itemsize
    values = np.frombuffer(data, np.uint8)
    rows = values[: n * itemsize].reshape(itemsize, n).T
    return np.concatenate([rows.reshape(-1), values[n * itemsize :]])


def _by_library(data: Any, n_bytes: int, each: Filter) -> Any:
    """Undo one filter by a file in memory that has this chunk only."""
    h5py = load_h5py("")
    if n_bytes < 1:
        raise ValueError(f"a chunk of {len(data)} bytes")
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((n_bytes,))
        plist.set_filter(each.id, each.flags, each.values)
        space = h5py.h5s.create_simple((n_bytes,))
        dataset = h5py.h5d.create(file.id, b"chunk", h5py.h5t.NATIVE_UINT8, space, plist)
        dataset.write_direct_chunk((0,), bytes(data))
        found = np.empty(n_bytes, np.uint8)
        try:
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, found)
        except OSError as error:
            raise ValueError(f"a damaged chunk, says the filter {each.name or each.id}") from error
        return found
