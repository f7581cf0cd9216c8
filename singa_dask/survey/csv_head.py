"""Detect the separator of a CSV file, and whether its first line names the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from singa_dask import fs
from singa_dask.data.tables.files.csv_text import SEPARATORS, split_rows
from singa_dask.data.tables.spelling import is_number
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import open_bytes
from singa_dask.survey.columns import show_value
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.texts import charset_of, split_lines
from singa_dask.wording import listed

HEAD_BYTES = 1 << 16


def head_of(place: str, storage_options: fs.Options = None) -> bytes:
    """Return the first bytes of a file, which may be gzipped."""
    source = open_bytes(place, storage_options)
    head = bytes(source.read(0, min(source.size, HEAD_BYTES)))
    source.close()
    return head


def head_lines(place: str, charset: str = "utf-8", storage_options: fs.Options = None) -> list[str]:
    """Return the first lines of a text file, which may be gzipped."""
    head = head_of(place, storage_options)
    marked, start = charset_of(head)
    found = split_lines(head[start:].decode(marked if start else charset, errors="replace"))
    return found[:-1] if len(head) == HEAD_BYTES else found


def reading_of_csv(place: str, options: SurveyOptions, storage_options: fs.Options = None) -> dict[str, Any]:
    """Return the options of a CSV file, such as separator and header, that differ from the defaults."""
    lines = head_lines(place, options.encoding or "utf-8", storage_options)
    keys: dict[str, Any] = {}
    separator = options.separator or separator_of(lines)
    if len(separator) != 1:
        raise DataError(f"{place}: --separator {separator!r}. Expected one character.")
    if separator != ",":
        keys["separator"] = separator
    if options.encoding:
        keys["charset"] = options.encoding
    if options.quotes is not None:
        keys["quotes"] = options.quotes
    rows = [row for row in split_rows(lines, separator, options.quotes) if row and not row[0].startswith("sep=")]
    if options.header is not None:
        keys["header"] = options.header
    elif rows and not _has_header(place, rows[0], rows[1:]):
        keys["header"] = False
    return keys


def separator_of(lines: Sequence[str]) -> str:
    """Return the most frequent separator in the first line of a table; a blank if there is none."""
    unquoted = re.sub(r'"[^"]*"', "", lines[0] if lines else "")
    return max((",", *SEPARATORS), key=unquoted.count) if re.search(r"[,;\t|\x01]", unquoted) else " "


def _has_header(place: str, first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line names the columns; raise an UnsureError if this is unclear."""
    numbers = [is_number(text) for text in first if text.strip()]
    texts = [i for i, text in enumerate(first) if text.strip() and not is_number(text)]
    again = sum(first[i] in {row[i] for row in rows if len(row) > i} for i in texts)
    counted = [text.strip() for text in first] == [str(i) for i in range(len(first))] and len(first) > 2
    if not any(numbers) and 2 * again <= len(texts):
        return True
    if (all(numbers) and not counted) or (texts and 2 * again > len(texts)):
        return False
    raise UnsureError(
        place,
        f"does its first line name the columns? It has {listed(list(map(show_value, first)), 8)}.",
        [("the names of the columns", {"header": True}), ("a record", {"header": False})],
        "Pass --header if it does, or --no-header.",
    )
