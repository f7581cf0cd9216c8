"""What a converter reads: files of one kind, one after the other -> arrays of records.

Nearly every kind is a store's format; idx comes as files of images and of labels in any order, text is windows of
characters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.column_store import open_bytes
from singa_dask.data.idx_store import idx_shape
from singa_dask.data.record import schema_of, show_schema
from singa_dask.data.store import STORES, Arrays, Store, open_store
from singa_dask.data.vocabulary import read_text
from singa_dask.errors import DataError

__all__ = ["KINDS", "kind_options", "read_records", "read_store"]

# kinds that are the format of a store, by its backend
BACKENDS = (
    "arrow",
    "cifar",
    "csv",
    "image-folder",
    "image-list",
    "kvfile",
    "lmdb",
    "npz",
    "parquet",
    "tfrecord",
    "webdataset",
)


def read_records(kind: str, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> Arrays:
    """Read all records of some files.

    Parameters
    ----------
    kind : str
        One of KINDS.
    urls : sequence of str
        Each may be a pattern (``part-*.parquet``).
    options
        See `kind_options`.

    Raises
    ------
    DataError
        A file is missing, damaged, or holds other records than the first.
    """
    if kind in READERS:
        return READERS[kind](urls, storage_options, **options)
    parts: list[Arrays] = []
    for url in urls:
        with open_store(url, kind, storage_options, **options) as store:
            parts.append(read_store(store))
        if schema_of(parts[-1]) != schema_of(parts[0]):
            found, expected = (show_schema(schema_of(parts[i])) for i in (-1, 0))
            raise DataError(f"{url}: records of different shapes: it holds {found}, {urls[0]} holds {expected}.")
    return {name: _joined([part[name] for part in parts], urls) for name in parts[0]}


def kind_options(kind: str) -> list[str]:
    """Return the options that a kind's reader has."""
    function = READERS[kind] if kind in READERS else STORES.find(kind).__init__
    given = ("self", "url", "urls", "storage_options")
    return [name for name in inspect.signature(function).parameters if name not in given]


def read_store(store: Store) -> Arrays:
    """Read all records of a store."""
    arrays = {name: np.empty((store.count, *field.shape), field.dtype) for name, field in store.schema.items()}
    for block, first in zip(store.blocks, store.starts.tolist(), strict=False):
        for name, array in store.read_block(block.id).items():
            arrays[name][first : first + block.n] = array
    return arrays


def read_idx(urls: Sequence[str], storage_options: fs.Options = None) -> Arrays:
    """Read files of images and of labels in MNIST's idx format.

    Parameters
    ----------
    urls : sequence of str
        In any order, told apart by their headers; several of a kind follow each other as given.

    Raises
    ------
    DataError
        A header or a length is wrong, or there are not as many labels as images.
    """
    images: list[npt.NDArray[Any]] = []
    labels: list[npt.NDArray[Any]] = []
    for url in urls:
        source = open_bytes(url, storage_options)
        shape = idx_shape(source)
        start = 4 + 4 * len(shape)
        array = np.frombuffer(source.read(start, source.size - start), np.uint8).reshape(shape)
        (labels if array.ndim == 1 else images).append(array)
    if not images:
        raise DataError(f"{', '.join(urls)}: no file of images (an idx header of 3 or more dimensions).")
    records: Arrays = {"pixel": _joined(images, urls)}
    if labels:
        records["label"] = _joined(labels, urls).astype(np.int32)
        if len(records["label"]) != len(records["pixel"]):
            raise DataError(f"{', '.join(urls)}: {len(records['pixel'])} images but {len(records['label'])} labels.")
    return records


def _joined(arrays: Sequence[npt.NDArray[Any]], urls: Sequence[str]) -> npt.NDArray[Any]:
    if len({array.shape[1:] for array in arrays}) > 1:
        raise DataError(f"{', '.join(urls)}: records of different shapes: {[array.shape[1:] for array in arrays]}.")
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


READERS: Mapping[str, Callable[..., Arrays]] = {"idx": read_idx, "text": read_text}
KINDS = sorted((*BACKENDS, *READERS))
