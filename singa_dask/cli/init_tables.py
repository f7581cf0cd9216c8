"""How ``init`` reads records: keys of ``store_conf``, by what is in the files; of tables the columns."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.data import STORES, fs, open_store
from singa_dask.data.codecs.image import image_size
from singa_dask.data.codecs.labels import LABEL_NAMES, labels_among
from singa_dask.data.stores.class_names import show_names
from singa_dask.data.stores.opening import is_pattern, shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.data.stores.text import TextStore
from singa_dask.data.types import TableColumn
from singa_dask.errors import DataError

__all__ = [
    "MAX_BLOCKS",
    "UnknownLabelError",
    "choose_columns",
    "choose_label",
    "describe_left_out",
    "has_arrays",
    "reading_of",
    "separator_of",
    "target_statistics",
]

# strings with more different values than this are no categories
MAX_CATEGORIES = 50
# least number of records for each category, on average
MIN_RECORDS = 4
# columns of strings that are looked at
MAX_STRINGS = 50
# integers are to be predicted as numbers if there are more different ones than this, and many for the number of records
MAX_CLASSES = 100
# the label of lines of numbers without names
FIRST = "1"
# image files are scaled to this unless all that are looked at have one size, of at most MAX_SIDE
SIDE, MAX_SIDE = 64, 96
MAX_IMAGES = 64
# blocks of a store that are looked at
MAX_BLOCKS = 256


class UnknownLabelError(DataError):
    """It is not known which field is the label, or what to predict; ``names`` are those that could be."""

    def __init__(self, place: str, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"{place}: which field is the label? Give --label NAME, one of {show_names(names)}.")


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
        raise UnknownLabelError(place, found if len(found) > 1 else names)
    if found[0] not in names:
        raise DataError(f"{place}: no {given!r} for the label. Expected one of {show_names(names)}.")
    return found[0]


def choose_columns(
    place: str, backend: str, options: Mapping[str, Any], given: str
) -> tuple[dict[str, Any], tuple[TableColumn, ...]]:
    """Choose the columns of a table as keys of ``store_conf``; empty if it is records as they are.

    The index of pandas or Dask is neither a feature nor a label. ``given`` is the name of the label, or empty.

    Returns
    -------
    dict
    tuple of TableColumn
        The other columns, which are left out.

    Raises
    ------
    DataError
        It is neither.
    """
    if backend == "parquet" and has_arrays(place):
        return {}, ()
    refused = _refusal(place, backend, options)
    if not refused and not _has_header(place, backend, options):
        if given == FIRST:
            return {}, ()
        raise DataError(
            f"{place}: no line of column names, which would say where the label is. Write one, or give --label {FIRST} "
            "if the first number of a line is its label."
        )
    try:
        with open_store(place, "table", missing=0, has_label=False, **options) as store:
            named, count = [each for each in store.table_columns if each.name], store.count
        kinds = {each.name: each.kind for each in named if not each.is_index}
        usable = [name for name, kind in kinds.items() if kind in ("number", "boolean", "string")]
        label = choose_label(place, usable, given)
        outputs = _outputs(place, label, kinds[label], options)
        if not refused and label == named[0].name and "label" in outputs:
            # lines of numbers, the label first
            return {}, ()
        others = [name for name in usable if name != label]
        numbers = [name for name in others if kinds[name] != "string"]
        categories = _categories(place, [name for name in others if name not in numbers], count, options)
        columns = {"features": [name for name in others if name in numbers or name in categories], **outputs}
        if categories:
            columns["categories"] = categories
        with open_store(place, "table", missing="skip", **columns, **options) as store:
            if store.count != count:
                columns["missing"] = "mean"
        return columns, tuple(each for each in named if each.name not in (*columns["features"], label))
    except DataError as error:
        if "no columns of numbers" not in str(error):
            raise
        advice = "Text is read where a column of numbers is, too: as categories, or a label."
        raise DataError(f"{error} {advice}") from None


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


def _has_header(place: str, backend: str, options: Mapping[str, Any]) -> bool:
    with open_store(place, backend, **options) as store:
        first = store.parts[0]
        return isinstance(first, TextStore) and bool(first.names)


def _outputs(place: str, label: str, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a column is a label, whose values are classes, or a target."""
    if kind != "number":
        return {"label": label}
    with open_store(place, "table", features=[label], missing="skip", **options) as store:
        blocks = range(len(store.blocks))
        values = np.concatenate([store.read_block(block)["data"].ravel() for block in blocks])
    different = len(np.unique(values))
    are_many = different > MAX_CLASSES and different > len(values) / 10
    if are_many or (values != values.round()).any() or values.min() < 0:
        return {"target": [label]}
    return {"label": label}


def _categories(place: str, names: list[str], count: int, options: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the columns of strings that are categories: with the names, if some values are missing, else without."""
    found: dict[str, list[str]] = {}
    for name in names[:MAX_STRINGS]:
        try:
            with open_store(place, "table", features=[name], categories={name: []}, missing="skip", **options) as store:
                known = store.table_facts.categories[name] if store.table_facts else ()
                is_whole = store.count == count
            if 1 < len(known) <= min(MAX_CATEGORIES, count / MIN_RECORDS):
                found[name] = [] if is_whole else ["", *known]
        except DataError:
            # too many names
            continue
    return found


def target_statistics(values: list[np.ndarray[Any, Any]]) -> tuple[float, float]:
    """Return mean and standard deviation of a target, 1 if it is constant."""
    whole = np.concatenate(values).astype(np.float64)
    return float(whole.mean()), float(whole.std()) or 1.0


def describe_left_out(columns: Iterable[TableColumn]) -> str:
    """Return names of columns that are left out, and why each is."""
    return ", ".join(f"{' '.join(each.name.split())} ({_reason(each)})" for each in columns)


def _reason(column: TableColumn) -> str:
    if column.is_index:
        return "index"
    return "texts, not categories" if column.kind == "string" else column.kind


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
        raise UnknownLabelError(place, found)
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
