"""Find the files of a table that pandas, Spark, Dask or Hive wrote, and the format of the files.

A directory named ``key=value`` adds the column ``key`` to the files in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from singa_dask import fs
from singa_dask.data.stores.hugging_face import README, name_sets, saved_files
from singa_dask.data.stores.lakes import refuse_lake
from singa_dask.data.stores.shards import check_splits, shard_urls
from singa_dask.data.tables.files.columnar import ARROW_MAGIC, PARQUET_MAGIC, PARQUET_SUFFIXES, is_columnar
from singa_dask.data.tables.files.folder_keys import Keys, TableFile, folder_key, folder_keys, spelled_keys
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import MARK_BYTES, refuse_compressed
from singa_dask.fs.patterns import is_pattern

WHOLE_SUFFIXES = (".json", ".json.gz", ".xlsx")
JSON_LINES = (".jsonl", ".ndjson")
CSV_SUFFIXES = (".csv", ".tsv", ".txt", ".data")
PACKED = ".gz"
# directory in which Spark's unfinished tasks write
UNFINISHED = "_temporary"
MAX_DEPTH = 16
DIGITS = re.compile(r"(\d+)")


def table_files(url: str, storage_options: fs.Options = None) -> list[TableFile]:
    """Return the files of a table, sorted by name; numbers in names are sorted by value.

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
        return _alike(url, [TableFile(each.url, folder_keys(each.url, pattern_parts)) for each in files])
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


def _alike(url: str, files: list[TableFile]) -> list[TableFile]:
    """Return the files; raise an error if names of directories define different columns for them."""
    keys = [name for name, _ in files[0].keys]
    files = [each._replace(keys=spelled_keys(each.keys, keys, each.url)) for each in files]
    for each in files:
        if [name for name, _ in each.keys] != keys:
            raise DataError(f"{each.url}: expected directories {'/'.join(f'{key}=...' for key in keys) or url}.")
    return files


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
            files += _inside(place, (*keys, folder_key(name)), storage_options)
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
