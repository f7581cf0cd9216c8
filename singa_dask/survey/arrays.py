"""Survey records of arrays and pictures, which have no named columns."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.data.codecs.labels import LABEL_NAMES, is_point, labels_among
from singa_dask.data.stores import STORES, Store, open_store
from singa_dask.data.stores.images.image_decoding import image_size
from singa_dask.data.stores.label_match import check_label, has_several_labels
from singa_dask.data.stores.messages.tfrecord import example_features
from singa_dask.data.stores.shards import shard_urls
from singa_dask.errors import DataError
from singa_dask.fs.patterns import is_pattern
from singa_dask.survey.csv_head import head_lines
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.results import MIN_BYTE_RANGE, OutputSurvey, RecordSurvey
from singa_dask.survey.split import count_test, split_store
from singa_dask.survey.statistics import MAX_SPARSE, FieldStatistics, Ids, label_findings
from singa_dask.wording import listed

# minimum height and width of an image for a convolutional net
MIN_SIDE = 12
MAX_CHANNELS = 4
# image files of several sizes are scaled to a square of side SIDE or less; if most files have the same size, and it is
# at most MAX_SIDE, all are scaled to it
SIDE, MAX_SIDE = 64, 96
# number of image files in a sample, and the largest share of these files that may be scaled up
MAX_IMAGES, MAX_SCALED_UP = 64, 0.1
# maximum number of blocks that are read from a store
MAX_BLOCKS = 256


def survey_arrays(url: str, test_url: str, backend: str, options: SurveyOptions, folder: str) -> RecordSurvey:
    """Inspect records of a store without named columns.

    Raises
    ------
    UnsureError
        Several fields may be the label.
    DataError
        The records cannot be read, or have no labels.
    """
    label = options.label[0] if options.label else ""
    if extra := options.of_tables():
        option = extra.replace("_", "-")
        message = f"{url}: --{option} is for tables with named columns, in CSV, Parquet, JSON or Excel."
        # without this option, lists of numbers beside a label are read as arrays
        raise DataError(f"{message} Pass --backend table, too." if backend == "parquet" else message)
    if len(options.label) > 1:
        raise DataError(f"{url}: --label {' and '.join(options.label)}. Expected one label; tables may have several.")
    backend, reading = _reading_of(url, backend, label)
    keys: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**reading, **reading.get("user_conf", {})}.items()
        if name != "user_conf"
    }
    with open_store(url, backend, **keys) as store:
        check_label(store, label)
        if "label" not in store.schema or has_several_labels(store):
            raise _no_label(url, backend, store)
        values = store.schema.get("data") or store.schema["pixel"]
        shape, is_image = _shape(values.shape, reading)
        n_records, names, facts = store.count, store.class_names, store.table_facts
        ids = Ids({column.index: column.name for column in store.table_columns if column.field == "data"})
        labels, kind, mean, std = _scan(store, url, is_image, ids)
    _check_labels(url, labels, names)
    if len(names) == 1:
        raise DataError(f"{url}: all records are of one class, {names[0]!r}. Expected two classes at least.")
    trouble = label_findings(labels, names, n_records) if labels else []
    if backend == "parquet" and (others := [name for name in store.other_fields if name != store.label_name]):
        said = "not read, beside a column of lists. Pass --backend table to read all columns"
        trouble.append(f"{listed(others)}: {said}")
    if like_ids := ids.names():
        said = "a different whole number in each record, like ids. Remove them from features if they are"
        trouble.append(f"{like_ids}: {said}")
    n_classes = max(len(names), max(labels, default=0) + 1, 2)
    counts = tuple(labels[i] for i in range(n_classes))
    why = {"image-folder": "by folder", "image-list": "by the list"}.get(backend, "by the format")
    output = OutputSurvey(label or "label", "given" if label else why, counts, names)
    n_test, _, largest = count_test(test_url, backend, keys, facts, url, output) if test_url else (0, 0, 0.0)
    records = RecordSurvey(
        source=url,
        url=url,
        backend=backend,
        shape=shape,
        outputs=(output,),
        n_records=n_records,
        seed=options.seed,
        values=kind,
        test_url=test_url,
        n_test=n_test,
        largest=largest,
        is_image=is_image,
        mean=mean,
        std=std,
        reading=reading,
        trouble=trouble,
        form=backend,
    )
    return records if test_url or not options.test_split else split_store(records, store, options, folder)


def _check_labels(url: str, labels: Counter[int], names: Sequence[str]) -> None:
    """Raise a DataError if labels are not class numbers, because they are negative, or few but large."""
    low, high = min(labels, default=0), max(labels, default=0)
    # if there are nearly as many labels as records, the labels look like ids, which is only a warning
    is_sparse = not names and high >= max(MAX_SPARSE * len(labels), 100) and 2 * len(labels) <= labels.total()
    if low < 0 or is_sparse:
        raise DataError(
            f"{url}: label {min(low, 0) or high}. Expected labels from 0 on, a number for each of {len(labels)} "
            "classes. numpy.unique(labels, return_inverse=True) returns the classes and such numbers."
        )


def _no_label(url: str, backend: str, store: Store) -> DataError:
    if backend == "npy":
        return DataError(f"{url}: one array has no labels. Write both: numpy.savez('train.npz', images=x, labels=y).")
    if backend == "image-folder":
        return DataError(
            f"{url}: pictures, but no folders of classes. Move each picture into a folder that has the name of its "
            "class, or write lines of NAME LABEL to a .txt file beside them, and pass that file to init."
        )
    if store.other_fields:
        return _unknown_label(url, store.other_fields)
    many = "several" if "label" in store.schema else "no"
    expected = "Expected one label for each record, because a net of init learns classes."
    return DataError(f"{url}: the records have {many} labels. {expected}")


def _shape(stored: tuple[int, ...], reading: dict[str, Any]) -> tuple[tuple[int, ...], bool]:
    """Return the shape of a record, and whether it is an image; set the layout in ``reading`` if needed."""
    if len(stored) == 2 and min(stored) >= MIN_SIDE:
        return (1, *stored), True
    if len(stored) == 3 and stored[0] <= MAX_CHANNELS and min(stored[1:]) >= MIN_SIDE:
        return stored, True
    if len(stored) == 3 and stored[2] <= MAX_CHANNELS and min(stored[:2]) >= MIN_SIDE:
        reading["layout"] = "NHWC"
        return (stored[2], *stored[:2]), True
    return stored or (1,), False


def _scan(store: Store, url: str, is_image: bool, ids: Ids) -> tuple[Counter[int], str, float, float]:
    """Read blocks; return the count of each label, and kind, mean and deviation of the values."""
    labels, n = Counter[int](), len(store.blocks)
    blocks: Sequence[int] = np.linspace(0, n - 1, min(n, MAX_BLOCKS)).astype(int).tolist()
    if "pixel" in store.schema:
        if store.class_names:
            # if the classes are known, do not decode images to count them
            blocks = range(n) if store.reads_labels_alone else () if store.holds == "images" else blocks
        for block in blocks:
            labels.update(store.read_labels(block).tolist())
        return labels, "bytes", 0.0, 1.0
    statistics, is_whole = FieldStatistics(store.schema["data"]), True
    for block in blocks:
        arrays = store.read_block(block)
        labels.update(arrays["label"].tolist())
        values = arrays["data"]
        if not np.isfinite(values).all():
            raise DataError(f"{url}: nan or inf in block {block}. Expected numbers: leave out or fill in such values.")
        ids.add(values)
        statistics.add(values)
        is_whole = is_whole and bool((values == values.round()).all())
    low, high, kind = statistics.low.min(), statistics.high.max(), "any" if is_image else "columns"
    if is_whole and low >= 0 and MIN_BYTE_RANGE <= high <= 255:
        kind = "bytes"
    elif low >= -1 and high <= 1:
        kind = "small"
    variance = statistics.variance.mean() + statistics.mean.var()
    return labels, kind, float(statistics.mean.mean()), float(np.sqrt(variance)) or 1.0


def _unknown_label(place: str, names: Sequence[str]) -> UnsureError:
    """Return the error for records with several fields that may be the label."""
    advice = f"Pass --label NAME, one of {listed(names)}."
    return UnsureError(place, "which field is the label?", [(name, {"label": (name,)}) for name in names], advice)


def _choose_label(place: str, names: Sequence[str], label: str) -> str:
    """Return the given label, or else the only field whose name means a label.

    Raises
    ------
    DataError
        There is no such field, or several fields may be the label.
    """
    candidates = [label] if label else labels_among(names)
    if len(candidates) != 1 or (not label and is_point(names)):
        raise _unknown_label(place, candidates if len(candidates) > 1 else names)
    if candidates[0] not in names:
        raise DataError(f"{place}: no {label!r} for the label. Expected one of {listed(names)}.")
    return candidates[0]


def _reading_of(place: str, backend: str, label: str) -> tuple[str, dict[str, Any]]:
    """Return the format of records, and the keys of ``store_conf`` to read them."""
    has_images = backend == "parquet" and not reading_fault(place, "image-parquet")
    fault = reading_fault(place, "image-parquet", MAX_BLOCKS) if has_images else None
    if fault and fault.wants("resize"):
        return "image-parquet", {**_size_of_first(place, "image-parquet"), **_named(backend, label)}
    if backend in ("image-folder", "image-list"):
        return backend, _size_of_images(place, backend)
    if backend == "webdataset":
        return backend, _pictures_of_tar(place, label)
    if backend == "jsonl":
        return backend, _keys_of_lines(place, shard_urls(place)[0] if is_pattern(place) else place, label)
    fault = reading_fault(place, backend, label=label) if backend == "tfrecord" else None
    if fault is not None and fault.wants("features"):
        found = example_features(shard_urls(place)[0] if is_pattern(place) else place)
        chosen = _choose_label(place, list(found), label)
        numbers = [name for name, has_numbers in found.items() if has_numbers and name != chosen]
        return backend, {"user_conf": {"features": numbers, "label": chosen}}
    return backend, _named(backend, label)


def _named(backend: str, label: str) -> dict[str, Any]:
    """Return the keys for the name of the label, if it has one."""
    if label and "label" not in STORES.find(backend).option_names():
        raise DataError(f"--label {label}: records of {backend} have at most one label, which has no name.")
    return {"user_conf": {"label": label}} if label else {}


def _pictures_of_tar(place: str, label: str) -> dict[str, Any]:
    """Choose the labels of a tar (.cls or .json files), and a size if its pictures differ in size."""
    keys, has_json = [], True
    with open_store(place, "webdataset") as store:
        has_label = "label" in store.schema and not label
    with contextlib.suppress(DataError), open_store(place, "webdataset", label=f"json.{LABEL_NAMES[0]}") as store:
        has_json = "label" in store.schema
    if not (has_label or has_json):
        raise DataError(
            f"{place}: its pictures have no labels. A tar has the label of NAME.jpg in NAME.cls or NAME.json. Extract "
            "a tar that has a folder of pictures for each class, and give the folder."
        )
    for name in () if has_label else [label] if label else LABEL_NAMES:
        fault = reading_fault(place, "webdataset", label=f"json.{name}")
        if fault is None:
            keys.append(name)
        elif not fault.wants("label"):
            raise DataError(
                f"{fault} Expected whole numbers from 0 on. For text write a job file with user_conf: "
                f"{{label: json.{name}, classes: [names of the classes]}}."
            )
    if len(keys) > 1:
        raise _unknown_label(place, keys)
    options = {"label": f"json.{keys[0]}"} if keys else {}
    reading: dict[str, Any] = {"user_conf": options} if options else {}
    if "expected" in str(reading_fault(place, "webdataset", MAX_BLOCKS, **options)):
        reading |= _size_of_first(place, "webdataset", **options)
    return reading


def _size_of_first(place: str, backend: str, **options: Any) -> dict[str, Any]:
    """Choose size and channels for a file of pictures that differ in size, from its first picture alone."""
    with open_store(place, backend, **options) as store:
        side = min(SIDE, max(MIN_SIDE, min(store.schema["pixel"].shape[1:])))
        return {"resize": [side, side], "channels": 3}


def _keys_of_lines(place: str, file: str, named: str) -> dict[str, Any]:
    """Choose label and features of JSON lines whose keys have no usual names; numbers become features."""
    with contextlib.suppress(DataError), open_store(place, "jsonl", label=named) as store:
        if "label" in store.schema:
            return {"user_conf": {"label": named}} if named else {}
    try:
        first = json.loads(head_lines(file)[0])
    except (IndexError, ValueError):
        return {}
    if not isinstance(first, dict) or len(first) < 2:
        return {}
    chosen = _choose_label(place, list(first), named)
    numbers = [key for key, value in first.items() if key != chosen and isinstance(value, (int, float))]
    return {"user_conf": {"features": numbers, "label": chosen}} if numbers else {}


def _size_of_images(place: str, backend: str) -> dict[str, Any]:
    """Choose size and channels for image files from a sample of the files."""
    with open_store(place, backend, resize=(SIDE, SIDE)) as store:
        numbers = np.linspace(0, store.count - 1, min(store.count, MAX_IMAGES)).astype(int)
        files = [store.record_files(int(i), int(i) + 1)[0] for i in numbers]
    shapes = [image_size(fs.read_bytes(file), file) for file in files]
    channels = 1 if all(size[0] == 1 for size in shapes) else 3
    return {"resize": list(choose_size([size[1:] for size in shapes])), "channels": channels}


def choose_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the height and width to which pictures of these sizes are scaled.

    The result is the size of most pictures, or else a square. At most the share `MAX_SCALED_UP` of the pictures is
    scaled up, because scaling up costs time and adds no information.
    """
    size, n = Counter(sizes).most_common(1)[0]
    n_smaller = sum(each[0] < size[0] or each[1] < size[1] for each in sizes)
    if 2 * n >= len(sizes) and max(size) <= MAX_SIDE and n_smaller <= MAX_SCALED_UP * len(sizes):
        return size
    sides = sorted(map(min, sizes))
    side = min(SIDE, max(sides[int(MAX_SCALED_UP * len(sides))], MIN_SIDE))
    return side, side


def reading_fault(place: str, backend: str, n_blocks: int = 0, **options: Any) -> DataError | None:
    """Return the error raised by opening a store and reading its first blocks; None if both succeed."""
    try:
        with open_store(place, backend, **options) as store:
            for block in range(min(len(store.blocks), n_blocks)):
                store.read_block(block)
    except DataError as error:
        return error
    return None
