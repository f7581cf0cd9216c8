"""What happens to records that cannot be read: an error, or another record in their place, counted and reported.

Batches stay full and the order never shifts. Which record takes the place of a bad one depends on the store, the seed
and the bad record alone: it is the same for any number of workers, and after a resume.
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

__all__ = ["BadLog", "BadPolicy", "BadRecord", "OnError", "Substituter"]

OnError = Literal["raise", "skip", "replace"]

MAX_DRAWS = 8


@dataclass(frozen=True)
class BadPolicy:
    """What a loader does about bad records.

    A store that cannot be opened at all is an error under every policy: a missing or empty file, a directory that
    cannot be read, an LMDB file that is cut short, a first record that does not tell what the others hold.

    Attributes
    ----------
    on_error : {"raise", "skip", "replace"}
        ``raise``: a bad record is an error. ``skip``: the next good one of the store, from the last on to the first,
        takes its place. ``replace``: one drawn at random from the store does.
    max_bad : float
        Most bad records that one loader passes over: a number from 1 on, or a share of the store's records (at least
        one record).
    labels : int
        Labels must lie in 0 to ``labels - 1``; 0: they are not looked at.
    seed : int
        Of what is drawn.
    """

    on_error: OnError = "raise"
    max_bad: float = 0.01
    labels: int = 0
    seed: int = 0

    def max_records(self, count: int) -> int:
        """Return the most bad records among ``count``."""
        return int(self.max_bad) if self.max_bad >= 1 else max(1, int(self.max_bad * count))


class BadRecord(NamedTuple):
    """A record that a batch wanted and could not have.

    Attributes
    ----------
    record : int
        Its number in the store; -1 for a torn end of the file, which has no number.
    block, row : int or None
        Where it stands; no row if the whole block is bad.
    rows : int
        Records of a block that is bad as a whole, else 1.
    reason : str
    """

    record: int
    block: int | None
    row: int | None
    rows: int
    reason: str

    def facts(self) -> dict[str, Any]:
        """Return what people should know of it."""
        whole = self.row is None and self.block is not None
        return {
            "block": self.block,
            "row": self.row,
            **({"rows": self.rows} if whole else {}),
            "reason": self.reason.rstrip("."),
        }


class BadLog:
    """The bad records that the batches handed out so far have wanted, each once.

    Parameters
    ----------
    url : str
    most : int
        How many there may be.
    truncation : str
        What is torn off at the end of the store, if something is: one bad record.

    Attributes
    ----------
    records : set of int
        Their numbers in the store.
    """

    def __init__(self, url: str, max_bad: int, truncation: str = "") -> None:
        self.url, self.max_bad = url, max_bad
        self.records: set[int] = {-1} if truncation else set()
        self._blocks: set[int] = set()
        self._new = [BadRecord(-1, None, None, 1, truncation)] if truncation else []

    def add(self, wanted: list[BadRecord]) -> None:
        """Note what a batch wanted.

        Raises
        ------
        DataError
            It is one too many.
        """
        for bad in wanted:
            if bad.record in self.records:
                continue
            self.records.add(bad.record)
            if bad.row is None and bad.block is not None:
                if bad.block in self._blocks:
                    continue
                self._blocks.add(bad.block)
            self._new.append(bad)
        if wanted and len(self.records) > self.max_bad:
            raise DataError(
                f"{self.url}: {len(self.records)} bad records, more than the {self.max_bad} that max_bad allows. "
                f"The last: {_show(wanted[-1])}."
            )

    def take(self) -> list[BadRecord]:
        """Return what was not returned before; of a block that is bad as a whole, only the first record."""
        new, self._new = self._new, []
        return new


class Substituter:
    """Finds the record that takes the place of a bad one; used by the thread that reads.

    Parameters
    ----------
    reader : BlockReader
        Has found out which records are bad.
    policy : BadPolicy
    """

    def __init__(self, reader: BlockReader, policy: BadPolicy) -> None:
        self._reader, self._store, self._policy = reader, reader.store, policy
        self._max_bad = policy.max_records(self._store.count)
        self._given: dict[int, int] = {}

    def describe(self, ids: npt.NDArray[np.int64]) -> list[BadRecord]:
        """Say what is wrong with bad records."""
        found = []
        for record in ids.tolist():
            block, row = self._reader.locate(record)
            bad, n = self._reader.bad[block], self._store.blocks[block].n
            whole = len(bad) == n
            found.append(BadRecord(record, block, None if whole else row, n if whole else 1, bad[row]))
        return found

    def replace(self, ids: npt.NDArray[np.int64], places: npt.NDArray[np.int64], out: Arrays) -> npt.NDArray[np.int64]:
        """Put other records in some places of a batch.

        Parameters
        ----------
        ids : (n,) int64
            Records of the batch.
        places : (m,) int64
            Rows of the bad ones.
        out : dict of str to ndarray
            The batch, which is written to.

        Returns
        -------
        (n,) int64
            The records that the batch holds now.

        Raises
        ------
        DataError
            There is no good record, or too many bad ones stand in a row.
        """
        ids = ids.copy()
        for place in places.tolist():
            given = ids[place] = self.substitute(int(ids[place]))
            block, row = self._reader.locate(given)
            for name, array in self._reader.block(block).items():
                out[name][place] = array[row]
        return ids

    def substitute(self, record: int) -> int:
        """Return the record that takes the place of ``record``."""
        found = self._given.get(record)
        if found is None:
            found = self._draw(record) if self._policy.on_error == "replace" else self._walk(record)
            self._given[record] = found
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
        # the first block comes again at the end, for what stands before the record
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
            f"{self._store.url}: no good record for the place of record {record}, all in the blocks from {first} to "
            f"{block} are bad; max_bad allows {self._max_bad}. The last: {reason}."
        )


def _show(bad: BadRecord) -> str:
    where = f"block {bad.block}" if bad.block is not None else "the end of the file"
    return f"{where}{f', row {bad.row}' if bad.row is not None else ''}: {bad.reason.rstrip('.')}"
