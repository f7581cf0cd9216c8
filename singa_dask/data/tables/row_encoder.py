"""RowEncoder: encode single records of a table quickly, without a table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import ne
from typing import Any

import numpy as np

from singa_dask.data.tables.encoder import TableEncoder, is_in_range
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.percents import percent_columns
from singa_dask.data.types import Arrays

# types of plain numbers; a number of another type is left to the table encoder
NUMBERS = {float, int, np.float64, np.int64}
# types of values that are remembered, and the maximum number of values of a column
REMEMBERED, MAX_REMEMBERED = {str, bool, int}, 1 << 10
# types of values, besides strings, that a table may have in columns that are not features
IGNORED = {*NUMBERS, bool, type(None)}


class RowEncoder:
    """Encodes records one by one. The result has the same bits as the result of a `TableEncoder`.

    A plain number is copied. Any other value is encoded by the table encoder once, and the result is remembered. A
    record with other values is left to the table encoder, which raises the errors. Several threads can use this object.

    Parameters
    ----------
    encoder : TableEncoder
    facts : TableFacts
    """

    def __init__(self, encoder: TableEncoder, facts: TableFacts) -> None:
        self._field, self._width = encoder.schema["data"], len(facts.names)
        # in these columns, the type of a value does not show whether the value is wrong or looks like a fraction
        special = {*percent_columns(facts), *(facts.booleans or ())}
        self._numbers: list[str] = []
        self._number_places: list[int] = []
        self._others: list[tuple[str, int | slice, dict[Any, Any]]] = []
        for name, at in encoder.places:
            if isinstance(at, int) and facts.is_number(name) and name not in {*special, *facts.texts}:
                self._numbers.append(name)
                self._number_places.append(at)
            else:
                self._others.append((name, at, {}))
        self._features, self._n_features, self._texts = {*facts.features}, len(facts.features), facts.texts
        self._fills: dict[str, float] = {}
        self._is_checked = False

    def encode(self, record: Mapping[str, Any]) -> tuple[Arrays, list[str]] | None:
        """Return the fields of a record, with one row, and the columns whose missing number was filled in.

        The result is None if the table encoder has to encode the record.
        """
        if not self._is_checked:
            return None
        filled: list[str] = []
        try:
            numbers = [record[name] for name in self._numbers]
            others = [(at, known[type(value := record[name]), value]) for name, at, known in self._others]
            if not NUMBERS.issuperset(map(type, numbers)) or any(map(ne, numbers, numbers)):
                filled = [name for name, value in zip(self._numbers, numbers, strict=True) if _is_missing(value)]
                numbers = [self._fills[name] if name in filled else record[name] for name in self._numbers]
                if not NUMBERS.issuperset(map(type, numbers)):
                    return None
            values = np.array(numbers, np.float64)
        except (KeyError, TypeError, OverflowError):
            return None
        if not is_in_range(values):
            return None
        if len(record) > self._n_features and not all(map(self._may_ignore, record.items())):
            return None
        data = np.empty((1, self._width), self._field.dtype)
        data[0, self._number_places] = values
        for at, value in others:
            if value is None:
                return None
            data[0, at] = value
        return {"data": data.reshape(1, *self._field.shape)}, filled

    def _may_ignore(self, item: tuple[Any, Any]) -> bool:
        """Return whether a column is a feature, or no reason for the table encoder to raise an error."""
        name, value = item
        if name in self._features:
            return True
        is_plain = type(value) in IGNORED or (type(value) is str and value.isprintable())
        return type(name) is str and name.isascii() and is_plain

    def can_learn(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has values to remember."""
        new_fills = (name not in self._fills and _is_missing(record.get(name)) for name in self._numbers)
        return not self._is_checked or any(new_fills) or any(True for _ in self._new_values(record))

    def _new_values(self, record: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[Any, Any], Any]]:
        for name, at, known in self._others:
            key = type(record.get(name)), record.get(name)
            if name not in self._texts and key[0] in REMEMBERED and key not in known and len(known) < MAX_REMEMBERED:
                yield name, at, known, key

    def learn(self, record: Mapping[str, Any], arrays: Arrays, filled: Collection[str]) -> None:
        """Remember the values of a record that was encoded without errors and warnings.

        Parameters
        ----------
        record : mapping of str to value
        arrays : dict of str to ndarray
            The record as the table encoder has encoded it.
        filled : collection of str
            Columns whose value was filled in. Values other than numbers are then left to the table encoder, which
            counts them.
        """
        row = arrays["data"].reshape(-1)
        for name, at, known, key in self._new_values(record):
            known[key] = None if name in filled else row[at].copy()
        for name, at in zip(self._numbers, self._number_places, strict=True):
            if name in filled:
                self._fills[name] = float(row[at])
        self._is_checked = True


def _is_missing(value: Any) -> bool:
    return value is None or (type(value) in NUMBERS and value != value)
