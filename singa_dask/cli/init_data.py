"""Where the data of ``init`` are, with a test set beside them, and of which format: a table, other records, a text."""

from __future__ import annotations

import contextlib
import csv
import posixpath
from collections.abc import Sequence

from singa_dask.cli.init_arrays import is_table, survey_arrays
from singa_dask.cli.init_columns import head_lines, separator_of
from singa_dask.cli.init_records import Options, Records, Text
from singa_dask.cli.init_tables import survey_table
from singa_dask.data import detect, fs
from singa_dask.data.codecs.image import IMAGE_SUFFIXES
from singa_dask.data.codecs.table_columns import is_number
from singa_dask.data.codecs.vocabulary import decode_text, vocabulary_of
from singa_dask.data.stores.opening import is_pattern, shard_urls
from singa_dask.data.stores.store import backends_holding
from singa_dask.errors import DataError

TEST_NAMES = ("test", "t10k", "val", "valid", "validation", "dev")
TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
TABLE_LINES = 20


def survey(url: str, options: Options, folder: str) -> Text | Records:
    """Look at data.

    Parameters
    ----------
    url : str
        A store, a directory with a training set in it, or a text.
    options : Options
        A net of characters takes any data as a text.
    folder : str
        Where to write a test set, and the rest to train on.

    Raises
    ------
    UnsureError
        Two readings are likely.
    DataError
        It cannot be read, or has no labels to learn.
    """
    if options.net != "char-rnn":
        url, beside, kind = find_sets(url.rstrip("/") or "/")
        test_url, backend = options.test or beside, options.backend or kind or _format_of(url)
        holds_text = backend == "table" or backend in backends_holding("text")
        if holds_text or (backend == "parquet" and is_table(url)):
            return survey_table(url, test_url, backend, options, folder)
        if backend:
            return survey_arrays(url, test_url, backend, options, folder)
    try:
        text = decode_text(url)
    except DataError as error:
        if options.net == "char-rnn" or "not UTF-8 text" not in str(error):
            raise
        raise DataError(f"{error} Nor is it of a format that is known.") from None
    return Text(url, len(text), len(vocabulary_of(text)))


def find_sets(url: str) -> tuple[str, str, str]:
    """Return URL of the training set, URL of the test set (empty if there is none), and format (empty if not known)."""
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
            if _is_there(each):
                return each
    return ""


def _is_there(url: str) -> bool:
    with contextlib.suppress(DataError):
        return bool(shard_urls(url)) if is_pattern(url) else fs.exists(url)
    return False


def _format_of(url: str) -> str:
    """Return the format of a store, empty if it is a text."""
    if is_pattern(url):
        return _format_of(shard_urls(url)[0])
    backend = detect(url) or ""
    if not backend and fs.is_dir(url):
        raise DataError(
            f"{url}: no store of records, and no folder of pictures or with a training set in it. Name a file."
        )
    if backend and backend not in backends_holding("text"):
        return backend
    lines = head_lines(url)[:TABLE_LINES]
    if lines and all(map(_names_image, lines)):
        return "image-list"
    return "csv" if url.lower().endswith(TABLE_SUFFIXES) or _has_columns(lines, url) else ""


def _names_image(line: str) -> bool:
    """Tell whether a line names a picture, and its label."""
    name, _, label = line.strip().rpartition("\t" if "\t" in line else " ")
    return bool(label) and name.strip().lower().endswith(IMAGE_SUFFIXES)


def _has_columns(lines: Sequence[str], url: str) -> bool:
    """Tell whether lines have the same number of fields, and numbers below each other: only numbers between blanks."""
    separator = separator_of(lines)
    rows = list(csv.reader(lines, delimiter=separator))
    if len(rows) < 3 or len({len(row) for row in rows}) != 1 or len(rows[0]) == 1:
        return False
    numeric = [all(map(is_number, column)) for column in zip(*rows[1:], strict=True)]
    return all(numeric) if separator == " " else any(numeric) or url.lower().endswith(".data")
