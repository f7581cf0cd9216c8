"""Tables that are read as a whole (JSON arrays of objects, Excel sheets), as Parquet in memory."""

from __future__ import annotations

import io
import json
import logging
import zipfile
import zlib
from typing import Any

import pyarrow as pa

from singa_dask import fs
from singa_dask.data.tables.column_names import refuse_twice
from singa_dask.data.tables.frames import as_columns
from singa_dask.data.tables.spelling import NO_SPELLING, Spelling
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import DataError, SingaError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.fs.sources import BytesInMemory
from singa_dask.lazy import LazyModule, require
from singa_dask.shown import plural
from singa_dask.texts import unique_keys

logger = logging.getLogger(__name__)

pq = LazyModule("pyarrow.parquet")

ROWS = 1 << 14
# errors that json and openpyxl raise for damaged files
DAMAGE = (AttributeError, LookupError, RecursionError, SyntaxError, ValueError, zipfile.BadZipFile, zlib.error)


def read_whole(url: str, storage_options: fs.Options = None, spelling: Spelling = NO_SPELLING) -> BytesInMemory:
    """Return a file as a Parquet file in memory.

    Raises
    ------
    DataError
        The file has another form, or a column has values of several kinds.
    ConfigError
        The package that reads the format is not installed.
    """
    source = open_bytes(url, storage_options)
    data = bytes(source.read(0, source.size))
    source.close()
    try:
        names, columns = _sheet(url, data) if url.lower().endswith(".xlsx") else _array(url, data)
    except DAMAGE as error:
        if isinstance(error, SingaError):
            raise
        raise DataError(f"{url}: the file is of another format, or damaged: {error}.") from error
    refuse_twice(names, url)
    table = pa.table(as_columns(dict(zip(names, columns, strict=True)), url, spelling))
    return in_memory(url, table, (len(data), checksum_of(data)))


def in_memory(url: str, table: pa.Table, origin: tuple[int, int] | None = None) -> BytesInMemory:
    """Return a table as a Parquet file in memory; ``origin`` is size and checksum of the original file."""
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=ROWS)
    return BytesInMemory(url, written.getvalue(), origin)


def _array(url: str, data: bytes) -> tuple[list[str], list[list[Any]]]:
    try:
        rows = json.loads(data, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise DataError(f"{url}: not JSON: {error}.") from None
    if rows == []:
        raise DataError(f"{url}: it is empty.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{url}: expected an array of objects, as pandas writes it by to_json(orient='records').")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[row.get(name) for row in rows] for name in names]


def _sheet(url: str, data: bytes) -> tuple[list[str], list[list[Any]]]:
    load = require("openpyxl", "excel", url).load_workbook
    book = load(io.BytesIO(data), read_only=True, data_only=True)
    if len(book.sheetnames) > 1:
        raise DataError(
            f"{url}: the file has the sheets {', '.join(book.sheetnames)}, expected one. Save the sheet to read as a "
            f"file of its own."
        )
    where, sheet = f"{url}, sheet {book.active.title}", list(book.active.iter_rows())
    # openpyxl reads a cell whose formula has the value "" as type str
    cells = [cell for row in sheet for cell in row if hasattr(cell, "coordinate")]
    empty = {cell.coordinate for cell in cells if cell.value is None and cell.data_type != "str"}
    formulas = load(io.BytesIO(data), read_only=True).active.iter_rows() if empty else ()
    unknown = [
        each.coordinate for row in formulas for each in row if each.data_type == "f" and each.coordinate in empty
    ]
    if unknown:
        raise DataError(
            f"{where}: the file lacks the values of {plural(len(unknown), 'formula')}, the first in {unknown[0]}. "
            f"Open the file in Excel or "
            "LibreOffice, which compute them, and save it."
        )
    if errors := [cell for cell in cells if cell.data_type == "e"]:
        first = f"{errors[0].value} in {errors[0].coordinate}"
        wrong = plural(len(errors), "cell with an error", "cells with errors")
        warn_once(logger, f"{where}: {wrong} read as missing. The first is {first}.")
    values = [tuple(None if cell.data_type == "e" else cell.value for cell in row) for row in sheet]
    rows = [row for row in values if any(value is not None for value in row)]
    if not rows:
        raise DataError(f"{url}: it is empty.")
    names = ["" if name is None else str(name).strip() for name in rows[0]]
    kept = [i for i, name in enumerate(names) if name or any(row[i] is not None for row in rows)]
    unnamed = next((i for i in kept if not names[i]), None)
    if unnamed is not None:
        raise DataError(f"{url}: column {unnamed + 1} has no name. Expected names in the first row.")
    return [names[i] for i in kept], [[row[i] for row in rows[1:]] for i in kept]
