"""Bad records: the policy of a loader for bad records, and a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from singa_dask.errors import DataError
from singa_dask.shown import plural

OnError = Literal["raise", "skip", "replace"]


@dataclass(frozen=True)
class BadPolicy:
    """The policy of a loader for bad records.

    A store that cannot be opened is an error under every policy: a missing or empty file, an unreadable directory, a
    truncated LMDB file, or an invalid first record.

    Attributes
    ----------
    on_error : {"raise", "skip", "replace"}
        ``raise``: raise an error for a bad record. ``skip``: use the next good record of the store instead; after the
        last record comes the first. ``replace``: use a random record of the store instead.
    max_bad : float
        Maximum number of bad records that a loader tolerates: a count such as 10, or a fraction of the store's
        records such as 0.01. One bad record is always tolerated.
    labels : int
        Labels must be between 0 and ``labels - 1``; 0 disables the check.
    seed : int
        Seed for ``replace``.
    """

    on_error: OnError = "raise"
    max_bad: float = 0.01
    labels: int = 0
    seed: int = 0

    def max_records(self, count: int) -> int:
        """Return the maximum number of bad records in a store of ``count`` records."""
        return int(self.max_bad) if self.max_bad >= 1 else max(1, int(self.max_bad * count))


class BadRecord(NamedTuple):
    """A bad record in a batch.

    Attributes
    ----------
    record : int
        Index of the record in the store; -1 for a truncated end of the file, which has no index.
    block, row : int or None
        The block of the record, and its row in the block. ``row`` is None if the whole block is bad.
    rows : int
        Number of records in the block if the whole block is bad, else 1.
    reason : str
    """

    record: int
    block: int | None
    row: int | None
    rows: int
    reason: str

    def facts(self) -> dict[str, Any]:
        """Return block, row and reason as a dict, for reports."""
        rows = {"rows": self.rows} if self.row is None and self.block is not None else {}
        return {"block": self.block, "row": self.row, **rows, "reason": self.reason.rstrip(".")}

    def __str__(self) -> str:
        where = f"block {self.block}" if self.block is not None else "the end of the file"
        return f"{where}{f', row {self.row}' if self.row is not None else ''}: {self.reason.rstrip('.')}"


class BadLog:
    """The distinct bad records in all batches so far.

    Parameters
    ----------
    url : str
    max_bad : int
        Maximum number of bad records.
    truncation : str
        `Store.truncation` of the store. A truncation, if there is one, counts as one bad record.

    Attributes
    ----------
    records : set of int
        Indices of the bad records in the store.
    """

    def __init__(self, url: str, max_bad: int, truncation: str = "") -> None:
        self.url, self.max_bad = url, max_bad
        self.records: set[int] = {-1} if truncation else set()
        self._blocks: set[int] = set()
        self._new = [BadRecord(-1, None, None, 1, truncation)] if truncation else []

    def add(self, records: list[BadRecord]) -> None:
        """Add the bad records of a batch; raise a `DataError` if there are more than ``max_bad`` in total."""
        for bad in records:
            if bad.record in self.records:
                continue
            self.records.add(bad.record)
            if bad.row is None and bad.block is not None:
                if bad.block in self._blocks:
                    continue
                self._blocks.add(bad.block)
            self._new.append(bad)
        if records and len(self.records) > self.max_bad:
            count = plural(len(self.records), "bad record")
            last = f"The last: {records[-1]}."
            raise DataError(f"{self.url}: {count}, more than the {self.max_bad} that max_bad allows. {last}")

    def take(self) -> list[BadRecord]:
        """Return the bad records that were added since the previous call.

        For a block that is bad as a whole, only the first record is returned.
        """
        new, self._new = self._new, []
        return new
