"""Tables of predictions as files: lines of CSV or JSON, Parquet, Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from singa_dask.data.tables.column_values import as_texts, column_kind, whole
from singa_dask.errors import ConfigError
from singa_dask.lazy import LazyModule
from singa_dask.redaction import readable

pc, pq = LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")

# number of lines that are formatted at a time
LINES = 1 << 16
# characters that are escaped in a string of JSON
ESCAPED = r'["\\\x00-\x1f]'


def encoded(table: pa.Table, form: str, delimiter: str = ",") -> bytes:
    """Return a table as the bytes of a file in a format: csv, jsonl, parquet or arrow."""
    if form in ("csv", "jsonl"):
        lines = csv_lines(table, delimiter) if form == "csv" else json_lines(table)
        return b"".join(each.encode() for each in lines)
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


def csv_lines(table: pa.Table, delimiter: str = ",") -> Iterator[str]:
    """Yield a table as CSV, many lines at a time, in the format of RFC 4180 except that lines end with LF.

    A float is written with the fewest digits that identify it. Lists and other nested values are written as JSON.
    """
    special = f'["\r\n{re.escape(delimiter)}]'

    def quoted(texts: pa.Array) -> pa.Array:
        in_quotes = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
        return pc.if_else(pc.match_substring_regex(texts, special), in_quotes, texts)

    yield delimiter.join(quoted(_names(table)).to_pylist()) + "\n"
    for columns in _batches(table):
        texts = [quoted(_texts(column)) for column in columns]
        lines = pc.binary_join_element_wise(*texts, delimiter, null_handling="replace", null_replacement="")
        yield "\n".join([*lines.to_pylist(), ""])


def json_lines(table: pa.Table) -> Iterator[str]:
    """Yield a table as JSON lines, many at a time.

    Missing values, NaN and infinities are written as null. A float is written with the fewest digits that identify it.
    Values of types that JSON lacks, such as dates, are written as strings.
    """
    names = [f"{', ' * (i > 0)}{_as_json(name)}: " for i, name in enumerate(_names(table).to_pylist())]
    for columns in _batches(table):
        texts = [_json_texts(column).fill_null("null") for column in columns]
        pairs = [each for pair in zip(names, texts, strict=True) for each in pair]
        yield "\n".join([*pc.binary_join_element_wise("{", *pairs, "}", "").to_pylist(), ""])


def _names(table: pa.Table) -> pa.Array:
    return pa.array(map(readable, table.column_names), pa.string())


def _batches(table: pa.Table) -> Iterator[list[pa.Array]]:
    """Yield the columns of a table, `LINES` rows at a time."""
    for first in range(0, len(table), LINES):
        yield [whole(column) for column in table.slice(first, LINES).columns]


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        return pa.array([value if value is None else _as_json(value) for value in column.to_pylist()], pa.string())
    texts = as_texts(column)
    if not _is_float(column):
        return texts
    # -0.0 keeps its sign
    return pc.if_else(pc.equal(column.cast(pa.float64()), 0), column.cast(texts.type), texts)


def _json_texts(column: pa.Array) -> pa.Array:
    if _is_float(column):
        # write whole numbers with decimals, so that readers infer the same type for each file
        numbers = pc.replace_substring_regex(column.cast(pa.string()), r"^(-?\d+)$", r"\1.0")
        return pc.if_else(pc.is_finite(column.cast(pa.float64())), numbers, None)
    texts = _texts(column)
    if pa.types.is_nested(column.type) or column_kind(column.type) in ("number", "boolean", "empty"):
        return texts
    in_quotes, has_escapes = pc.binary_join_element_wise('"', texts, '"', ""), pc.match_substring_regex(texts, ESCAPED)
    escaped = pa.array(map(_as_json, texts.filter(has_escapes).to_pylist()), pa.string())
    return pc.replace_with_mask(in_quotes, has_escapes, escaped)


def _is_float(column: pa.Array) -> bool:
    return bool(pa.types.is_floating(column.type))


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def text_columns(table: pa.Table) -> pa.Table:
    """Return the texts of all values in CSV."""
    columns = [_texts(whole(column)) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names) if columns else table


def check_texts(table: pa.Table) -> None:
    """Raise a `ConfigError` if a column has values that text cannot represent exactly.

    Examples are bytes that are not UTF-8, and durations, whose unit would be lost.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            if pa.types.is_duration(column.type):
                raise ValueError
            if column_kind(column.type) not in ("number", "boolean", "string", "empty"):
                _texts(whole(column))
        except (pa.ArrowException, TypeError, ValueError):
            raise ConfigError(
                f"--keep: column {name!r} holds values of type {column.type}, which a text cannot hold. Write Parquet: "
                "--out NAME.parquet."
            ) from None
