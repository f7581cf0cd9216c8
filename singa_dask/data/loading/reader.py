"""BlockReader: reads the blocks of a store for one loader, keeps the recent ones, and counts their bytes.

It also finds out which records are bad, where that is not to be an error: what happens to them is said elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from singa_dask.data.loading.block_pool import empty_arrays
from singa_dask.data.loading.locality import Locations
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["BlockReader"]

PAGE_BYTES = 4096


class BlockReader:
    """Reads blocks; used by one thread at a time.

    Parameters
    ----------
    store : Store
    least : int
        Blocks that are kept whatever they weigh.
    bytes_bound : int
        Most bytes of blocks kept beyond that; those of a mapped store are all kept.
    touch : bool
        Bring what is read into memory at once.
    cancelled : callable
        Says whether reading is to stop.
    tolerant : bool
        Note bad records in ``bad``, with zeros in their place; otherwise they are errors.
    labels : int
        A record whose label is not one of 0 to ``labels - 1`` is bad; 0: they are not looked at.
    host_names : collection of str
        Of the host that reads, as `locality.host_names` returns them.

    Attributes
    ----------
    kept : OrderedDict of int to dict of str to ndarray
        Blocks in memory, the one used last at the end.
    bytes_read : int
        Bytes of the blocks that were read.
    bytes_local : int
        Those of them that lie on this host, in local files or as the filesystem says.
    bad : dict of int to dict of int to str
        By block: the rows of bad records in it, and what is wrong with them.
    """

    def __init__(
        self,
        store: Store,
        min_blocks: int,
        bytes_bound: int,
        touch: bool,
        cancelled: Callable[[], bool] = lambda: False,
        *,
        tolerant: bool = False,
        labels: int = 0,
        host_names: Collection[str] = (),
    ) -> None:
        self.store = store
        self.kept: OrderedDict[int, Arrays] = OrderedDict()
        self.bytes_read = self.bytes_local = 0
        self._locations, self._host_names = Locations(store.storage_options), host_names
        self._min_blocks, self._bytes_bound, self._touch = min_blocks, bytes_bound, touch
        self._cancelled = cancelled
        self._kept_bytes = 0
        self._tolerant = tolerant
        self._labels = labels if "label" in store.schema else 0
        self.bad: dict[int, dict[int, str]] = {}
        self._bad_ids = np.empty(0, np.int64)

    def locate(self, record: int) -> tuple[int, int]:
        """Return block and row of a record."""
        block = int(self.store.starts.searchsorted(record, side="right")) - 1
        return block, record - int(self.store.starts[block])

    def bad_among(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the places of bad records in ``ids``, all of blocks that were read."""
        return np.flatnonzero(np.isin(ids, self._bad_ids))

    def block(self, block: int) -> Arrays:
        """Return a block's arrays, from memory if it was used lately.

        Raises
        ------
        DataError
            Names URL and block of what could not be read.
        """
        arrays = self.kept.get(block)
        if arrays is not None:
            if not self.store.mapped:
                self.kept.move_to_end(block)
            return arrays
        arrays = self.load(block)
        if self._touch:
            _touch(arrays)
        self._keep(block, arrays)
        return arrays

    def load(self, block: int) -> Arrays:
        """Read a block, and do not keep it.

        Raises
        ------
        DataError
            Names URL and block of what could not be read.
        """
        if self._cancelled():
            raise DataError(f"{self.store.url}, block {block}: reading was cancelled.")
        try:
            arrays = self.store.read_block(block)
            bad: dict[int, str] = {}
        except Exception as error:
            named = self._named_error(block, error)
            # what would be read with more memory is not bad
            if not self._tolerant or isinstance(error, MemoryError):
                raise named from error
            arrays, bad = self._salvage(block, named)
        if self._labels:
            bad = {**self._wrong_labels(block, arrays["label"]), **bad}
        if bad:
            self._note(block, bad)
        self.bytes_read += self.store.blocks[block].length
        self.bytes_local += self._locations.local_bytes(self.store.blocks[block], self._host_names)
        for array in arrays.values():
            # views of it are handed out, and it may be kept
            array.flags.writeable = False
        return arrays

    def _named_error(self, block: int, error: Exception) -> DataError:
        """Return an error that names URL and block."""
        where, file = f"{self.store.url}, block {block}", self.store.blocks[block].file
        if not isinstance(error, DataError):
            return DataError(f"{where}: {type(error).__name__}: {error}")
        rest = str(error).removeprefix(file)
        if rest == str(error) or rest[:1] not in (",", ":"):
            return DataError(f"{where}: {error}")
        return error if ", block " in rest else DataError(f"{file}, block {block}{rest}")

    def _salvage(self, block: int, error: DataError) -> tuple[Arrays, dict[int, str]]:
        """Read what can be read of a block; all of it is bad if nothing can."""
        try:
            return self.store.salvage(block)
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
        # what was bad once stays bad: its zeros may lie somewhere
        self.bad[block] = {**self.bad.get(block, {}), **bad}
        starts = self.store.starts
        ids = [int(starts[each]) + row for each, rows in self.bad.items() for row in rows]
        self._bad_ids = np.array(ids, np.int64)

    def clear(self) -> None:
        """Let go of all blocks."""
        self.kept.clear()
        self._kept_bytes = 0

    def _keep(self, block: int, arrays: Arrays) -> None:
        self.kept[block] = arrays
        if self.store.mapped:
            return
        self._kept_bytes += sum(array.nbytes for array in arrays.values())
        while len(self.kept) > self._min_blocks and self._kept_bytes > self._bytes_bound:
            _, dropped = self.kept.popitem(last=False)
            self._kept_bytes -= sum(array.nbytes for array in dropped.values())


def _touch(arrays: Arrays) -> None:
    """Bring a mapped block into memory here, not in the caller's thread when it computes."""
    for array in arrays.values():
        array.reshape(len(array), -1)[:, :: PAGE_BYTES // array.itemsize].max()
