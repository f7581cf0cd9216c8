"""How ``init`` reads records of each format: keys of ``store_conf``, chosen by what is in the files."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from typing import Any

import numpy as np

from singa_dask.cli.init_tables import choose_label, has_arrays
from singa_dask.data import STORES, fs, open_store
from singa_dask.data.codecs.image import image_size
from singa_dask.data.codecs.labels import LABEL_NAMES
from singa_dask.data.stores.opening import is_pattern
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.errors import DataError

__all__ = ["MAX_BLOCKS", "reading_of", "separator_of"]

# image files are scaled to this unless all that are looked at have one size, of at most MAX_SIDE
SIDE, MAX_SIDE = 64, 96
MAX_IMAGES = 64
# blocks of a store that are looked at
MAX_BLOCKS = 256


def reading_of(place: str, backend: str, label: str) -> tuple[str, dict[str, Any]]:
    """Return the format of records, and the keys of ``store_conf`` that it takes to read them.

    Raises
    ------
    DataError
        There is no such label, or it is not clear which field is the label.
    """
    if backend == "parquet" and _is_of_images(place) and _has_images_of_many_sizes(place, "image-parquet"):
        return "image-parquet", {"resize": [SIDE, SIDE], "channels": 3, **_named(backend, label)}
    first = shard_urls(place)[0] if is_pattern(place) else place
    if backend in backends_holding("text"):
        separator = separator_of(first)
        return backend, {} if separator == "," else {"separator": separator}
    if backend in ("image-folder", "image-list"):
        return backend, _size_of_images(place, backend)
    if backend == "webdataset":
        return backend, _pictures_of_tar(place, label)
    if backend == "jsonl":
        return backend, _keys_of_lines(place, first, label)
    # a table names its label otherwise
    return backend, {} if backend == "parquet" and not has_arrays(place) else _named(backend, label)


def _named(backend: str, label: str) -> dict[str, Any]:
    """Return the keys that name the label, if it has a name."""
    if label and "label" not in inspect.signature(STORES.find(backend)).parameters:
        raise DataError(f"--label {label}: records of {backend} have at most one label, which has no name.")
    return {"user_conf": {"label": label}} if label else {}


def separator_of(place: str) -> str:
    """Return the separator that the first line of a table has most of."""
    head = fs.read_bytes(place, 0, min(1 << 12, fs.size(place))).partition(b"\n")[0]
    unquoted = re.sub(rb'"[^"]*"', b"", head)
    return max((",", ";", "\t"), key=lambda separator: unquoted.count(separator.encode()))


def _has_images_of_many_sizes(place: str, backend: str, **options: Any) -> bool:
    """Tell whether a store has pictures that need to be scaled to one size."""
    try:
        with open_store(place, backend, **options) as store:
            for block in range(min(len(store.blocks), MAX_BLOCKS)):
                store.read_block(block)
    except DataError as error:
        return "expected" in str(error)
    return False


def _is_of_images(place: str) -> bool:
    """Tell whether a Parquet file has pictures of Hugging Face."""
    with contextlib.suppress(DataError), open_store(place, "image-parquet"):
        return True
    return False


def _pictures_of_tar(place: str, given: str) -> dict[str, Any]:
    """Choose where a tar has its labels, in .cls or in .json files, and a size if its pictures have several."""
    options: dict[str, Any] = {}
    with open_store(place, "webdataset") as store:
        has_label = "label" in store.schema and not given
    for name in () if has_label else [given] if given else LABEL_NAMES:
        try:
            with open_store(place, "webdataset", label=f"json.{name}"):
                options = {"label": f"json.{name}"}
                break
        except DataError as error:
            if "has no key" not in str(error):
                raise DataError(
                    f"{error} Expected whole numbers from 0 on. For text write a job file with user_conf: "
                    f"{{label: json.{name}, classes: [names of the classes]}}."
                ) from error
    reading: dict[str, Any] = {"user_conf": options} if options else {}
    if _has_images_of_many_sizes(place, "webdataset", **options):
        reading |= {"resize": [SIDE, SIDE], "channels": 3}
    return reading


def _keys_of_lines(place: str, file: str, given: str) -> dict[str, Any]:
    """Choose the keys of JSON lines that do not have the usual names: numbers are features."""
    with contextlib.suppress(DataError), open_store(place, "jsonl", label=given) as store:
        if "label" in store.schema:
            return {"user_conf": {"label": given}} if given else {}
    try:
        first = json.loads(fs.read_bytes(file, 0, min(1 << 16, fs.size(file))).partition(b"\n")[0])
    except ValueError:
        return {}
    if not isinstance(first, dict) or len(first) < 2:
        return {}
    label = choose_label(place, list(first), given)
    numbers = [key for key, value in first.items() if key != label and isinstance(value, (int, float))]
    return {"user_conf": {"features": numbers, "label": label}} if numbers else {}


def _size_of_images(place: str, backend: str) -> dict[str, Any]:
    """Choose size and channels for image files from a sample of them."""
    with open_store(place, backend, resize=(SIDE, SIDE)) as store:
        numbers = np.linspace(0, store.count - 1, min(store.count, MAX_IMAGES)).astype(int)
        files = [store.record_files(int(i), int(i) + 1)[0] for i in numbers]
    found = {image_size(fs.read_bytes(file), file) for file in files}
    channels = 1 if all(size[0] == 1 for size in found) else 3
    sizes = {size[1:] for size in found}
    (side,) = sizes if len(sizes) == 1 else {(SIDE, SIDE)}
    return {"resize": list(side) if max(side) <= MAX_SIDE else [SIDE, SIDE], "channels": channels}
