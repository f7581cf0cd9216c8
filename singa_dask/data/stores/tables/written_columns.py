"""read_columns: read columns of a table as written in its files, to write them beside predictions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.blocks import BLOCK_BYTES
from singa_dask.data.codecs.class_types import INTEGER, class_values
from singa_dask.data.stores.tables.table_files import format_of, table_files
from singa_dask.data.tables.column_names import show_columns
from singa_dask.data.tables.files.folder_keys import TableFile, outer_keys, with_keys, with_outer_keys
from singa_dask.data.tables.files.json_text import load_object
from singa_dask.data.tables.files.open_parts import OpenParts, open_part
from singa_dask.data.tables.files.table_part import TablePart
from singa_dask.data.tables.spelling import MISSING, NO_SPELLING, Spelling
from singa_dask.errors import ConfigError, DataError
from singa_dask.lazy import LazyModule
from singa_dask.wording import question_of

pc = LazyModule("pyarrow.compute")


def read_columns(
    url: str,
    names: Sequence[str],
    storage_options: fs.Options = None,
    spelling: Spelling = NO_SPELLING,
    **options: Any,
) -> tuple[pa.Table, str]:
    """Return columns of a table, and the format of its files.

    Columns of CSV are strings; columns of other files have the types in the file. Texts are unchanged, including words
    that usually mean a missing value, such as NA. Blank texts are null. A column from names of directories has numbers
    if all its values are numbers without leading zeros.

    Parameters
    ----------
    url : str
    names : sequence of str
    storage_options : mapping, optional
    spelling : Spelling
        Words for missing values in columns of numbers of JSON.
    **options
        Options of a `CsvPart`.

    Raises
    ------
    ConfigError
        A column does not exist.
    DataError
        The table cannot be read, or the values of a JSON column have no common type.
    """
    files = table_files(url, storage_options)
    format = format_of(files, storage_options)
    if format == "csv":
        options |= {"listed": dict.fromkeys(names, (*filter(None, MISSING), *spelling.na_values))}
    options["wanted"] = names
    opened = OpenParts(files, lambda file: open_part(file.url, format, storage_options, spelling, **options))
    tables, kinds = list[pa.Table](), dict.fromkeys(names, "string")
    with contextlib.closing(opened) as parts:
        files[:] = with_outer_keys(files, names, lambda: parts(0).names)
        known = (*parts(0).names, *parts.find_columns(names).kinds, *(name for name, _ in files[0].keys))
        known = tuple(dict.fromkeys(known))
        if unknown := [name for name in names if name not in known]:
            known = (*known, *(name for name in outer_keys(files[0]) if name not in known))
            raise ConfigError(
                f"{url}: there is no column {unknown[0]!r}. {question_of(unknown[0], known)}{show_columns(known)}"
            )
        for file in range(len(files)):
            try:
                runs = parts(file).runs(BLOCK_BYTES, 4 * len(names))
                tables += [parts.decode(file, run, kinds, parts.fetch(file, run, kinds)).select(names) for run in runs]
            except DataError:
                if format != "jsonl":
                    raise
                # columns with lists or objects, and columns whose type changes after the first lines
                read = _json_columns(parts(file), parts.in_file(file, kinds))
                tables.append(with_keys(read, len(read), files[file], kinds).select(names))
        if not tables:
            types = parts(0).types
            tables.append(pa.schema([(name, types.get(name, pa.string())) for name in names]).empty_table())
    if format == "jsonl" and len(tables) > 1:
        tables = _without_guesses(tables)
    return _typed_keys(pa.concat_tables(tables, promote_options="permissive"), files), format


def _without_guesses(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Remove the type of a column without values, if another table has values in the same column."""
    with_values = {name for table in tables for name in table.column_names if table[name].null_count < len(table)}
    typed = []
    for table in tables:
        for i, name in enumerate(table.column_names):
            if name in with_values and table[name].null_count == len(table):
                table = table.set_column(i, name, pa.nulls(len(table)))
        typed.append(table)
    return typed


def _typed_keys(table: pa.Table, files: Sequence[TableFile]) -> pa.Table:
    """Convert columns from names of directories to integers or floats, if all values are numbers."""
    for i, (name, _) in enumerate(files[0].keys):
        texts = sorted({value for file in files if (value := file.keys[i][1]) is not None})
        values = class_values(texts, INTEGER)
        if name in table.column_names and values.dtype.kind != "U":
            numbers = pa.array(values).take(pc.index_in(table.column(name), pa.array(texts)))
            table = table.set_column(table.column_names.index(name), name, numbers)
    return table


def _json_columns(part: TablePart, names: Iterable[str]) -> pa.Table:
    """Return columns of JSON lines with the types of all their values."""
    values: dict[str, list[Any]] = {name: [] for name in names}
    line = 1
    for run in part.runs(BLOCK_BYTES, 0):
        for text in bytes(part.fetch(run, {})[0]).split(b"\n"):
            try:
                record = load_object(text)
            except ValueError as error:
                raise DataError(f"{part.url}, line {line}: {error}.") from None
            line += 1
            for name, column in values.items():
                column.append(record.get(name))
    columns = {}
    for name, column in values.items():
        try:
            columns[name] = pa.array(column, from_pandas=True)
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(f"{part.url}: column {name!r} has values without a common type: {error}.") from None
    return pa.table(columns)
