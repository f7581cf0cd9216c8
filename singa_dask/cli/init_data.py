"""Inspection of data for ``init``: shape, range of values, classes, test set."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.cli.findings import Ids, label_findings
from singa_dask.cli.init_tables import (
    MAX_BLOCKS,
    UnknownLabelError,
    choose_columns,
    describe_left_out,
    reading_of,
    separator_of,
    target_statistics,
)
from singa_dask.data import Store, detect, fs, open_store
from singa_dask.data.codecs.image import IMAGE_SUFFIXES
from singa_dask.data.codecs.vocabulary import decode_text, vocabulary_of
from singa_dask.data.stores.opening import is_pattern, shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.errors import DataError

__all__ = ["Records", "Text", "survey"]

TEST_NAMES = ("test", "t10k", "val", "valid", "validation", "dev")
PACKED_TABLES = (".csv.gz", ".tsv.gz")
# least height and width of an image for a convolutional net
MIN_SIDE = 12
MAX_CHANNELS = 4
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
        No classes: a number is to be predicted, the column ``target`` in ``reading``.
    class_names : tuple of str
        Empty if classes have no names.
    values : {"bytes", "small", "columns", "any"}
        Numbers from 0 to 255; from -1 to 1; columns of their own ranges each; anything else.
    mean, std : float
        Of all values that were looked at.
    reading : dict
        Other keys of ``store_conf`` that it takes to read the records.
    target_mean, target_std : float
        Of the numbers to predict, if there are no classes.
    left_out : str
        Columns of a table that are not read, and why.
    trouble : tuple of str
        What is likely wrong with labels, and features with another whole number in each record.
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
    target_mean: float = 0.0
    target_std: float = 1.0
    left_out: str = ""
    trouble: tuple[str, ...] = ()


def survey(url: str, test_url: str = "", backend: str = "", is_text: bool = False, label: str = "") -> Text | Records:
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
    label : str
        Column, key or array with the label, or what to predict; found by its name if it is not given.

    Raises
    ------
    DataError
        It cannot be read, or has no labels to learn.
    """
    if not is_text:
        url, found, kind = find_sets(url.rstrip("/") or "/")
        backend = backend or kind or _format(url)
        if backend:
            return _survey_records(url, test_url or found, backend, label)
    place = fs.absolute(url)
    if not is_text and url.lower().endswith(PACKED_TABLES):
        raise DataError(f"{url}: a packed table. Expected a file as it is. Unpack it by gunzip.")
    if not is_text and url.lower().endswith(".json"):
        lines = "Write its records as JSON lines, one object a line, in a file .jsonl"
        raise DataError(f"{url}: JSON. {lines}; --net char-rnn takes it as a text.")
    try:
        text = decode_text(place)
    except DataError as error:
        if is_text or "not UTF-8 text" not in str(error):
            raise
        raise DataError(f"{error} Nor is it of a format that is known.") from None
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


def _format(url: str) -> str:
    """Return the format of a store, empty if it is a text."""
    place = fs.absolute(url)
    if is_pattern(url):
        return _format(shard_urls(place)[0])
    backend = detect(place) or ""
    if not fs.is_dir(place) and _lists_images(place):
        return "image-list"
    if backend in backends_holding("text") and not url.lower().endswith((".csv", ".tsv")):
        try:
            with open_store(place, backend, separator=separator_of(place)) as store:
                store.read_block(0)
        except DataError:
            return ""
    if not backend and fs.is_dir(place):
        raise DataError(
            f"{url}: no store of records, and no folder of pictures or with a training set in it. Name a file."
        )
    return backend


def _lists_images(place: str) -> bool:
    """Tell whether each of the first lines of a file names a picture, and its label."""
    lines = fs.read_bytes(place, 0, min(1 << 12, fs.size(place))).split(b"\n")[:-1]
    words = [line.split() for line in lines[:10]]
    return bool(words) and all(
        len(each) > 1 and each[0].lower().endswith(tuple(map(str.encode, IMAGE_SUFFIXES))) for each in words
    )


# -- what is in it --------------------------------------------------------------------------------------


def _survey_records(url: str, test_url: str, backend: str, label: str) -> Records:
    place = fs.absolute(url)
    backend, reading = reading_of(place, backend, label)
    tables = backends_holding("text")
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**reading, **reading.get("user_conf", {})}.items()
        if name != "user_conf"
    }
    columns, left_out = choose_columns(place, backend, options, label) if backend in (*tables, "parquet") else ({}, ())
    reading, options = {**reading, **columns}, {**options, **columns}
    opened = "table" if columns else backend
    with open_store(place, opened, **options) as store:
        if "label" not in store.schema and backend == "npy":
            raise DataError(
                f"{url}: one array has no labels. Write both: numpy.savez('train.npz', images=x, labels=y)."
            )
        if not {"label", "target"} & store.schema.keys() and store.other_fields:
            raise UnknownLabelError(url, store.other_fields)
        if not {"label", "target"} & store.schema.keys():
            raise DataError(f"{url}: the records have no labels. Expected some: a net of init learns classes.")
        values = store.schema.get("data") or store.schema["pixel"]
        shape, is_image = _shape(values.shape, reading)
        n_records, names, facts = store.count, store.class_names, store.table_facts
        ids = Ids({column.index: column.name for column in store.table_columns if column.field == "data"})
        labels, kind, mean, std, targets = _scan(store, url, is_image, ids)
    if min(labels, default=0) < 0:
        raise DataError(f"{url}: label {min(labels)}. Expected labels from 0 on, a number for each class.")
    trouble = label_findings(labels, names, n_records) if labels else []
    if like_ids := ids.found():
        said = "another whole number in each record, like ids. Take them out of features if they are"
        trouble.append(f"{like_ids}: {said}")
    n_test = 0
    if test_url:
        if facts is not None and opened == "table":
            options["facts"] = facts.to_dict()
        with open_store(fs.absolute(test_url), opened, **options) as store:
            n_test = store.count
            difference = store.table_facts.compare(facts) if facts and store.table_facts else ""
        if difference:
            raise DataError(f"{test_url}: {difference} in {url}. Expected the same columns in the same order.")
    n_classes = 0 if targets else max(len(names), max(labels, default=0) + 1, 2)
    target = target_statistics(targets) if targets else (0.0, 1.0)
    return Records(
        url,
        test_url,
        backend,
        shape,
        is_image,
        n_records,
        n_test,
        n_classes,
        names,
        kind,
        mean,
        std,
        reading,
        *target,
        describe_left_out(left_out),
        tuple(trouble),
    )


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


def _scan(
    store: Store, url: str, is_image: bool, ids: Ids
) -> tuple[Counter[int], str, float, float, list[np.ndarray[Any, Any]]]:
    """Look at blocks; return the number of each label, kind of values, their mean and deviation, and targets."""
    labels = Counter[int]()
    if store.class_names and "pixel" in store.schema:
        return labels, "bytes", 0.0, 1.0, []
    n = len(store.blocks)
    kinds, moments, targets = set[str](), [], []
    for block in np.linspace(0, n - 1, min(n, MAX_BLOCKS)).astype(int).tolist():
        arrays = store.read_block(block)
        if "target" in arrays:
            targets.append(arrays["target"])
        else:
            labels.update(arrays["label"].tolist())
        if "pixel" in arrays:
            continue
        values = arrays["data"]
        if not np.isfinite(values).all():
            raise DataError(f"{url}: nan or inf in block {block}. Expected numbers: leave out or fill in such values.")
        ids.add(values)
        kinds.add(_kind(values, is_image))
        moments.append((values.mean(dtype=np.float64), values.var(dtype=np.float64)))
    if not moments:
        return labels, "bytes", 0.0, 1.0, targets
    mean, variance = np.mean(moments, axis=0)
    kind = kinds.pop() if len(kinds) == 1 else "any" if is_image else "columns"
    return labels, kind, float(mean), float(np.sqrt(variance)) or 1.0, targets


def _kind(values: np.ndarray[Any, Any], is_image: bool) -> str:
    low, high = values.min(), values.max()
    if low >= 0 and MIN_BYTE_RANGE <= high <= 255 and (values == values.round()).all():
        return "bytes"
    if low >= -1 and high <= 1:
        return "small"
    return "any" if is_image else "columns"
