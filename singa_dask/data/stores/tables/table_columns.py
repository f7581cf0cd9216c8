"""read_columns: columns of a table as they stand in its files, to write beside predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.codecs.columns import show_columns
from singa_dask.data.codecs.numbers import NO_SPELLING, Spelling
from singa_dask.data.stores.blocks import BLOCK_BYTES
from singa_dask.data.stores.tables.open_parts import OpenParts
from singa_dask.data.stores.tables.table import open_part
from singa_dask.data.stores.tables.table_files import format_of, outer_keys, table_files, with_outer_keys
from singa_dask.errors import ConfigError
from singa_dask.registry import suggest


def read_columns(
    url: str,
    names: Sequence[str],
    storage_options: fs.Options = None,
    spelling: Spelling = NO_SPELLING,
    **options: Any,
) -> pa.Table:
    """Return columns of a table: of text files as strings, of other files with their types.

    Parameters
    ----------
    url : str
    names : sequence of str
    storage_options : mapping, optional
    spelling : Spelling
        Words for missing values in columns of numbers.
    **options
        Options of a `CsvPart`.

    Raises
    ------
    ConfigError
        A column does not exist.
    DataError
        The table cannot be read.
    """
    files = table_files(url, storage_options)
    form = format_of(files, storage_options)
    if form == "csv":
        # keep words for missing values as text, so that they can be counted
        options |= {"listed": dict.fromkeys(names, spelling.na_values)}
    opened = OpenParts(files, lambda file: open_part(files[file].url, form, storage_options, spelling, **options))
    tables, kinds = list[pa.Table](), dict.fromkeys(names, "string")
    with contextlib.closing(opened) as parts:
        files[:] = with_outer_keys(files, names, lambda: parts(0).names)
        known = (*parts(0).names, *(name for name, _ in files[0].keys))
        if unknown := [name for name in names if name not in known]:
            known = (*known, *(name for name in outer_keys(files[0]) if name not in known))
            question = suggest(unknown[0], known).partition("Known:")[0]
            raise ConfigError(f"{url}: no column {unknown[0]!r}. {question}{show_columns(known)}")
        for file in range(len(files)):
            for run in parts(file).runs(BLOCK_BYTES, 4 * len(names)):
                data = parts.fetch(file, run, kinds)
                tables.append(parts.decode(file, run, kinds, data).select(names))
        if not tables:
            types = parts(0).types
            return pa.schema([(name, types.get(name, pa.string())) for name in names]).empty_table()
    return pa.concat_tables(tables, promote_options="permissive")
