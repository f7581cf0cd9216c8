"""Survey data at a URL: find the test set, detect the format, and inspect the records."""

from __future__ import annotations

import contextlib
import csv
import json
import posixpath
from collections.abc import Sequence

from singa_dask import fs
from singa_dask.data.codecs.labels import labels_among
from singa_dask.data.stores import detect
from singa_dask.data.stores.images.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.stores.opening import no_store
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.data.stores.tables.table_files import table_files
from singa_dask.data.stores.texts.vocabulary import vocabulary_of
from singa_dask.data.tables.files.open_parts import open_part
from singa_dask.data.tables.spelling import is_number
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.fs.patterns import is_pattern
from singa_dask.survey.arrays import reading_fault, survey_arrays
from singa_dask.survey.csv_head import head_lines, separator_of
from singa_dask.survey.named_columns import is_position
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.results import RecordSurvey, TextSurvey
from singa_dask.survey.tables import survey_table

TEST_NAMES = ("test", "t10k", "val", "valid", "validation", "dev")
TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLE_LINES = 20


def survey(url: str, options: SurveyOptions, folder: str) -> TextSurvey | RecordSurvey:
    """Inspect data: a store, a directory with a training set, or a text.

    With ``--net char-rnn``, any data is read as a text.

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
        raise DataError(f"{error} Its format is unknown, too.") from None
    given = options.of_tables() or next((name for name in ("label", "separator", "test") if getattr(options, name)), "")
    if given:
        raise DataError(f"{url}: read as a text, for which --{given} is not. If it is a table, give --backend csv too.")
    return TextSurvey(url, len(text), len(vocabulary_of(text)))


def holds_table(url: str, backend: str, options: SurveyOptions, storage_options: fs.Options = None) -> bool:
    """Return whether data in a format are a table with named columns, or lines of numbers."""
    if backend == "jsonl":
        return bool(options.of_tables()) or _has_columns_of_texts(url, options.label, storage_options)
    if backend == "parquet":
        return bool(options.text) or is_table(url, ",".join(options.label), storage_options)
    return backend == "table" or backend in backends_holding("text")


def is_table(place: str, label: str = "", storage_options: fs.Options = None) -> bool:
    """Return whether a Parquet file is a table, not pictures or arrays."""
    fault = reading_fault(place, "parquet", label=label, storage_options=storage_options)
    if fault is None:
        return False
    if fault.wants("backend"):
        return reading_fault(place, "image-parquet", storage_options=storage_options) is not None
    is_unread = fault.wants("label") or fault.wants("features")
    if not is_unread:
        return False
    first = table_files(place, storage_options)[0].url
    return "vector" in open_part(first, "parquet", storage_options).kinds.values()


def _has_columns_of_texts(place: str, label: Sequence[str], storage_options: fs.Options = None) -> bool:
    """Return whether the first JSON line has values besides the label that are not numbers or lists.

    If the label is given by position, the result is true, too, because only tables have positions.
    """
    with contextlib.suppress(IndexError, ValueError, DataError):
        file = shard_urls(place, storage_options)[0] if is_pattern(place, storage_options) else place
        first = json.loads(head_lines(file, storage_options=storage_options)[0])
        if any(each not in first and is_position(each) for each in label):
            return True
        others = [value for key, value in first.items() if key not in (*label, *labels_among(list(first)))]
        return any(isinstance(value, bool) or not isinstance(value, (int, float, list)) for value in others)
    return False


def _several_texts(pattern: str) -> DataError:
    """Return the error for several texts, with a command that joins them or makes a table of them."""
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
        # if there are other folders, "train" may be the name of a class
        return url, _beside(url), ""
    inside = fs.join(url, train[0])
    return inside, _beside(inside), ""


def _is_test(name: str) -> bool:
    return any(name.lower().startswith(test) for test in TEST_NAMES)


def _beside(url: str) -> str:
    """Return the test set beside a training set: ``test.csv`` for ``train.csv``; empty without one."""
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
