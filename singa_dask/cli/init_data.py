"""Inspection of data for ``init``: shape, range of values, classes, test set."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.data import Store, detect, fs, open_store
from singa_dask.data.codecs.image import image_size
from singa_dask.data.codecs.vocabulary import decode_text, vocabulary_of
from singa_dask.data.stores.opening import is_pattern
from singa_dask.data.stores.shards import shard_urls
from singa_dask.errors import DataError

__all__ = ["Records", "Text", "survey"]

TEST_NAMES = ("test", "t10k", "val", "valid", "validation", "dev")
TABLES = ("csv", "textfile")
PACKED_TABLES = (".csv.gz", ".tsv.gz")
# least height and width of an image for a convolutional net
MIN_SIDE = 12
MAX_CHANNELS = 4
# image files are scaled to this unless all that are looked at have one size, of at most MAX_SIDE
SIDE, MAX_SIDE = 64, 96
MAX_IMAGES = 64
# blocks of a store that are read for its labels
MAX_BLOCKS = 256
# numbers from 0 to 255 are as bytes if they reach this
MIN_BYTE_RANGE = 100


@dataclass(frozen=True)
class Text:
    """A text.

    Attributes
    ----------
    url : str
        As the user gave it.
    n_characters, n_distinct : int
        How many characters it has, and how many different ones.
    """

    url: str
    n_characters: int
    n_distinct: int


@dataclass(frozen=True)
class Records:
    """Records with labels.

    Attributes
    ----------
    url, test_url : str
        As the user gave it, or below it; ``test_url`` is empty if there is no test set.
    backend : str
        Format.
    shape : tuple of int
        Of one record, as ``store_conf.shape`` has it: images are (channels, height, width).
    is_image : bool
    n_records, n_test, n_classes : int
    class_names : tuple of str
        Empty if classes have no names.
    values : {"bytes", "small", "columns", "any"}
        Numbers from 0 to 255; from -1 to 1; columns of their own ranges each; anything else.
    mean, std : float
        Of all values that were looked at.
    reading : dict
        Other keys of ``store_conf`` that it takes to read the records.
    """

    url: str
    test_url: str
    backend: str
    shape: tuple[int, ...]
    is_image: bool
    n_records: int
    n_test: int
    n_classes: int
    class_names: tuple[str, ...]
    values: str
    mean: float
    std: float
    reading: Mapping[str, Any] = field(default_factory=dict)


def survey(url: str, test_url: str = "", backend: str = "", is_text: bool = False) -> Text | Records:
    """Look at data.

    Parameters
    ----------
    url : str
        A store, a directory with a training set in it, or a text.
    test_url : str
        Test set; looked for beside ``url`` if it is not given.
    backend : str
        Format; found from the file if it is not given.
    is_text : bool
        Take it as text in any case.

    Raises
    ------
    DataError
        It cannot be read, or has no labels to learn.
    """
    if not is_text:
        url, found, kind = find_sets(url.rstrip("/") or "/")
        backend = backend or kind or _format(url)
        if backend:
            return _survey_records(url, test_url or found, backend)
    place = fs.absolute(url)
    if not is_text and url.lower().endswith(PACKED_TABLES):
        raise DataError(f"{url}: a packed table. Expected a file as it is. Unpack it by gunzip.")
    if url.lower().endswith(".npy"):
        raise DataError(f"{url}: one array has no labels. Write both: numpy.savez('train.npz', images=x, labels=y).")
    text = decode_text(place)
    return Text(url, len(text), len(vocabulary_of(text)))


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
        if _is_there(fs.absolute(other)):
            return other
    return ""


def _is_there(url: str) -> bool:
    if not is_pattern(url):
        return fs.exists(url)
    try:
        return bool(shard_urls(url))
    except DataError:
        return False


def _format(url: str) -> str:
    """Return the format of a store, empty if it is a text."""
    place = fs.absolute(url)
    if is_pattern(url):
        return _format(shard_urls(place)[0])
    backend = detect(place) or ""
    if backend in TABLES and not url.lower().endswith((".csv", ".tsv")):
        try:
            with open_store(place, backend, separator=_separator(place)) as store:
                store.read_block(0)
        except DataError:
            return ""
    if not backend and fs.is_dir(place):
        raise DataError(f"{url}: no store of records, and no folder of pictures or with a training set in it.")
    return backend


# -- what is in it --------------------------------------------------------------------------------------


def _survey_records(url: str, test_url: str, backend: str) -> Records:
    place = fs.absolute(url)
    reading: dict[str, Any] = {}
    if backend in TABLES:
        reading = {"separator": ";"} if _separator(place) == ";" else {}
    elif backend in ("image-folder", "image-list"):
        reading = _size_of_images(place, backend)
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in reading.items()
    }
    with open_store(place, backend, **options) as store:
        if "label" not in store.schema:
            raise DataError(f"{url}: the records have no labels. Expected some: a net of init learns classes.")
        values = store.schema.get("data") or store.schema["pixel"]
        shape, is_image = _shape(values.shape, reading)
        n_records, names = store.count, store.class_names
        top, lowest, kind, mean, std = _scan(store, url, is_image)
    if lowest < 0:
        raise DataError(f"{url}: label {lowest}. Expected labels from 0 on, a number for each class.")
    n_test = 0
    if test_url:
        with open_store(fs.absolute(test_url), backend, **options) as store:
            n_test = store.count
    n_classes = max(len(names), top + 1, 2)
    return Records(
        url, test_url, backend, shape, is_image, n_records, n_test, n_classes, names, kind, mean, std, reading
    )


def _separator(place: str) -> str:
    head = fs.read_bytes(place, 0, min(1 << 12, fs.size(place))).partition(b"\n")[0]
    return ";" if b";" in head and b"," not in head else ","


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


def _shape(stored: tuple[int, ...], reading: dict[str, Any]) -> tuple[tuple[int, ...], bool]:
    """Return the shape of a record for a job, and whether it is an image; note in ``reading`` if axes move."""
    if len(stored) == 2 and min(stored) >= MIN_SIDE:
        return (1, *stored), True
    if len(stored) == 3 and stored[0] <= MAX_CHANNELS and min(stored[1:]) >= MIN_SIDE:
        return stored, True
    if len(stored) == 3 and stored[2] <= MAX_CHANNELS and min(stored[:2]) >= MIN_SIDE:
        reading["layout"] = "NHWC"
        return (stored[2], *stored[:2]), True
    return stored or (1,), False


def _scan(store: Store, url: str, is_image: bool) -> tuple[int, int, str, float, float]:
    """Look at blocks; return highest and lowest label, kind of values, and their mean and standard deviation."""
    if store.class_names and "pixel" in store.schema:
        return len(store.class_names) - 1, 0, "bytes", 0.0, 1.0
    n = len(store.blocks)
    top, lowest, kinds, moments = 0, 0, set[str](), []
    for block in np.linspace(0, n - 1, min(n, MAX_BLOCKS)).astype(int).tolist():
        arrays = store.read_block(block)
        top, lowest = max(top, int(arrays["label"].max())), min(lowest, int(arrays["label"].min()))
        if "pixel" in arrays:
            continue
        values = arrays["data"]
        if not np.isfinite(values).all():
            raise DataError(f"{url}: nan or inf in block {block}. Expected numbers: leave out or fill in such values.")
        kinds.add(_kind(values, is_image))
        moments.append((values.mean(dtype=np.float64), values.var(dtype=np.float64)))
    if not moments:
        return top, lowest, "bytes", 0.0, 1.0
    mean, variance = np.mean(moments, axis=0)
    kind = kinds.pop() if len(kinds) == 1 else "any" if is_image else "columns"
    return top, lowest, kind, float(mean), float(np.sqrt(variance)) or 1.0


def _kind(values: np.ndarray[Any, Any], is_image: bool) -> str:
    low, high = values.min(), values.max()
    if low >= 0 and MIN_BYTE_RANGE <= high <= 255 and (values == values.round()).all():
        return "bytes"
    if low >= -1 and high <= 1:
        return "small"
    return "any" if is_image else "columns"
