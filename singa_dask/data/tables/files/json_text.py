"""Parse lines of JSON, into columns or one by one."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.json

from singa_dask.fs.sources import Bytes
from singa_dask.texts import refuse_wide

BOM, HEAD_BYTES = codecs.BOM_UTF8, 64
# matches NaN, and also whole strings, so that NaN within a string is not replaced
NAN = re.compile(rb'"(?:[^"\\]|\\.)*"|\bNaN\b')


def load_object(line: bytes) -> dict[str, Any]:
    """Parse a line; raise a `ValueError` if it is not a JSON object."""
    if not line.strip():
        raise ValueError("empty, expected an object of JSON")
    try:
        record = json.loads(line)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError('not an object of JSON: expected {"features": [...], "label": ...}')
    return record


def after_mark(url: str, source: Bytes) -> int:
    """Return the offset of the first line, after a byte order mark if there is one.

    Raises a `DataError` for a file in UTF-16 or UTF-32.
    """
    head = bytes(source.read(0, min(HEAD_BYTES, source.size)))
    refuse_wide(url, head)
    return len(BOM) if head.startswith(BOM) else 0


def parse_lines(text: memoryview | bytes, schema: pa.Schema | None) -> pa.Table | None:
    """Parse all columns, or the columns of a schema, of JSON lines; None if a line does not fit."""
    unexpected = "ignore" if schema else "infer"
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(pa.py_buffer(text)),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 2)),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
        # check that strings and keys are UTF-8, because the parser does not
        table.validate(full=True)
    except (pa.ArrowException, KeyError, UnicodeDecodeError):
        # Python's json module writes missing numbers as NaN
        plain = NAN.sub(lambda match: match[0] if match[0] != b"NaN" else b"null", bytes(text))
        return parse_lines(plain, schema) if plain != bytes(text) else None
    return table
