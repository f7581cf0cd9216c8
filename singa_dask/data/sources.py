"""What a converter reads: MNIST's idx, CIFAR's binary batches, text and npz -> arrays of records.

Each reader takes URLs (gzip is seen through) and returns whole arrays, uint8 pixels or float32 data with int32 labels.
"""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.store import Arrays, open_store
from singa_dask.errors import DataError

__all__ = ["KINDS", "read_cifar", "read_csv", "read_idx", "read_npz"]

CIFAR_SHAPE = (3, 32, 32)
IMAGE_NAMES = ("images", "image", "pixel", "data", "x")
LABEL_NAMES = ("labels", "label", "y")


def _read(url: str, storage_options: fs.Options) -> bytes:
    data = fs.read_bytes(url, storage_options=storage_options)
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{url}: a damaged gzip file: {error}.") from error


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
        array = _idx_array(url, _read(url, storage_options))
        (labels if array.ndim == 1 else images).append(array)
    if not images:
        raise DataError(f"{', '.join(urls)}: no file of images (an idx header of 3 or more dimensions).")
    records: Arrays = {"pixel": _joined(images, urls)}
    if labels:
        records["label"] = _joined(labels, urls).astype(np.int32)
        if len(records["label"]) != len(records["pixel"]):
            raise DataError(f"{', '.join(urls)}: {len(records['pixel'])} images but {len(records['label'])} labels.")
    return records


def _idx_array(url: str, data: bytes) -> npt.NDArray[np.uint8]:
    if len(data) < 4 or data[:3] != b"\0\0\x08" or not data[3]:
        raise DataError(
            f"{url}: no idx file of bytes: it begins with {data[:4].hex(' ')}, expected 00 00 08 and the dimensions."
        )
    n_dims = data[3]
    if len(data) < 4 + 4 * n_dims:
        raise DataError(f"{url}: an idx header of {n_dims} dimensions, cut short.")
    shape = struct.unpack_from(f">{n_dims}I", data, 4)
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * n_dims)
    if body.size != np.prod(shape, dtype=np.int64):
        raise DataError(f"{url}: {body.size} bytes after the header, expected {shape} as it says.")
    return body.reshape(shape)


def _joined(arrays: Sequence[npt.NDArray[Any]], urls: Sequence[str]) -> npt.NDArray[Any]:
    if len({array.shape[1:] for array in arrays}) > 1:
        raise DataError(f"{', '.join(urls)}: records of different shapes: {[array.shape[1:] for array in arrays]}.")
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def read_cifar(urls: Sequence[str], storage_options: fs.Options = None) -> Arrays:
    """Read CIFAR-10's binary batches: a label byte, then 3 x 32 x 32 bytes, channel by channel."""
    record_bytes = 1 + int(np.prod(CIFAR_SHAPE))
    batches = []
    for url in urls:
        data = _read(url, storage_options)
        if not data or len(data) % record_bytes:
            raise DataError(f"{url}: {len(data)} bytes are no whole number of CIFAR records of {record_bytes} bytes.")
        batches.append(np.frombuffer(data, np.uint8).reshape(-1, record_bytes))
    rows = _joined(batches, urls)
    return {"pixel": rows[:, 1:].reshape(-1, *CIFAR_SHAPE), "label": rows[:, 0].astype(np.int32)}


def read_csv(
    urls: Sequence[str],
    storage_options: fs.Options = None,
    separator: str = ",",
    has_label: bool = True,
    shape: Sequence[int] = (),
) -> Arrays:
    """Read text, a record a line: an integer label first (if ``has_label``), then numbers.

    Parameters
    ----------
    separator : str
        Any of these characters ends a number.
    shape : sequence of int
        Of one record; a row of numbers when it is not given.
    """
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for url in urls:
        with open_store(url, "csv", storage_options, separator=separator, has_label=has_label, shape=shape) as store:
            for block in store.blocks:
                for name, array in store.read_block(block.id).items():
                    parts.setdefault(name, []).append(array)
    return {name: _joined(arrays, urls) for name, arrays in parts.items()}


def read_npz(urls: Sequence[str], storage_options: fs.Options = None) -> Arrays:
    """Read npz files with an array of ``images`` (or data, x) and one of ``labels`` (or label, y)."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for url in urls:
        for name, array in _npz_arrays(url, storage_options).items():
            parts.setdefault(name, []).append(array)
    records = {name: _joined(arrays, urls) for name, arrays in parts.items()}
    lengths = {name: len(array) for name, array in records.items()}
    if len(records) > 2 or len(set(lengths.values())) > 1:
        raise DataError(f"{', '.join(urls)}: the arrays do not belong together: {lengths}.")
    return records


def _npz_arrays(url: str, storage_options: fs.Options) -> Arrays:
    try:
        with np.load(io.BytesIO(_read(url, storage_options)), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise DataError(f"{url}: no npz file: {error}.") from error
    image = next((arrays[name] for name in IMAGE_NAMES if name in arrays), None)
    label = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
    if image is None:
        raise DataError(f"{url}: no array called {' or '.join(IMAGE_NAMES)}. Arrays: {', '.join(arrays)}.")
    records: Arrays = {"pixel": image} if image.dtype == np.uint8 else {"data": image.astype(np.float32)}
    if label is not None:
        records["label"] = label.reshape(-1).astype(np.int32)
    return records


KINDS: dict[str, Callable[..., Arrays]] = {"idx": read_idx, "cifar": read_cifar, "csv": read_csv, "npz": read_npz}
