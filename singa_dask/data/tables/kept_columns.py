"""ColumnReading: convert kept columns of text to the numbers and booleans that a job reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from singa_dask.data.tables.column_values import column_kind
from singa_dask.data.tables.spelling import MISSING, NO_SPELLING, PlainForm, Spelling
from singa_dask.errors import DataError
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

TYPES = {"b": pa.bool_(), "i": pa.int64(), "f": pa.float64()}
TEXT = "U"
# dtype kind -> pattern of texts that may be codes or ids: leading zeros, and whole numbers that float64 may not
# represent exactly
INEXACT = {"f": r"^[-+]?(0[0-9]|[0-9]{16,}$)", "i": r"^[-+]?0[0-9xX]"}


class ColumnReading(NamedTuple):
    """Converts columns of text to the types in which a job reads them.

    Columns that the job does not read stay text. A column also stays text if a table has texts in it that cannot be
    converted, or numbers that would lose digits. These are numbers with leading zeros, and whole numbers of more than
    15 digits that would become floats.

    Attributes
    ----------
    kinds : mapping of str to str
        Dtype kind of each column that the job reads: ``b``, ``i``, ``f``, or ``U`` for text.
    spelling : Spelling
        Form of numbers that are written as text, and the words for a missing value. Missing values become null.
    """

    kinds: Mapping[str, str] = MappingProxyType({})
    spelling: Spelling = NO_SPELLING

    def numbers(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Convert columns for which ``spelling`` has a form of numbers, such as money.

        All tables have the same columns.
        """
        return self._converted(tables, {name: "f" for name in self.spelling.numbers})

    def types(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Convert all columns that the job reads. All tables have the same columns."""
        return self._converted(tables, {**self.kinds, **{name: "f" for name in self.spelling.numbers}})

    def unknown(self, table: pa.Table) -> list[str]:
        """Return the names of text columns that the job does not read as text."""
        return [
            each.name for each in table.schema if pa.types.is_string(each.type) and self.kinds.get(each.name) != TEXT
        ]

    def _converted(self, tables: Sequence[pa.Table], kinds: Mapping[str, str]) -> list[pa.Table]:
        converted = list(tables)
        for i, name in enumerate(tables[0].column_names if tables else ()):
            if (kind := kinds.get(name, TEXT)) in TYPES:
                with contextlib.suppress(pa.ArrowInvalid, DataError):
                    converted = [self._set(table, i, name, kind) for table in converted]
        return converted

    def _set(self, table: pa.Table, i: int, name: str, kind: str) -> pa.Table:
        """Convert the i-th column of a table from texts to numbers or booleans; see `_read` for errors."""
        if column_kind(table.schema[i].type) != "string":
            return table
        return table.set_column(i, name, self._read(table.select([i]), name, kind))

    def _read(self, table: pa.Table, name: str, kind: str) -> pa.ChunkedArray:
        """Return the only column of a table as numbers or booleans.

        Raises an error if the column has other texts, or numbers that would lose digits.
        """
        if form := self.spelling.numbers.get(name):
            return Spelling({name: form}, self.spelling.na_values).read(table, {}, str, ()).column(0)
        texts = pc.utf8_trim_whitespace(table.column(0).cast(pa.string()))
        texts = pc.if_else(pc.is_in(texts, pa.array([*MISSING, *self.spelling.na_values], pa.string())), None, texts)
        if kind in INEXACT and pc.any(pc.match_substring_regex(texts, INEXACT[kind])).as_py():
            raise DataError(f"column {name!r}: numbers that would lose digits.")
        if kind == "f":
            return Spelling({name: PlainForm()}, self.spelling.na_values).read(table, {}, str, ()).column(0)
        return (pc.replace_substring_regex(texts, r"\.0+$", "") if kind == "i" else texts).cast(TYPES[kind])
