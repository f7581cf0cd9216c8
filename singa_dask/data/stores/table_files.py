"""The files of a table: one file, a pattern, or a directory as pandas, Spark, Dask and Hive write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from singa_dask.data import fs
from singa_dask.data.stores.opening import is_pattern
from singa_dask.data.stores.shards import check_splits, shard_urls
from singa_dask.errors import DataError

__all__ = ["TableFile", "format_of", "kind_of_key", "table_files", "with_keys"]

CSV_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")
PACKED = ".gz"
PARQUET_MAGIC = b"PAR1"
# directory of Spark's unfinished tasks
UNFINISHED = "_temporary"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MAX_DEPTH = 16
DIGITS = re.compile(r"(\d+)")


class TableFile(NamedTuple):
    """A file, and the columns that the names of its directories give: name and value, None for no value."""

    url: str
    keys: tuple[tuple[str, str | None], ...] = ()


def table_files(url: str, storage_options: fs.Options = None) -> list[TableFile]:
    """Return the files of a table, in order: names are sorted, numbers in them by their value.

    In a directory, names that begin with ``_`` or ``.`` and empty files are left out; directories ``key=value`` give
    columns.

    Raises
    ------
    DataError
        There are none, or the directory is not complete.
    """
    if is_pattern(url):
        return [TableFile(each) for each in sorted(shard_urls(url, storage_options), key=_natural)]
    if not fs.exists(url, storage_options):
        raise DataError(f"{url}: no such file or directory.")
    if not fs.is_dir(url, storage_options):
        return [TableFile(url)]
    found = _inside(url.rstrip("/"), (), storage_options)
    if not found:
        raise DataError(f"{url}: no files of a table in this directory.")
    check_splits(url, [each.url for each in found])
    keys = [name for name, _ in found[0].keys]
    for each in found:
        if [name for name, _ in each.keys] != keys:
            raise DataError(f"{each.url}: expected directories {'/'.join(f'{key}=...' for key in keys) or url}.")
    return found


def _inside(url: str, keys: tuple[tuple[str, str | None], ...], storage_options: fs.Options) -> list[TableFile]:
    entries = {name: (is_folder, n_bytes) for name, is_folder, n_bytes in fs.entries(url, storage_options)}
    if UNFINISHED in entries:
        raise DataError(f"{url}: has a directory {UNFINISHED}: a job that writes it has not ended, or has failed.")
    found: list[TableFile] = []
    for name in sorted(entries, key=_natural):
        place, (is_folder, n_bytes) = fs.join(url, name), entries[name]
        if name[0] in "._":
            continue
        if is_folder:
            key, equals, value = name.partition("=")
            if not equals or len(keys) == MAX_DEPTH:
                raise DataError(f"{place}: a directory in a table. Expected files, or directories named key=value.")
            text = None if value == HIVE_NULL else unquote(value)
            found += _inside(place, (*keys, (unquote(key), text)), storage_options)
        elif n_bytes:
            found.append(TableFile(place, keys))
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts ``part.2`` before ``part.10``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in DIGITS.split(name)]


def format_of(files: Sequence[TableFile], storage_options: fs.Options = None) -> str:
    """Return ``csv`` or ``parquet``.

    Raises
    ------
    DataError
        A file is neither, or the files differ.
    """
    first = _format(files[0].url, storage_options)
    for each in files[1:]:
        if each.url.lower().endswith((*CSV_SUFFIXES, *PARQUET_SUFFIXES)) and _format(each.url) != first:
            raise DataError(f"{each.url}: not {first}, unlike {files[0].url}.")
    return first


def _format(url: str, storage_options: fs.Options = None) -> str:
    name = url.lower().removesuffix(PACKED)
    if name.endswith(PARQUET_SUFFIXES):
        return "parquet"
    if name.endswith(CSV_SUFFIXES):
        return "csv"
    head = fs.read_bytes(url, 0, min(len(PARQUET_MAGIC), fs.size(url, storage_options)), storage_options)
    if head == PARQUET_MAGIC:
        return "parquet"
    raise DataError(f"{url}: neither CSV nor Parquet. Columns have names in these; give backend if it is one of them.")


def kind_of_key(files: Sequence[TableFile], i: int) -> str:
    """Return the kind of the i-th column that directories give: ``number`` or ``string``."""
    return "number" if all(_is_number(each.keys[i][1]) for each in files) else "string"


def _is_number(text: str | None) -> bool:
    try:
        return text is None or bool(float(text) or True)
    except ValueError:
        return False


def with_keys(table: pa.Table, file: TableFile, wanted: Mapping[str, str]) -> pa.Table:
    """Return the rows of a file with the columns that its directories give, of those that are wanted."""
    keys = dict(file.keys)
    for name in wanted.keys() & keys.keys():
        kind = pa.float64() if wanted[name] == "number" else pa.string()
        value = float(keys[name] or "nan") if wanted[name] == "number" else keys[name]
        table = table.append_column(name, pa.repeat(pa.scalar(value, kind), len(table)))
    return table
