"""Find the data of ``init`` and their format, and inspect records of arrays and pictures."""

from __future__ import annotations

import contextlib
import csv
import json
import posixpath
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.data.codecs.columns import is_number
from singa_dask.data.codecs.labels import LABEL_NAMES, is_point, labels_among
from singa_dask.data.stores import STORES, Store, detect, open_store
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES, image_size
from singa_dask.data.stores.label_match import check_label, has_several_labels
from singa_dask.data.stores.messages.tfrecord import example_features
from singa_dask.data.stores.opening import no_store
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.data.stores.tables.open_parts import open_part
from singa_dask.data.stores.tables.table_files import table_files
from singa_dask.data.stores.texts.vocabulary import vocabulary_of
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.fs.patterns import is_pattern
from singa_dask.survey.columns import head_lines, separator_of
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.results import MIN_BYTE_RANGE, OutputSurvey, RecordSurvey, TextSurvey
from singa_dask.survey.split import count_test, split_store
from singa_dask.survey.statistics import MAX_SPARSE, FieldStatistics, Ids, label_findings
from singa_dask.survey.tables import survey_table
from singa_dask.wording import listed

# minimum height and width of an image for a convolutional net
MIN_SIDE = 12
MAX_CHANNELS = 4
# image files of several sizes are scaled to at most SIDE; if most have the same size of at most MAX_SIDE, to that size
SIDE, MAX_SIDE = 64, 96
# number of image files in a sample, and the largest share of them that may be scaled up
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
        raise DataError(
            f"{url}: --{extra.replace('_', '-')} is for tables with named columns, in CSV, Parquet, JSON or Excel."
        )
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
    """Raise a DataError if labels are no class numbers: if they are negative, or few and large."""
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
    return DataError(f"{url}: the records have {many} labels. Expected one of each: a net of init learns classes.")


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
    """Read blocks; return the count of each label, the kind of values, their mean and deviation."""
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


# -- options for reading records ------------------------------------------------------------------------


def _unknown_label(place: str, names: Sequence[str]) -> UnsureError:
    """Return the error for records with several fields that may be the label."""
    advice = f"Pass --label NAME, one of {listed(names)}."
    return UnsureError(place, "which field is the label?", [(name, {"label": (name,)}) for name in names], advice)


def _choose_label(place: str, names: Sequence[str], label: str) -> str:
    """Return the given label, or the only one of the names that means a label.

    Raises
    ------
    DataError
        There is no such field, or it is not clear which one it is.
    """
    candidates = [label] if label else labels_among(names)
    if len(candidates) != 1 or (not label and is_point(names)):
        raise _unknown_label(place, candidates if len(candidates) > 1 else names)
    if candidates[0] not in names:
        raise DataError(f"{place}: no {label!r} for the label. Expected one of {listed(names)}.")
    return candidates[0]


def is_table(place: str, label: str = "", storage_options: fs.Options = None) -> bool:
    """Return whether a Parquet file is a table, not pictures or arrays."""
    fault = _fault(place, "parquet", label=label, storage_options=storage_options)
    if fault is None:
        return False
    if fault.wants("backend"):
        return _fault(place, "image-parquet", storage_options=storage_options) is not None
    is_unread = fault.wants("label") or fault.wants("features")
    if not is_unread:
        return False
    first = table_files(place, storage_options)[0].url
    return "vector" in open_part(first, "parquet", storage_options).kinds.values()


def _fault(place: str, backend: str, n_blocks: int = 0, **options: Any) -> DataError | None:
    """Return the error with which a store, or one of its first blocks, fails to be read; else None."""
    try:
        with open_store(place, backend, **options) as store:
            for block in range(min(len(store.blocks), n_blocks)):
                store.read_block(block)
    except DataError as error:
        return error
    return None


def _reading_of(place: str, backend: str, label: str) -> tuple[str, dict[str, Any]]:
    """Return the format of records, and the keys of ``store_conf`` to read them."""
    has_images = backend == "parquet" and not _fault(place, "image-parquet")
    fault = _fault(place, "image-parquet", MAX_BLOCKS) if has_images else None
    if fault and fault.wants("resize"):
        return "image-parquet", {**_size_of_first(place, "image-parquet"), **_named(backend, label)}
    if backend in ("image-folder", "image-list"):
        return backend, _size_of_images(place, backend)
    if backend == "webdataset":
        return backend, _pictures_of_tar(place, label)
    if backend == "jsonl":
        return backend, _keys_of_lines(place, shard_urls(place)[0] if is_pattern(place) else place, label)
    fault = _fault(place, backend, label=label) if backend == "tfrecord" else None
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
    """Choose the labels of a tar, in .cls or .json files, and a size if its pictures have several."""
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
        fault = _fault(place, "webdataset", label=f"json.{name}")
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
    if "expected" in str(_fault(place, "webdataset", MAX_BLOCKS, **options)):
        reading |= _size_of_first(place, "webdataset", **options)
    return reading


def _size_of_first(place: str, backend: str, **options: Any) -> dict[str, Any]:
    """Choose size and channels for pictures of several sizes in one file, by the first picture alone."""
    with open_store(place, backend, **options) as store:
        side = min(SIDE, max(MIN_SIDE, min(store.schema["pixel"].shape[1:])))
        return {"resize": [side, side], "channels": 3}


def _keys_of_lines(place: str, file: str, named: str) -> dict[str, Any]:
    """Choose the keys of JSON lines without the usual names: numbers are features."""
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


def _has_columns_of_texts(place: str, label: Sequence[str], storage_options: fs.Options = None) -> bool:
    """Return whether the first JSON line has values besides the label that are not numbers or lists."""
    with contextlib.suppress(IndexError, ValueError, DataError):
        file = shard_urls(place, storage_options)[0] if is_pattern(place, storage_options) else place
        first = json.loads(head_lines(file, storage_options=storage_options)[0])
        others = [value for key, value in first.items() if key not in (*label, *labels_among(list(first)))]
        return any(isinstance(value, bool) or not isinstance(value, (int, float, list)) for value in others)
    return False


def _size_of_images(place: str, backend: str) -> dict[str, Any]:
    """Choose size and channels for image files from a sample of them."""
    with open_store(place, backend, resize=(SIDE, SIDE)) as store:
        numbers = np.linspace(0, store.count - 1, min(store.count, MAX_IMAGES)).astype(int)
        files = [store.record_files(int(i), int(i) + 1)[0] for i in numbers]
    shapes = [image_size(fs.read_bytes(file), file) for file in files]
    channels = 1 if all(size[0] == 1 for size in shapes) else 3
    return {"resize": list(choose_size([size[1:] for size in shapes])), "channels": channels}


def choose_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the height and width to which pictures of these sizes are scaled.

    It is the size of most pictures, or else a square. Few pictures, at most `MAX_SCALED_UP` of them, are scaled up:
    that costs time and adds no information.
    """
    size, n = Counter(sizes).most_common(1)[0]
    n_smaller = sum(each[0] < size[0] or each[1] < size[1] for each in sizes)
    if 2 * n >= len(sizes) and max(size) <= MAX_SIDE and n_smaller <= MAX_SCALED_UP * len(sizes):
        return size
    sides = sorted(map(min, sizes))
    side = min(SIDE, max(sides[int(MAX_SCALED_UP * len(sides))], MIN_SIDE))
    return side, side


TEST_NAMES = ("test", "t10k", "val", "valid", "validation", "dev")
TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLE_LINES = 20


def survey(url: str, options: SurveyOptions, folder: str) -> TextSurvey | RecordSurvey:
    """Inspect data: a store, a directory with a training set, or a text.

    A net of characters reads any data as a text.

    ``folder`` is where to write copies of training and test set.

    Raises
    ------
    UnsureError
        The data can be read in two ways.
    DataError
        The data cannot be read, or have no labels.
    """
    if options.net != "char-rnn":
        url, beside, kind = find_sets(url.rstrip("/") or "/")
        test_url, backend = options.test or beside, options.backend or kind or _format_of(url)
        if holds_table(url, backend, options):
            return survey_table(url, test_url, backend, options, folder)
        if backend:
            return survey_arrays(url, test_url, backend, options, folder)
    if is_pattern(url):
        raise _several_texts(url)
    try:
        text = decode_text(url)
    except DataError as error:
        if options.net == "char-rnn" or not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        raise DataError(f"{error} Nor is it of a known format.") from None
    given = options.of_tables() or next((name for name in ("label", "separator", "test") if getattr(options, name)), "")
    if given:
        raise DataError(f"{url}: read as a text, for which --{given} is not. If it is a table, give --backend csv too.")
    return TextSurvey(url, len(text), len(vocabulary_of(text)))


def holds_table(url: str, backend: str, options: SurveyOptions, storage_options: fs.Options = None) -> bool:
    """Return whether data of a format are a table with named columns, or lines of numbers."""
    if backend == "jsonl":
        return bool(options.of_tables()) or _has_columns_of_texts(url, options.label, storage_options)
    if backend == "parquet":
        return bool(options.text) or is_table(url, ",".join(options.label), storage_options)
    return backend == "table" or backend in backends_holding("text")


def _several_texts(pattern: str) -> DataError:
    """Return the error for several texts, with a command that joins them, or makes a table of them."""
    if not is_pattern(posixpath.dirname(pattern)):
        return DataError(
            f"{pattern}: several texts, of which one net of characters reads one. Join them: cat {pattern} > all.txt"
        )
    rows = "json.dumps({'text': open(f).read(), 'label': f.split('/')[-2]})"
    command = f'python -c "import glob, json; [print({rows}) for f in glob.glob({pattern!r})]" > texts.jsonl'
    return DataError(f"{pattern}: texts in folders. Write a table of them and pass --text text: {command}")


def find_sets(url: str) -> tuple[str, str, str]:
    """Return the URLs of training and test set, and the format; the latter two are empty if not found."""
    if is_pattern(url) or not fs.exists(url) or not fs.is_dir(url):
        return url, _beside(url), ""
    names = [name for name in fs.ls(url) if name[0] not in "._"]
    if "data_batch_1.bin" in names:
        test = fs.join(url, "test_batch.bin") if "test_batch.bin" in names else ""
        return fs.join(url, "data_batch_*.bin"), test, "cifar"
    train = [name for name in names if "train" in name.lower() and "label" not in name.lower()]
    others = [name for name in names if name not in train and not _is_test(name)]
    suffixes = {posixpath.splitext(name)[1] for name in train if name.startswith("train")}
    if len(train) > 1 and not others and len(suffixes) == 1:
        pattern = fs.join(url, f"train*{suffixes.pop()}")
        return pattern, _beside(pattern), ""
    if len(train) != 1 or any(fs.is_dir(fs.join(url, name)) for name in others):
        # next to other folders, "train" may be the name of a class
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
        # only one of the two files may be gzipped
        for each in (other, other.removesuffix(".gz") if other.endswith(".gz") else f"{other}.gz"):
            if _is_there(each):
                return each
    return ""


def _is_there(url: str) -> bool:
    with contextlib.suppress(DataError):
        return bool(shard_urls(url)) if is_pattern(url) else fs.exists(url)
    return False


def _format_of(url: str) -> str:
    """Return the format of a store; empty for a text."""
    if is_pattern(url):
        return _format_of(shard_urls(url)[0])
    backend = detect(url) or ""
    if not backend and fs.is_dir(url):
        for texts in (fs.join(url, "*.txt"), fs.join(url, "*", "*.txt")):
            if _is_there(texts):
                raise _several_texts(texts)
        raise no_store(url)
    if backend and backend not in backends_holding("text"):
        return backend
    lines = head_lines(url)[:TABLE_LINES]
    if lines and all(map(_names_image, lines)):
        return "image-list"
    return "csv" if url.lower().endswith(TABLE_SUFFIXES) or _has_columns(lines, url) else ""


def _names_image(line: str) -> bool:
    """Return whether a line has the name of a picture, and its label."""
    name, _, label = line.strip().rpartition("\t" if "\t" in line else " ")
    return bool(label) and name.strip().lower().endswith(IMAGE_SUFFIXES)


def _has_columns(lines: Sequence[str], url: str) -> bool:
    """Return whether lines are a table: all have the same number of fields, and a column contains numbers.

    If blanks separate the fields, every column must contain numbers.
    """
    separator = separator_of(lines)
    rows = list(csv.reader(lines, delimiter=separator))
    if len(rows) < 3 or len({len(row) for row in rows}) != 1 or len(rows[0]) == 1:
        return False
    numeric = [all(map(is_number, column)) for column in zip(*rows[1:], strict=True)]
    return all(numeric) if separator == " " else any(numeric) or url.lower().endswith(".data")
