"""Tables of files that are read as a whole, a JSON array of objects or a sheet of Excel, held as Parquet in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from singa_dask.data import fs
from singa_dask.data.fs.byte_source import BytesInMemory, open_bytes
from singa_dask.errors import DataError
from singa_dask.lazy import require

WHOLE_SUFFIXES = (".json", ".json.gz", ".xlsx")
ROWS = 1 << 14


def read_whole(url: str, storage_options: fs.Options = None) -> BytesInMemory:
    """Return a table as a Parquet file in memory.

    Raises
    ------
    DataError
        The file has another form, or a column has values of several kinds.
    ConfigError
        The package that reads it is not installed.
    """
    source = open_bytes(url, storage_options)
    data = bytes(source.read(0, source.size))
    source.close()
    names, columns = _sheet(url, data) if url.lower().endswith(".xlsx") else _array(url, data)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{url}: column {twice!r} occurs twice. Rename one.")
    table = pa.table([_column(url, name, values) for name, values in zip(names, columns, strict=True)], names)
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=ROWS)
    return BytesInMemory(url, written.getvalue())


def _column(url: str, name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise DataError(f"{url}: column {name!r} has values of several kinds: {', '.join(kinds)}.") from None


def _array(url: str, data: bytes) -> tuple[list[str], list[list[Any]]]:
    try:
        rows = json.loads(data)
    except ValueError as error:
        raise DataError(f"{url}: not JSON: {error}.") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{url}: expected an array of objects, as pandas writes it by to_json(orient='records').")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return names, [[row.get(name) for row in rows] for name in names]


def _sheet(url: str, data: bytes) -> tuple[list[str], list[list[Any]]]:
    book = require("openpyxl", "excel", url).load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    if len(book.sheetnames) > 1:
        raise DataError(f"{url}: sheets {', '.join(book.sheetnames)}. Expected one: save it as a file of its own.")
    rows = [row for row in book.active.iter_rows(values_only=True) if any(value is not None for value in row)]
    if len(rows) < 2:
        raise DataError(f"{url}: expected a header and records, got {len(rows)} rows.")
    names = ["" if name is None else str(name).strip() for name in rows[0]]
    kept = [i for i, name in enumerate(names) if name or any(row[i] is not None for row in rows)]
    unnamed = next((i for i in kept if not names[i]), None)
    if unnamed is not None:
        raise DataError(f"{url}: column {unnamed + 1} has no name. Expected names in the first row.")
    return [names[i] for i in kept], [[row[i] for row in rows[1:]] for i in kept]
