"""Loader: the batches of one worker, read ahead by one thread, in memory bounded in bytes.

Several batches are gathered at once (a slab), block by block, never record by record. Without prefetching the
same is done in the caller's thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.order import Order
from singa_dask.data.store import Arrays, Store
from singa_dask.errors import Aborted, DataError

__all__ = ["Batch", "Loader"]

SLAB_BYTES = 4 << 20
KEPT_BYTES = 1 << 30


@dataclass(frozen=True)
class Batch:
    """Rows of one worker in one step.

    Attributes
    ----------
    arrays : dict of str to ndarray
        (B / n_workers, *shape) of each field. They may be used until the next batch is asked for.
    ids : (B / n_workers,) int64
        The records, by their number in the store.
    """

    arrays: Arrays
    ids: npt.NDArray[np.int64]


@dataclass
class _Slab:
    """Batches that are read at once: their rows in ``buffers``, or views of blocks where a batch lies in one."""

    first_step: int
    ids: npt.NDArray[np.int64]
    buffers: Arrays
    batches: list[Arrays]
    error: BaseException | None = None


class Loader:
    """Reads the batches of one worker of a group, one after another.

    Parameters
    ----------
    store : Store
        Read by this loader alone while it lives.
    order : Order
    worker, n_workers : int
        Place in the group.
    bytes_bound : int
        Most bytes of batches that are read ahead (one slab at least), and of blocks kept for the next epoch.
    prefetch : bool
        Read ahead in a thread.
    name : str
        The thread is called ``prefetch-<name>``.

    Attributes
    ----------
    wait_s : float
        Seconds that callers of `next` waited for records.
    bytes_read : int
        Bytes of the blocks that were read.
    """

    def __init__(
        self,
        store: Store,
        order: Order,
        worker: int = 0,
        n_workers: int = 1,
        *,
        bytes_bound: int = 64 << 20,
        prefetch: bool = True,
        name: str = "data",
    ) -> None:
        self.store, self.order = store, order
        self.worker, self.n_workers = worker, n_workers
        self.name = name
        self.prefetch = prefetch
        self.bytes_bound = bytes_bound
        self.wait_s = 0.0
        self.bytes_read = 0
        rows = order.batch_size // n_workers
        batch_bytes = rows * sum(field.size_bytes for field in store.schema.values())
        # two slabs fit into the bound: one in use, one on its way
        self._slab_steps = max(1, min(64, min(SLAB_BYTES, bytes_bound // 2) // max(batch_bytes, 1)))
        self._slab_bytes = self._slab_steps * batch_bytes
        self._kept: OrderedDict[int, Arrays] = OrderedDict()
        self._kept_bytes = 0
        self._step = 0
        self._slab: _Slab | None = None
        self._spare: list[Arrays] = []
        self._queue: deque[_Slab] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stop = False

    # -- the caller's side -------------------------------------------------------------------------

    def next(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        DataError
            Names URL and block of what could not be read.
        Aborted
            Another thread closed the loader.
        """
        started = time.perf_counter()
        slab = self._slab
        if slab is None or self._step >= slab.first_step + len(slab.ids):
            self._slab = None
            slab = self._slab = self._next_slab(slab)
        self.wait_s += time.perf_counter() - started
        place = self._step - slab.first_step
        self._step += 1
        return Batch(slab.batches[place], slab.ids[place])

    def cursor(self) -> dict[str, Any]:
        """Return where the next batch begins, as a few integers."""
        return self.order.cursor(self._step)

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go on where a cursor was taken; nothing that lies before it is read.

        Raises
        ------
        DataError
            The cursor is of other records or of another order.
        """
        step = self.order.step_at(cursor)
        self._halt()
        self._step = step

    def rewind(self) -> None:
        """Go back to the first batch."""
        self._halt()
        self._step = 0

    def close(self) -> None:
        """Stop the thread, wait for it, and let go of all blocks. The store stays open."""
        self._halt()
        self._kept.clear()
        self._kept_bytes = 0
        self._spare.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next_slab(self, used: _Slab | None) -> _Slab:
        if not self.prefetch:
            return self._read(self._step, used.buffers if used else None)
        if self._thread is None:
            self._stop = False
            self._thread = threading.Thread(
                target=self._read_ahead, args=(self._step,), name=f"prefetch-{self.name}", daemon=True
            )
            self._thread.start()
        with self._ready:
            if used is not None:
                self._spare.append(used.buffers)
            while not self._queue:
                if self._stop:
                    raise Aborted(f"{self.store.url}: closed while a batch was waited for.")
                self._ready.wait()
            slab = self._queue.popleft()
            self._ready.notify_all()
        if slab.error is not None:
            self._halt()
            raise slab.error
        return slab

    def _halt(self) -> None:
        """End the thread; what it has read ahead is dropped."""
        thread = self._thread
        if thread is not None:
            with self._ready:
                self._stop = True
                self._ready.notify_all()
            thread.join()
        self._thread = None
        self._queue.clear()
        self._slab = None

    # -- the thread's side -------------------------------------------------------------------------

    def _read_ahead(self, step: int) -> None:
        while self._wait_for_room():
            with self._ready:
                spare = self._spare.pop() if self._spare else None
            try:
                slab = self._read(step, spare)
            except BaseException as error:  # handed to the caller, whatever it is
                slab = _Slab(step, np.empty((0, 0), np.int64), {}, [], error)
            with self._ready:
                self._queue.append(slab)
                self._ready.notify_all()
            if slab.error is not None:
                return
            step += len(slab.ids)

    def _wait_for_room(self) -> bool:
        """Wait until another slab may be read; False if the loader is to stop."""
        with self._ready:
            # one slab more is in the caller's hands, and one is about to be read
            while not self._stop and (len(self._queue) + 2) * self._slab_bytes > self.bytes_bound and self._queue:
                self._ready.wait()
            return not self._stop

    def _read(self, step: int, spare: Arrays | None) -> _Slab:
        ids = self.order.rows(step, self.worker, self.n_workers, self._slab_steps)
        buffers = spare or {
            name: np.empty((ids.size, *field.shape), field.dtype) for name, field in self.store.schema.items()
        }
        blocks = (np.searchsorted(self.store.starts, ids.reshape(-1), side="right") - 1).reshape(ids.shape)
        if self.order.shuffle == "none":
            batches = self._follow(ids, blocks, _split(buffers, ids))
        else:
            self._gather(ids.reshape(-1), blocks.reshape(-1), buffers)
            batches = _split(buffers, ids)
        return _Slab(step, ids, buffers, batches)

    def _follow(self, ids: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], buffers: list[Arrays]) -> list[Arrays]:
        """Read records that follow each other: a view where a batch lies in one block, else copied in runs."""
        whole = (blocks[:, 0] == blocks[:, -1]) & (ids[:, -1] - ids[:, 0] == ids.shape[1] - 1)
        firsts = (ids[:, 0] - self.store.starts[blocks[:, 0]]).tolist()
        batches = []
        for i, (block, first) in enumerate(zip(blocks[:, 0].tolist(), firsts, strict=True)):
            arrays = self._block(block) if whole[i] else {}
            if arrays and all(array.flags.c_contiguous for array in arrays.values()):
                batches.append({name: array[first : first + ids.shape[1]] for name, array in arrays.items()})
            else:
                self._copy_runs(ids[i], blocks[i], buffers[i])
                batches.append(buffers[i])
        return batches

    def _copy_runs(self, ids: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], out: Arrays) -> None:
        edges = [0, *(np.flatnonzero((np.diff(ids) != 1) | (np.diff(blocks) != 0)) + 1).tolist(), len(ids)]
        for low, high in itertools.pairwise(edges):
            block = int(blocks[low])
            first = int(ids[low] - self.store.starts[block])
            for name, array in self._block(block).items():
                out[name][low:high] = array[first : first + high - low]

    def _gather(self, ids: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], out: Arrays) -> None:
        """Read records that lie anywhere, block by block."""
        targets = {name: _as_items(array) for name, array in out.items()}
        by_block = np.argsort(blocks, kind="stable")
        edges = np.flatnonzero(np.diff(blocks[by_block])) + 1
        for places in np.split(by_block, edges):
            block = int(blocks[places[0]])
            rows = ids[places] - self.store.starts[block]
            for name, array in self._block(block, contiguous=True).items():
                targets[name][places] = _as_items(array)[rows]

    def _block(self, block: int, contiguous: bool = False) -> Arrays:
        """Return a block's arrays, from memory if it was used lately."""
        arrays = self._kept.get(block)
        if arrays is not None:
            self._kept.move_to_end(block)
            return arrays
        if self._stop:
            raise DataError(f"{self.store.url}, block {block}: reading was cancelled.")
        try:
            arrays = self.store.read_block(block)
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"{self.store.url}, block {block}: {type(error).__name__}: {error}") from error
        self.bytes_read += self.store.blocks[block].length
        if contiguous:
            # rows that are strided would be copied at each gathering
            arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        if self.prefetch:
            _touch(arrays)
        self._keep(block, arrays)
        return arrays

    def _keep(self, block: int, arrays: Arrays) -> None:
        self._kept[block] = arrays
        self._kept_bytes += sum(array.nbytes for array in arrays.values())
        most = self.order.blocks_in_use or len(self.store.blocks)
        while len(self._kept) > 1 and self._kept_bytes > (self.bytes_bound if len(self._kept) > most else KEPT_BYTES):
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= sum(array.nbytes for array in dropped.values())


def _split(buffers: Arrays, ids: npt.NDArray[np.int64]) -> list[Arrays]:
    """Cut the buffers of a slab into batches."""
    steps, rows = ids.shape
    return [{name: array[i * rows : (i + 1) * rows] for name, array in buffers.items()} for i in range(steps)]


def _as_items(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """See each record as one item of so many bytes: numpy moves such items faster than rows."""
    if array.ndim == 1:
        return array
    n_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    return array.reshape(len(array), -1).view(f"V{n_bytes}").reshape(len(array))


def _touch(arrays: Arrays) -> None:
    """Bring a mapped block into memory here, not in the caller's thread when it computes."""
    for array in arrays.values():
        if array.flags.c_contiguous:
            array.reshape(-1)[::512].max()
