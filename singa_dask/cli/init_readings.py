"""How ``init`` reads records: keys of ``store_conf``, by what is in the files; of tables the columns."""

from __future__ import annotations

import contextlib
import inspect
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.cli.init_columns import UnsureError
from singa_dask.data import STORES, detect, fs, open_store
from singa_dask.data.codecs.image import IMAGE_SUFFIXES, image_size
from singa_dask.data.codecs.labels import LABEL_NAMES, labels_among
from singa_dask.data.stores.class_names import show_names
from singa_dask.data.stores.opening import is_pattern, shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.errors import DataError

__all__ = [
    "MAX_BLOCKS",
    "choose_label",
    "find_sets",
    "format_of",
    "has_arrays",
    "is_of_images",
    "reading_of",
    "unknown_label",
]

TEST_NAMES = ("test", "t10k", "val", "valid", "validation", "dev")
PACKED_TABLES = (".csv.gz", ".tsv.gz", ".txt.gz")
TABLE_LINES = 20
# image files are scaled to this unless all that are looked at have one size, of at most MAX_SIDE
SIDE, MAX_SIDE = 64, 96
MAX_IMAGES = 64
# blocks of a store that are looked at
MAX_BLOCKS = 256


# -- where it is ---------------------------------------------------------------------------------------


def find_sets(url: str) -> tuple[str, str, str]:
    """Return URL of the training set, URL of the test set (empty if there is none), and format (empty if not known)."""
    place = fs.absolute(url)
    if is_pattern(url) or not fs.exists(place) or not fs.is_dir(place):
        return url, _beside(url), ""
    names = [name for name in fs.ls(place) if name[0] not in "._"]
    if "data_batch_1.bin" in names:
        test = fs.join(url, "test_batch.bin") if "test_batch.bin" in names else ""
        return fs.join(url, "data_batch_*.bin"), test, "cifar"
    train = [name for name in names if "train" in name.lower() and "label" not in name.lower()]
    others = [name for name in names if name not in train and not _is_test(name)]
    suffixes = {posixpath.splitext(name)[1] for name in train if name.startswith("train")}
    if len(train) > 1 and not others and len(suffixes) == 1:
        pattern = fs.join(url, f"train*{suffixes.pop()}")
        return pattern, _beside(pattern), ""
    if len(train) != 1 or any(fs.is_dir(fs.join(place, name)) for name in others):
        # "train" may be the name of a class
        return url, _beside(url), ""
    inside = fs.join(url, train[0])
    return inside, _beside(inside), ""


def _is_test(name: str) -> bool:
    return any(name.lower().startswith(test) for test in TEST_NAMES)


def _beside(url: str) -> str:
    """Return the test set beside a training set: the same name with another word in place of ``train``."""
    folder, name = posixpath.split(url)
    if "train" not in name:
        return ""
    for test in TEST_NAMES:
        other = fs.join(folder, name.replace("train", test))
        # one of both may be unpacked
        for each in (other, other.removesuffix(".gz") if other.endswith(".gz") else f"{other}.gz"):
            if _is_there(fs.absolute(each)):
                return each
    return ""


def _is_there(url: str) -> bool:
    if not is_pattern(url):
        return fs.exists(url)
    try:
        return bool(shard_urls(url))
    except DataError:
        return False


def format_of(url: str) -> str:
    """Return the format of a store, empty if it is a text."""
    place = fs.absolute(url)
    if is_pattern(url):
        return format_of(shard_urls(place)[0])
    backend = detect(place) or ""
    if not fs.is_dir(place) and _lists_images(place):
        return "image-list"
    if backend in backends_holding("text") and not url.lower().endswith((".csv", ".tsv")):
        try:
            with open_store(place, backend, separator=_separator_of(place)) as store:
                store.read_block(0)
        except DataError:
            backend = ""
    if not backend and not fs.is_dir(place) and (url.lower().endswith(PACKED_TABLES[:2]) or _has_columns(place)):
        return "csv"
    if not backend and fs.is_dir(place):
        raise DataError(
            f"{url}: no store of records, and no folder of pictures or with a training set in it. Name a file."
        )
    return backend


def _has_columns(place: str) -> bool:
    """Tell whether the first lines of a file have the same number of fields, and numbers below each other."""
    lines = fs.read_bytes(place, 0, min(1 << 14, fs.size(place))).splitlines()[:-1][:TABLE_LINES]
    separator = _separator_of(place).encode()
    rows = [line.split(separator) for line in lines]
    if len(rows) < 3 or len({len(row) for row in rows}) != 1 or len(rows[0]) == 1:
        return False
    return place.lower().endswith(".data") or any(map(_are_numbers, zip(*rows[1:], strict=True)))


def _are_numbers(texts: Iterable[bytes]) -> bool:
    try:
        return bool([float(text) for text in texts])
    except ValueError:
        return False


def _lists_images(place: str) -> bool:
    """Tell whether each of the first lines of a file names a picture, and its label."""
    lines = fs.read_bytes(place, 0, min(1 << 12, fs.size(place))).split(b"\n")[:-1]
    words = [line.split() for line in lines[:10]]
    return bool(words) and all(
        len(each) > 1 and each[0].lower().endswith(tuple(map(str.encode, IMAGE_SUFFIXES))) for each in words
    )


# -- how it is read ------------------------------------------------------------------------------------


def unknown_label(place: str, names: Sequence[str]) -> UnsureError:
    """Return the error of records of which each of some fields could be the label."""
    advice = f"Give --label NAME, one of {show_names(names)}."
    return UnsureError(place, "which field is the label?", [(name, {"label": (name,)}) for name in names], advice)


def choose_label(place: str, names: Sequence[str], given: str) -> str:
    """Return the given label, or the only one of some names that says that it is a label.

    Raises
    ------
    DataError
        There is no such field, or it is not clear which one it is.
    """
    found = [given] if given else labels_among(names)
    # a point has x and y
    is_point = found in (["y"], ["Y"]) and not given and "x" in map(str.lower, names)
    if len(found) != 1 or (is_point and len(names) > 2):
        raise unknown_label(place, found if len(found) > 1 else names)
    if found[0] not in names:
        raise DataError(f"{place}: no {given!r} for the label. Expected one of {show_names(names)}.")
    return found[0]


def has_arrays(place: str) -> bool:
    """Return whether a Parquet file has records as they are, of arrays, not a table."""
    return "no column of fixed-size binary" not in str(_refusal(place, "parquet", {}))


def _refusal(place: str, backend: str, options: Mapping[str, Any]) -> DataError | None:
    """Return why a file has no records as they are; None if it has."""
    try:
        with open_store(place, backend, **options):
            return None
    except DataError as error:
        return error


def reading_of(place: str, backend: str, label: str) -> tuple[str, dict[str, Any]]:
    """Return the format of records, and the keys of ``store_conf`` that it takes to read them.

    Raises
    ------
    DataError
        There is no such label, or it is not clear which field is the label.
    """
    if backend == "parquet" and is_of_images(place) and _has_images_of_many_sizes(place, "image-parquet"):
        return "image-parquet", {"resize": [SIDE, SIDE], "channels": 3, **_named(backend, label)}
    if backend in ("image-folder", "image-list"):
        return backend, _size_of_images(place, backend)
    if backend == "webdataset":
        return backend, _pictures_of_tar(place, label)
    if backend == "jsonl":
        return backend, _keys_of_lines(place, shard_urls(place)[0] if is_pattern(place) else place, label)
    return backend, _named(backend, label)


def _named(backend: str, label: str) -> dict[str, Any]:
    """Return the keys that name the label, if it has a name."""
    if label and "label" not in inspect.signature(STORES.find(backend)).parameters:
        raise DataError(f"--label {label}: records of {backend} have at most one label, which has no name.")
    return {"user_conf": {"label": label}} if label else {}


def _separator_of(place: str) -> str:
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


def is_of_images(place: str) -> bool:
    """Tell whether a Parquet file has pictures of Hugging Face."""
    with contextlib.suppress(DataError), open_store(place, "image-parquet"):
        return True
    return False


def _pictures_of_tar(place: str, given: str) -> dict[str, Any]:
    """Choose where a tar has its labels, in .cls or in .json files, and a size if its pictures have several."""
    found = []
    with open_store(place, "webdataset") as store:
        has_label = "label" in store.schema and not given
    for name in () if has_label else [given] if given else LABEL_NAMES:
        try:
            with open_store(place, "webdataset", label=f"json.{name}"):
                found.append(name)
        except DataError as error:
            if "has no key" not in str(error):
                raise DataError(
                    f"{error} Expected whole numbers from 0 on. For text write a job file with user_conf: "
                    f"{{label: json.{name}, classes: [names of the classes]}}."
                ) from error
    if len(found) > 1:
        raise unknown_label(place, found)
    options = {"label": f"json.{found[0]}"} if found else {}
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
