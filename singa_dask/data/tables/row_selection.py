"""RowSelection: selects the records of a table to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from singa_dask.data.split import Rows, SplitConf
from singa_dask.data.tables.column_values import key_texts, whole
from singa_dask.errors import DataError

# kinds of columns that can be the key of a split
KEYS = ("string", "number", "boolean", "date", "timestamp", "time", "empty")


@dataclass(frozen=True)
class RowSelection:
    """All records of a table, or a part of them.

    Attributes
    ----------
    split : SplitConf or None
        The part that is read; None for all records.
    n_skipped : int
        Number of records at the beginning that are left out, because they only provide earlier values for later
        records.
    """

    split: SplitConf | None = None
    n_skipped: int = 0

    @property
    def key(self) -> dict[str, str]:
        """Name -> kind of the column that determines the part of a record; empty without such a column."""
        return {self.split.key: "string"} if self.split and self.split.key else {}

    def with_key(self, url: str, wanted: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, str]:
        """Return the kind in which each column is read, including the key.

        ``kinds`` has the kind of each column of the table.

        Raises
        ------
        DataError
            The kind of the key column is not supported.
        """
        for name in self.key:
            if wanted.get(name, "string") != "string" or kinds[name] not in KEYS:
                raise DataError(f"{url}: column {name!r} is the key of split, and read as {kinds[name]}.")
        return {**wanted, **self.key}

    def rows(self, first: int, n: int, keys: Callable[[], pa.Array]) -> Rows | None:
        """Return which of the ``n`` records from ``first`` on are read; None if all are read.

        The result has the offsets of these records from ``first``. ``keys`` is a function that returns the keys of the
        records. It is called only if there is a key.
        """
        return self.split.of_keys(keys()) if self.split and self.key else self._by_number(first, n)

    def count(self, first: int, n: int) -> int:
        """Return how many of the ``n`` records from ``first`` on are read; with a key, return ``n``."""
        rows = None if self.key else self._by_number(first, n)
        return n if rows is None else len(rows)

    def _by_number(self, first: int, n: int) -> Rows | None:
        rows = self.split.rows(first, n) if self.split else None
        if not self.n_skipped:
            return rows
        rows = np.arange(n) if rows is None else rows
        return rows[rows >= self.n_skipped - first]

    def keys_of(self, table: pa.Table) -> pa.Array:
        """Return the keys of the rows of a table, as texts."""
        return key_texts(whole(table.column(next(iter(self.key)))))
