"""BlockReader: read the blocks of a store for a loader, keep recent blocks, and replace bad records.

A bad record is replaced, so that batches stay full and all other records keep their order. The substitute depends only
on the store, the seed and the record. So the substitute is the same for any number of workers and after a resume.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from singa_dask.data.loading.bad_records import BadPolicy, BadRecord
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.locality import Locations
from singa_dask.data.order import Ids
from singa_dask.data.random import draw
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import Aborted, DataError, text_of

PAGE_BYTES = 4096
# number of random draws after which the reader takes the next good record instead
MAX_DRAWS = 8


class BlockReader:
    """Reads blocks. Only one thread may use it at a time.

    Parameters
    ----------
    store : Store
    policy : BadPolicy
        What to do with bad records. If the policy is not to raise an error, bad records are collected in ``bad``, and
        their values in the block are zeros.
    n_kept : int
        Number of most recently used blocks that are kept. All blocks of a mapped store are kept.
    touch : bool
        Whether to load the pages of a mapped block into memory immediately.
    cancelled : callable
        Called without arguments; returns True to stop reading.
    host_names : collection of str
        Names of this host; see `locality.host_names`.
    fetcher : Fetcher, optional
        Reads blocks ahead.
    resident_bytes : int
        Maximum number of bytes of the ``resident`` blocks.

    Attributes
    ----------
    kept : OrderedDict of int to dict of str to ndarray
        Blocks in memory, the most recently used last.
    resident : dict of int to dict of str to ndarray
        Blocks that stay in memory. They are the blocks that were read first.
    bytes_read : int
        Total bytes of the blocks read.
    bytes_local : int
        Bytes of blocks that are stored on this host, in local files or according to the filesystem.
    bad : dict of int to dict of int to str
        What is wrong with each bad record, by block and row.
    """

    def __init__(
        self,
        store: Store,
        policy: BadPolicy,
        n_kept: int = 1,
        touch: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
        host_names: Collection[str] = (),
        fetcher: Fetcher | None = None,
        resident_bytes: int = 0,
    ) -> None:
        self.store, self._policy, self.fetcher = store, policy, fetcher
        self.kept: OrderedDict[int, Arrays] = OrderedDict()
        self.resident: dict[int, Arrays] = {}
        self._resident_bytes = self._resident_left = resident_bytes
        self.bytes_read = self.bytes_local = 0
        self._locations, self._host_names = Locations(store.storage_options), host_names
        self.n_kept, self._touch, self._cancelled = n_kept, touch, cancelled
        self._is_tolerant = policy.on_error != "raise"
        self._labels = policy.labels if "label" in store.schema and not store.schema["label"].shape else 0
        self.bad: dict[int, dict[int, str]] = {}
        self._bad_ids = np.empty(0, np.int64)
        self._substitutes: dict[int, int] = {}

    def locate(self, record: int) -> tuple[int, int]:
        """Return the block of a record, and its row there."""
        block = int(self.store.starts.searchsorted(record, side="right")) - 1
        return block, record - int(self.store.starts[block])

    # -- reading blocks ----------------------------------------------------------------------------------

    def block(self, block: int) -> Arrays:
        """Return the arrays of a block. A block that is in memory is not read again.

        Raises
        ------
        DataError
            The block cannot be read. The message names URL and block.
        """
        arrays = self.kept.get(block)
        if arrays is not None:
            if not self.store.mapped:
                self.kept.move_to_end(block)
            return arrays
        arrays = self.load(block)
        if self._touch:
            # load the pages of a mapped block in this thread, so that the caller does not wait for them
            for array in arrays.values():
                array.reshape(len(array), -1)[:, :: PAGE_BYTES // array.itemsize].max()
        self.kept[block] = arrays
        if len(self.kept) > self.n_kept and not self.store.mapped:
            self.kept.popitem(last=False)
        return arrays

    def load(self, block: int) -> Arrays:
        """Read a block unless it is resident. The block is not kept in memory.

        Raises
        ------
        DataError
            The block cannot be read. The message names URL and block.
        Aborted
            Reading was cancelled.
        """
        if self._cancelled():
            raise Aborted(f"{self.store.url}, block {block}: reading was cancelled.")
        if block in self.resident:
            return self.resident[block]
        bad: dict[int, str] = {}
        try:
            arrays = self.store.read_block(block) if self.fetcher is None else self.fetcher.read_block(block)
        except Aborted:
            raise
        except Exception as error:
            named = self.store.named_error(block, error)
            if not self._is_tolerant or lacks_memory(error):
                raise named from (error.__cause__ if named is error else error)
            arrays, bad = self._salvage(block, named)
        if self._labels:
            bad = {**self._wrong_labels(block, arrays["label"]), **bad}
        if bad:
            # a record that was bad once stays bad, because a pool may contain its zeros
            self.bad[block] = {**self.bad.get(block, {}), **bad}
            ids = [int(self.store.starts[number]) + row for number, rows in self.bad.items() for row in rows]
            self._bad_ids = np.array(ids, np.int64)
        self.bytes_read += self.store.blocks[block].length
        self.bytes_local += self._locations.local_bytes(self.store.blocks[block], self._host_names)
        for array in arrays.values():
            # batches are views of these arrays, and the reader may keep the arrays for later batches
            array.flags.writeable = False
        # count the larger size, because the arrays can be views of the block's bytes
        n_bytes = max(self.store.blocks[block].length, self.store.blocks[block].n * self.store.record_bytes)
        if n_bytes <= self._resident_left:
            self._resident_left -= n_bytes
            self.resident[block] = arrays
        return arrays

    def clear(self) -> None:
        """Free all blocks."""
        self.kept.clear()
        self.resident.clear()
        self._resident_left = self._resident_bytes

    # -- bad records -------------------------------------------------------------------------------------

    def _salvage(self, block: int, error: DataError) -> tuple[Arrays, dict[int, str]]:
        """Read the good records of a block. If that fails, all records of the block are bad."""
        try:
            return self.store.salvage(block)
        except Aborted:
            raise
        except Exception as second:
            if lacks_memory(second):
                raise self.store.named_error(block, second) from second
            reason = str(error)
            if not isinstance(second, DataError):
                reason = f"{reason.rstrip('.')}. Its records cannot be read one by one: {text_of(second)}"
            n = self.store.blocks[block].n
            zeros = {name: np.zeros_like(array) for name, array in empty_arrays(self.store, n).items()}
            return zeros, dict.fromkeys(range(n), reason)

    def _wrong_labels(self, block: int, labels: npt.NDArray[np.int32]) -> dict[int, str]:
        """Return what is wrong with each label that is out of range, by row."""
        if not len(labels) or (labels.min() >= 0 and labels.max() < self._labels):
            return {}
        rows = np.flatnonzero((labels < 0) | (labels >= self._labels)).tolist()
        bad = {row: f"label {labels[row]}, expected 0 to {self._labels - 1}" for row in rows}
        if not self._is_tolerant:
            raise DataError(f"{self.store.url}, block {block}, row {rows[0]}: {bad[rows[0]]}.")
        return bad

    def bad_among(self, ids: Ids) -> Ids:
        """Return the positions of bad records in ``ids``. All blocks of ``ids`` must have been read."""
        return np.flatnonzero(np.isin(ids, self._bad_ids))

    def describe(self, ids: Ids) -> list[BadRecord]:
        """Return what is wrong with bad records."""
        records = []
        for record in ids.tolist():
            block, row = self.locate(record)
            bad, n = self.bad[block], self.store.blocks[block].n
            is_whole = len(bad) == n
            place = self.store.place_of(block, None if is_whole else row)
            records.append(BadRecord(record, *place, n if is_whole else 1, bad[row]))
        return records

    def replace(self, ids: Ids, rows: Ids, out: Arrays) -> Ids:
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
            There is no good record, or too many consecutive records are bad.
        """
        ids = ids.copy()
        for row in rows.tolist():
            record = int(ids[row])
            if record not in self._substitutes:
                self._substitutes[record] = self._substitute(record)
            ids[row] = self._substitutes[record]
            block, source = self.locate(self._substitutes[record])
            for name, array in self.block(block).items():
                out[name][row] = array[source]
        return ids

    def _substitute(self, record: int) -> int:
        """Return a random or the next good record, depending on the policy."""
        for attempt in range(MAX_DRAWS if self._policy.on_error == "replace" else 0):
            drawn = draw(self.store.count, self._policy.seed, "replace", record, attempt)
            block, row = self.locate(drawn)
            self.block(block)
            if row not in self.bad.get(block, {}):
                return drawn
        return self._next_good(record)

    def _next_good(self, record: int) -> int:
        blocks, max_bad = self.store.blocks, self._policy.max_records(self.store.count)
        first, row = self.locate(record)
        passed = 0
        # visit the first block again at the end, because the search starts in the middle of this block
        for step in range(len(blocks) + 1):
            block = (first + step) % len(blocks)
            n = blocks[block].n
            self.block(block)
            bad = self.bad.get(block, {})
            good = next((at for at in range(0 if step else row + 1, n) if at not in bad), None)
            if good is not None:
                return int(self.store.starts[block]) + good
            passed += n if step else 0
            if passed > max_bad:
                break
        reason = next(iter(self.bad[block].values())).rstrip(".")
        raise DataError(
            f"{self.store.url}: no good record to replace record {record}: all records in blocks {first} to {block} "
            f"are bad, and max_bad allows {max_bad}. The last error: {reason}."
        )


def lacks_memory(error: Exception) -> bool:
    """Return whether too little memory, not a bad record, caused an error."""
    return isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)


def empty_arrays(store: Store, n: int) -> Arrays:
    """Return uninitialised arrays for ``n`` records; each field is (n, *shape)."""
    return {name: np.empty((n, *field.shape), field.dtype) for name, field in store.schema.items()}
