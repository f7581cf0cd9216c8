"""The files of a table that pandas, Spark, Dask or Hive wrote, and their format.

A directory named ``key=value`` adds the column ``key`` to the files in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.columns import as_spelled, is_number
from singa_dask.data.stores.arrow.columnar import ARROW_MAGIC, PARQUET_SUFFIXES, is_columnar
from singa_dask.data.stores.arrow.parquet import PARQUET_MAGIC
from singa_dask.data.stores.hugging_face import README, name_sets, saved_files
from singa_dask.data.stores.lakes import refuse_lake
from singa_dask.data.stores.shards import check_splits, shard_urls
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import MARK_BYTES, refuse_compressed
from singa_dask.fs.patterns import is_pattern

WHOLE_SUFFIXES = (".json", ".json.gz", ".xlsx")
JSON_LINES = (".jsonl", ".ndjson")
CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".data")
PACKED = ".gz"
# formats whose records are ranges of text
LINES = ("csv", "jsonl")
# directory in which Spark's unfinished tasks write
UNFINISHED = "_temporary"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MAX_DEPTH = 16
DIGITS = re.compile(r"(\d+)")
Keys = tuple[tuple[str, str | None], ...]


class TableFile(NamedTuple):
    """A file, and the columns from names of its directories: name and value, None for a missing value."""

    url: str
    keys: Keys = ()


def table_files(url: str, storage_options: fs.Options = None) -> list[TableFile]:
    """Return the files of a table, sorted by name, with numbers in names by value.

    In a directory, README.md, empty files, and names that begin with ``_`` or ``.`` are left out. Directories named
    ``key=value`` become columns if they are inside the directory, or if a pattern matches them. See `with_outer_keys`
    for directories above it.

    Raises
    ------
    DataError
        There are no files, or the directory is incomplete.
    """
    if is_pattern(url, storage_options):
        files = [TableFile(each) for each in sorted(shard_urls(url, storage_options), key=_natural)]
        pattern_parts = url.split("/")
        return _alike(url, [TableFile(each.url, _keys(each.url, pattern_parts)) for each in files])
    if not fs.exists(url, storage_options):
        raise fs.no_file(url, storage_options)
    if not fs.is_dir(url, storage_options):
        return [TableFile(url)]
    saved = saved_files(url, fs.ls(url, storage_options), storage_options)
    files = [TableFile(each) for each in saved] or _inside(url.rstrip("/"), (), storage_options)
    if not files:
        raise DataError(f"{url}: this directory has no files of a table.")
    check_splits(url, [each.url for each in files], is_dir=True)
    return _alike(url, files)


def with_outer_keys(
    files: Sequence[TableFile], wanted: Collection[str], names: Callable[[], Collection[str]]
) -> list[TableFile]:
    """Add wanted columns from the names of directories above the table, if the files lack them.

    So a single directory of a partitioned table, or a file in it, is read in the same way as the whole table. Names of
    these columns are spelled as in ``wanted``; see `as_spelled`.

    Parameters
    ----------
    files : sequence of TableFile
    wanted : collection of str
        Columns that the caller names.
    names : callable
        Function that returns the columns in the files. Called only if the name of a directory has a wanted column.
    """
    outer = [dict(_spelled((*outer_keys(each).items(),), wanted, each.url)) for each in files]
    files = [each._replace(keys=_spelled(each.keys, wanted, each.url)) for each in files]
    added = [name for name in outer[0] if name in wanted and all(name in each for each in outer)]
    added = [name for name in added if name not in names()] if added else []
    return [
        each._replace(keys=(*((name, keys[name]) for name in added), *each.keys))
        for each, keys in zip(files, outer, strict=True)
    ]


def outer_keys(file: TableFile) -> dict[str, str | None]:
    """Return the columns, with values, from names of directories above a file's table."""
    keys = dict(file.keys)
    return {name: value for name, value in _spelled(_keys(file.url, ()), keys, file.url) if name not in keys}


def _spelled(keys: Keys, wanted: Collection[str], url: str) -> Keys:
    """Return columns from names of directories, with column names spelled as in ``wanted``."""
    names = as_spelled([name for name, _ in keys], wanted, url)
    return tuple((name, value) for name, (_, value) in zip(names, keys, strict=True))


def _alike(url: str, files: list[TableFile]) -> list[TableFile]:
    """Return the files; raise an error if their directories do not give the same columns."""
    keys = [name for name, _ in files[0].keys]
    files = [each._replace(keys=_spelled(each.keys, keys, each.url)) for each in files]
    for each in files:
        if [name for name, _ in each.keys] != keys:
            raise DataError(f"{each.url}: expected directories {'/'.join(f'{key}=...' for key in keys) or url}.")
    return files


def _keys(url: str, others: Collection[str]) -> Keys:
    """Return the columns that the names of a file's directories define, without the columns in ``others``."""
    return tuple(_key(name) for name in url.split("/")[:-1] if "=" in name and name not in others)


def _key(folder: str) -> tuple[str, str | None]:
    """Return the name and the value of the column from a directory name ``key=value``."""
    key, _, value = folder.partition("=")
    return unquote(key), None if value == HIVE_NULL else unquote(value)


def _inside(url: str, keys: Keys, storage_options: fs.Options) -> list[TableFile]:
    entries = {name: (is_folder, n_bytes) for name, is_folder, n_bytes in fs.entries(url, storage_options)}
    refuse_lake(url, entries, storage_options)
    if UNFINISHED in entries:
        raise DataError(
            f"{url}: the table has a directory {UNFINISHED}. The job that writes it has not ended, or has failed."
        )
    files: list[TableFile] = []
    for name in sorted(entries, key=_natural):
        place, (is_folder, n_bytes) = fs.join(url, name), entries[name]
        if name[0] in "._":
            continue
        if is_folder:
            if "=" not in name or len(keys) == MAX_DEPTH:
                how = name_sets(url, storage_options) or "Expected files, or directories named key=value."
                raise DataError(f"{place}: this is a directory in a table. {how}")
            files += _inside(place, (*keys, _key(name)), storage_options)
        elif n_bytes and name != README:
            files.append(TableFile(place, keys))
    return files


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``part.2`` before ``part.10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in DIGITS.split(name)]


def format_of(files: Sequence[TableFile], storage_options: fs.Options = None) -> str:
    """Return ``csv``, ``parquet``, ``jsonl``, or ``whole`` for files that are read as a whole.

    Raises a `DataError` if a file has another format, or the files differ.
    """
    first = _format(files[0].url, storage_options)
    for each in files[1:]:
        if each.url.lower().endswith((*CSV_SUFFIXES, *PARQUET_SUFFIXES, *JSON_LINES)) and _format(each.url) != first:
            raise DataError(f"{each.url}: the format is not {first}, unlike that of {files[0].url}.")
    return first


def _format(url: str, storage_options: fs.Options = None) -> str:
    if url.lower().endswith(WHOLE_SUFFIXES):
        return "whole"
    name = url.lower().removesuffix(PACKED)
    if name.endswith(PARQUET_SUFFIXES):
        return "parquet"
    if name.endswith(CSV_SUFFIXES):
        return "csv"
    if name.endswith(JSON_LINES):
        return "jsonl"
    head = fs.read_bytes(url, 0, min(MARK_BYTES, fs.size(url, storage_options)), storage_options)
    refuse_compressed(url, head)
    if head.startswith((PARQUET_MAGIC, ARROW_MAGIC)) or is_columnar(url, head):
        return "parquet"
    raise DataError(
        f"{url}: the format is not recognised. Expected a table in CSV, Parquet, Arrow, ORC or JSON lines. If it is "
        f"one, set backend."
    )


def kind_of_key(files: Sequence[TableFile], i: int) -> str:
    """Return the kind of the i-th column from names of directories: ``number`` or ``string``."""
    texts = [each.keys[i][1] for each in files]
    return "number" if all(text is None or is_number(text) for text in texts) else "string"


def with_keys(table: pa.Table, n: int, file: TableFile, wanted: Mapping[str, str]) -> pa.Table:
    """Return ``n`` rows of a file, with the wanted columns from names of its directories added.

    A wanted column that neither the file nor its directories have is filled with missing values.
    """
    keys, known = dict(file.keys), {*table.column_names}
    added: dict[str, pa.Array] = {}
    for name in (each for each in wanted if each not in known):
        kind = pa.float64() if wanted[name] == "number" else pa.string()
        value = float(keys[name] or "nan") if name in keys and wanted[name] == "number" else keys.get(name)
        added[name] = pa.repeat(pa.scalar(value, kind), n) if name in keys else pa.nulls(n)
    if not added:
        return table
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | added)
