"""Bad records: policy, substitution by other records, and a log.

Batches stay full, and the order of other records does not change. The substitute of a bad record depends only on the
store, the seed and the record, so it is the same for any number of workers and after a resume.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.order.shuffle import draw
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

OnError = Literal["raise", "skip", "replace"]

MAX_DRAWS = 8


@dataclass(frozen=True)
class BadPolicy:
    """How a loader treats bad records.

    A store that cannot be opened is an error under every policy: a missing or empty file, an unreadable directory, a
    truncated LMDB file, an invalid first record.

    Attributes
    ----------
    on_error : {"raise", "skip", "replace"}
        ``raise``: a bad record is an error. ``skip``: it is replaced by the next good record of the store (wrapping
        around). ``replace``: it is replaced by a random record of the store.
    max_bad : float
        Maximum number of bad records that a loader tolerates: a count if >= 1, else a fraction of the store's records
        (at least one record).
    labels : int
        Labels must be in 0 to ``labels - 1``; 0 disables the check.
    seed : int
        Seed of the random replacement.
    """

    on_error: OnError = "raise"
    max_bad: float = 0.01
    labels: int = 0
    seed: int = 0

    def max_records(self, count: int) -> int:
        """Return the maximum number of bad records among ``count``."""
        return int(self.max_bad) if self.max_bad >= 1 else max(1, int(self.max_bad * count))


class BadRecord(NamedTuple):
    """A bad record in a batch.

    Attributes
    ----------
    record : int
        Index in the store; -1 for a truncated end of the file, which has no index.
    block, row : int or None
        Block, and row in it; no row if the whole block is bad.
    rows : int
        Number of records of a block that is bad as a whole, else 1.
    reason : str
    """

    record: int
    block: int | None
    row: int | None
    rows: int
    reason: str

    def facts(self) -> dict[str, Any]:
        """Return what is reported of it."""
        whole = self.row is None and self.block is not None
        return {
            "block": self.block,
            "row": self.row,
            **({"rows": self.rows} if whole else {}),
            "reason": self.reason.rstrip("."),
        }


class BadLog:
    """The distinct bad records in the batches handed out so far.

    Parameters
    ----------
    url : str
    max_bad : int
        Maximum number of bad records.
    truncation : str
        `Store.truncation`; if not empty, it counts as one bad record.

    Attributes
    ----------
    records : set of int
        Their indices in the store.
    """

    def __init__(self, url: str, max_bad: int, truncation: str = "") -> None:
        self.url, self.max_bad = url, max_bad
        self.records: set[int] = {-1} if truncation else set()
        self._blocks: set[int] = set()
        self._new = [BadRecord(-1, None, None, 1, truncation)] if truncation else []

    def add(self, found: list[BadRecord]) -> None:
        """Add the bad records of a batch.

        Raises
        ------
        DataError
            There are more than ``max_bad``.
        """
        for bad in found:
            if bad.record in self.records:
                continue
            self.records.add(bad.record)
            if bad.row is None and bad.block is not None:
                if bad.block in self._blocks:
                    continue
                self._blocks.add(bad.block)
            self._new.append(bad)
        if found and len(self.records) > self.max_bad:
            raise DataError(
                f"{self.url}: {len(self.records)} bad records, more than the {self.max_bad} that max_bad allows. "
                f"The last: {_show(found[-1])}."
            )

    def take(self) -> list[BadRecord]:
        """Return the records added since the last call; of a block that is bad as a whole, only the first record."""
        new, self._new = self._new, []
        return new


class Substituter:
    """Replaces bad records by others. Used by the thread that reads.

    Parameters
    ----------
    reader : BlockReader
        Knows which records are bad.
    policy : BadPolicy
    """

    def __init__(self, reader: BlockReader, policy: BadPolicy) -> None:
        self._reader, self._store, self._policy = reader, reader.store, policy
        self._max_bad = policy.max_records(self._store.count)
        self._substitutes: dict[int, int] = {}

    def describe(self, ids: npt.NDArray[np.int64]) -> list[BadRecord]:
        """Return what is wrong with bad records."""
        found = []
        for record in ids.tolist():
            block, row = self._reader.locate(record)
            bad, n = self._reader.bad[block], self._store.blocks[block].n
            whole = len(bad) == n
            found.append(BadRecord(record, block, None if whole else row, n if whole else 1, bad[row]))
        return found

    def replace(self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], out: Arrays) -> npt.NDArray[np.int64]:
        """Replace bad records of a batch.

        Parameters
        ----------
        ids : (n,) int64
            Records of the batch.
        rows : (m,) int64
            Rows of the bad records.
        out : dict of str to ndarray
            The batch, modified in place.

        Returns
        -------
        (n,) int64
            The records of the batch after replacement.

        Raises
        ------
        DataError
            There is no good record, or too many consecutive ones are bad.
        """
        ids = ids.copy()
        for row in rows.tolist():
            record = ids[row] = self.substitute(int(ids[row]))
            block, source = self._reader.locate(record)
            for name, array in self._reader.block(block).items():
                out[name][row] = array[source]
        return ids

    def substitute(self, record: int) -> int:
        """Return the substitute of ``record``."""
        found = self._substitutes.get(record)
        if found is None:
            found = self._draw(record) if self._policy.on_error == "replace" else self._walk(record)
            self._substitutes[record] = found
        return found

    def _draw(self, record: int) -> int:
        for attempt in range(MAX_DRAWS):
            drawn = draw(self._store.count, self._policy.seed, "replace", record, attempt)
            block, row = self._reader.locate(drawn)
            self._reader.block(block)
            if row not in self._reader.bad.get(block, {}):
                return drawn
        return self._walk(record)

    def _walk(self, record: int) -> int:
        first, row = self._reader.locate(record)
        passed = 0
        # the first block is visited again at the end, for the records before this one
        for step in range(len(self._store.blocks) + 1):
            block = (first + step) % len(self._store.blocks)
            n = self._store.blocks[block].n
            self._reader.block(block)
            bad = self._reader.bad.get(block, {})
            low = row + 1 if not step else 0
            good = next((each for each in range(low, n) if each not in bad), None)
            if good is not None:
                return int(self._store.starts[block]) + good
            passed += n if step else 0
            if passed > self._max_bad:
                break
        reason = next(iter(self._reader.bad[block].values())).rstrip(".")
        raise DataError(
            f"{self._store.url}: no good record to replace record {record}: all in blocks {first} to "
            f"{block} are bad; max_bad allows {self._max_bad}. The last: {reason}."
        )


def _show(bad: BadRecord) -> str:
    where = f"block {bad.block}" if bad.block is not None else "the end of the file"
    return f"{where}{f', row {bad.row}' if bad.row is not None else ''}: {bad.reason.rstrip('.')}"
