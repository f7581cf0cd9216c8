"""BlockReader: reads the blocks of a store for a loader, keeps recent ones, and counts bytes.

It also records which records are bad, if that is not an error. How they are replaced is decided in `bad_records`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.locality import Locations
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import Aborted, DataError

PAGE_BYTES = 4096


class BlockReader:
    """Reads blocks. Must be used by one thread at a time.

    Parameters
    ----------
    store : Store
    n_kept : int
        Number of blocks that are kept, the most recently used ones; those of a mapped store are always kept.
    touch : bool
        Whether to load mapped pages into memory immediately.
    cancelled : callable
        Returns whether to stop reading.
    tolerant : bool
        Whether to collect bad records in ``bad``, and replace them by zeros, instead of raising an error.
    labels : int
        Records whose label is not in 0 to ``labels - 1`` are bad; 0 disables the check.
    host_names : collection of str
        Names of this host, see `locality.host_names`.
    fetcher : Fetcher, optional
        Reads blocks ahead.

    Attributes
    ----------
    kept : OrderedDict of int to dict of str to ndarray
        Blocks in memory, the most recently used last.
    bytes_read : int
        Total bytes of the blocks read.
    bytes_local : int
        Those of them that are stored on this host, in local files or according to the filesystem.
    bad : dict of int to dict of int to str
        By block: row of each bad record -> what is wrong with it.
    """

    def __init__(
        self,
        store: Store,
        n_kept: int,
        touch: bool,
        cancelled: Callable[[], bool] = lambda: False,
        *,
        tolerant: bool = False,
        labels: int = 0,
        host_names: Collection[str] = (),
        fetcher: Fetcher | None = None,
    ) -> None:
        self.store, self._fetcher = store, fetcher
        self.kept: OrderedDict[int, Arrays] = OrderedDict()
        self.bytes_read = self.bytes_local = 0
        self._locations, self._host_names = Locations(store.storage_options), host_names
        self.n_kept, self._touch = n_kept, touch
        self._cancelled = cancelled
        self._tolerant = tolerant
        self._labels = labels if "label" in store.schema and not store.schema["label"].shape else 0
        self.bad: dict[int, dict[int, str]] = {}
        self._bad_ids = np.empty(0, np.int64)
        self._checked: set[int] = set()
        self._copied = -1

    def locate(self, record: int) -> tuple[int, int]:
        """Return the block of a record, and its row there."""
        block = int(self.store.starts.searchsorted(record, side="right")) - 1
        return block, record - int(self.store.starts[block])

    def bad_among(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the indices in ``ids`` of bad records. Their blocks must have been read."""
        return np.flatnonzero(np.isin(ids, self._bad_ids))

    def block(self, block: int) -> Arrays:
        """Return the arrays of a block, from memory if it is kept.

        Raises
        ------
        DataError
            The block cannot be read. Names URL and block.
        """
        arrays = self.find(block)
        if arrays is None:
            arrays = self.load(block)
            if self._touch:
                _touch(arrays)
            self._keep(block, arrays)
        return arrays

    def find(self, block: int) -> Arrays | None:
        """Return the arrays of a block if it is kept."""
        arrays = self.kept.get(block)
        if arrays is not None and not self.store.mapped:
            self.kept.move_to_end(block)
        return arrays

    def copies(self, block: int) -> bool:
        """Return whether `copy` of a block that is not kept does less work than reading it."""
        return block in self._checked and self.store.copies_rows(block)

    def copy(self, block: int, row: int, out: Arrays) -> None:
        """Copy consecutive records of a block, from a row on, to ``out``.

        Raises
        ------
        DataError
            The block cannot be read. Names URL and block.
        """
        arrays = self.find(block)
        if arrays is None and not self.copies(block):
            arrays = self.block(block)
        if arrays is None:
            self.store.copy_rows(block, row, out)
            if block != self._copied:
                self._copied = block
                self._count(block)
            return
        for name, array in arrays.items():
            target = out[name]
            target[...] = array[row : row + len(target)]

    def load(self, block: int) -> Arrays:
        """Read a block without keeping it.

        Raises
        ------
        DataError
            The block cannot be read. Names URL and block.
        Aborted
            Reading was cancelled.
        """
        if self._cancelled():
            raise Aborted(f"{self.store.url}, block {block}: reading was cancelled.")
        try:
            arrays = self._read(block)
            bad: dict[int, str] = {}
        except Aborted:
            raise
        except Exception as error:
            named = self.store.named_error(block, error)
            # lack of memory does not mean that the block is bad
            if not self._tolerant or isinstance(error, MemoryError):
                raise named from (error.__cause__ if named is error else error)
            arrays, bad = self._salvage(block, named)
        if self._labels:
            bad = {**self._wrong_labels(block, arrays["label"]), **bad}
        if bad:
            self._note(block, bad)
        self._checked.add(block)
        self._count(block)
        for array in arrays.values():
            # views are handed out, and the block may be kept
            array.flags.writeable = False
        return arrays

    def _count(self, block: int) -> None:
        self.bytes_read += self.store.blocks[block].length
        self.bytes_local += self._locations.local_bytes(self.store.blocks[block], self._host_names)

    def _read(self, block: int) -> Arrays:
        return self.store.read_block(block) if self._fetcher is None else self._fetcher.read_block(block)

    def _salvage(self, block: int, error: DataError) -> tuple[Arrays, dict[int, str]]:
        """Read the good records of a block; all are bad if that fails."""
        try:
            return self.store.salvage(block)
        except Aborted:
            raise
        except Exception:
            n = self.store.blocks[block].n
            zeros = {name: np.zeros_like(array) for name, array in empty_arrays(self.store, n).items()}
            return zeros, dict.fromkeys(range(n), str(error))

    def _wrong_labels(self, block: int, labels: npt.NDArray[np.int32]) -> dict[int, str]:
        """Find the labels that are out of range."""
        if not len(labels) or (labels.min() >= 0 and labels.max() < self._labels):
            return {}
        rows = np.flatnonzero((labels < 0) | (labels >= self._labels)).tolist()
        bad = {row: f"label {labels[row]}, expected 0 to {self._labels - 1}" for row in rows}
        if not self._tolerant:
            raise DataError(f"{self.store.url}, block {block}, row {rows[0]}: {bad[rows[0]]}.")
        return bad

    def _note(self, block: int, bad: dict[int, str]) -> None:
        # once bad, a record stays bad: its zeros may be in a pool
        self.bad[block] = {**self.bad.get(block, {}), **bad}
        starts = self.store.starts
        ids = [int(starts[each]) + row for each, rows in self.bad.items() for row in rows]
        self._bad_ids = np.array(ids, np.int64)

    def clear(self) -> None:
        """Free all blocks."""
        self.kept.clear()

    def _keep(self, block: int, arrays: Arrays) -> None:
        self.kept[block] = arrays
        if len(self.kept) > self.n_kept and not self.store.mapped:
            self.kept.popitem(last=False)


def _touch(arrays: Arrays) -> None:
    """Load the pages of a mapped block here, not in the caller's thread while it computes."""
    for array in arrays.values():
        array.reshape(len(array), -1)[:, :: PAGE_BYTES // array.itemsize].max()


def empty_arrays(store: Store, n: int) -> Arrays:
    """Return uninitialised arrays for ``n`` records: (n, *shape) per field."""
    return {name: np.empty((n, *field.shape), field.dtype) for name, field in store.schema.items()}
