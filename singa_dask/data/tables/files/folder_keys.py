"""Columns from names of directories.

A directory named ``key=value`` adds the column ``key`` to the files in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from singa_dask.data.tables.column_names import as_spelled
from singa_dask.data.tables.spelling import is_number

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
Keys = tuple[tuple[str, str | None], ...]


class TableFile(NamedTuple):
    """A file, and the columns from its directories as (name, value); None is a missing value."""

    url: str
    keys: Keys = ()


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
    outer = [dict(spelled_keys((*outer_keys(each).items(),), wanted, each.url)) for each in files]
    files = [each._replace(keys=spelled_keys(each.keys, wanted, each.url)) for each in files]
    added = [name for name in outer[0] if name in wanted and all(name in each for each in outer)]
    added = [name for name in added if name not in names()] if added else []
    return [
        each._replace(keys=(*((name, keys[name]) for name in added), *each.keys))
        for each, keys in zip(files, outer, strict=True)
    ]


def outer_keys(file: TableFile) -> dict[str, str | None]:
    """Return the columns, with values, from names of directories above a file's table."""
    keys = dict(file.keys)
    return {name: value for name, value in spelled_keys(folder_keys(file.url, ()), keys, file.url) if name not in keys}


def spelled_keys(keys: Keys, wanted: Collection[str], url: str) -> Keys:
    """Return columns from names of directories, with column names spelled as in ``wanted``."""
    names = as_spelled([name for name, _ in keys], wanted, url)
    return tuple((name, value) for name, (_, value) in zip(names, keys, strict=True))


def folder_keys(url: str, others: Collection[str]) -> Keys:
    """Return the columns that the names of a file's directories define, without the columns in ``others``."""
    return tuple(folder_key(name) for name in url.split("/")[:-1] if "=" in name and name not in others)


def folder_key(folder: str) -> tuple[str, str | None]:
    """Return the name and the value of the column from a directory name ``key=value``."""
    key, _, value = folder.partition("=")
    return unquote(key), None if value == HIVE_NULL else unquote(value)


def kind_of_key(files: Sequence[TableFile], i: int) -> str:
    """Return the kind, ``number`` or ``string``, of the i-th column that names of directories define."""
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
