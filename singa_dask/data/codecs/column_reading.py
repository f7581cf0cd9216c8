"""ColumnReading: kept columns of texts, as the numbers and booleans that a job reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from singa_dask.data.codecs.columns import column_kind
from singa_dask.data.codecs.numbers import MISSING, NO_SPELLING, PlainForm, Spelling
from singa_dask.errors import DataError
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

TYPES = {"b": pa.bool_(), "i": pa.int64(), "f": pa.float64()}
TEXT = "U"


class ColumnReading(NamedTuple):
    """Converts columns of text to the types that a job reads them as.

    Columns that it does not read stay text.

    Attributes
    ----------
    kinds : mapping of str to str
        Dtype kind of each column that the job reads: ``b``, ``i``, ``f``, or ``U`` for text.
    spelling : Spelling
        Form of numbers that are written as text, and the words that mean a missing value. These become null.
    """

    kinds: Mapping[str, str] = MappingProxyType({})
    spelling: Spelling = NO_SPELLING

    def numbers(self, table: pa.Table) -> pa.Table:
        """Convert columns of numbers for which ``spelling`` has a form, such as money.

        A column that also contains other text is not converted.
        """
        return self._converted(table, {name: "f" for name in self.spelling.numbers})

    def types(self, table: pa.Table) -> pa.Table:
        """Convert all columns that the job reads. A column that also contains other text is not converted."""
        return self._converted(table, {**self.kinds, **{name: "f" for name in self.spelling.numbers}})

    def unknown(self, table: pa.Table) -> list[str]:
        """Return the names of text columns that the job does not read as text."""
        return [
            each.name for each in table.schema if pa.types.is_string(each.type) and self.kinds.get(each.name) != TEXT
        ]

    def _converted(self, table: pa.Table, kinds: Mapping[str, str]) -> pa.Table:
        for i, name in enumerate(table.column_names):
            kind = kinds.get(name, TEXT)
            if kind in TYPES and column_kind(table.schema[i].type) == "string":
                with contextlib.suppress(pa.ArrowInvalid, DataError):
                    table = table.set_column(i, name, self._read(table.select([i]), name, kind))
        return table

    def _read(self, table: pa.Table, name: str, kind: str) -> pa.ChunkedArray:
        """Return the only column of a table as numbers or booleans; raises an error if it has other texts."""
        if kind == "f":
            form = self.spelling.numbers.get(name, PlainForm())
            return Spelling({name: form}, self.spelling.na_values).read(table, {}, str, ()).column(0)
        texts = pc.utf8_trim_whitespace(table.column(0).cast(pa.string()))
        texts = pc.if_else(pc.is_in(texts, pa.array([*MISSING, *self.spelling.na_values], pa.string())), None, texts)
        return (pc.replace_substring_regex(texts, r"\.0+$", "") if kind == "i" else texts).cast(TYPES[kind])
