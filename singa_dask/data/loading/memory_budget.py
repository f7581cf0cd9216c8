"""MemoryBudget: divide the memory of a loader. Does no I/O."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from singa_dask.data.sampler import MAX_STEPS, Sampler
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Block
from singa_dask.errors import DataError

DEFAULT_BYTES = 1280 << 20
IN_FLIGHT_BYTES = 64 << 20
# maximum size of a buffer of batches
BUFFER_BYTES = 4 << 20
# maximum bytes of prefetched batches: with more, batches would be evicted from the CPU caches before they are used
BATCHES_BYTES = 8 << 20
BATCHES_STEPS = 2 * MAX_STEPS
# maximum number of local blocks that are decoded ahead, in addition to the first: more would be evicted from the CPU
# caches
LOCAL_BLOCKS = 5
MIB = 1 << 20


class MemoryBudget:
    """The memory of a loader, divided into parts. Together, the parts take at most ``bytes_bound``.

    Memory is assigned in this order:

    1. Required memory: two buffers of batches, and the block that is being read and decoded. In file order, batches
    can be views of blocks; these blocks are required, too.
    2. The blocks from which a shuffled order draws at the same time.
    3. More batches, and blocks in flight.
    4. Blocks that are kept for the next epoch: all blocks if they fit, else the first blocks of the epoch. It would be
    useless to keep the last blocks, because they would be replaced before the next epoch needs them.

    Blocks of a mapped store count as zero bytes, because the operating system can reclaim their pages.

    Parameters
    ----------
    store : Store
    sampler : Sampler
    n_workers : int
        Number of workers of the group.
    prefetch : bool
        Whether the loader reads ahead. If the store decodes ahead, blocks in flight are decoded, and each of them
        needs `decoding_bytes` of additional memory.
    bytes_bound : int, optional
        Maximum number of bytes of a loader, if the user has set it. The default is `DEFAULT_BYTES`, or more if blocks
        are large.
    share : int, optional
        The loader's share of this process's memory in bytes, if it is known. If ``bytes_bound`` is not passed, the
        loader uses at most ``share``; only required memory may exceed this, up to twice the share.
    in_flight_bytes : int
        Maximum bytes in flight.

    Raises
    ------
    DataError
        The memory has no room for one block, or for two batches.

    Attributes
    ----------
    decodes_ahead : bool
        Whether blocks in flight are decoded.
    bytes_bound : int
        Maximum bytes of all parts together.
    buffer_steps : int
        Batches per buffer.
    buffer_bytes : int
        Bytes of a buffer. If batches are views of blocks, the blocks are included.
    batches : int
        Bytes of all buffers, whether in use, waiting or being read. There are at least two buffers.
    in_flight : int
        Bytes of blocks that are requested or decoded ahead and not yet used; at least one block.
    pool_blocks : int
        Number of blocks in a `BlockPool`; 0 if the blocks in use do not fit.
    n_kept : int
        Number of most recently used blocks that the reader keeps.
    resident_bytes : int
        Bytes for the first blocks of the store, which stay in memory in addition to the ``n_kept`` blocks.
    horizon : int
        Number of steps whose blocks are read ahead.
    n_in_use : int
        Number of blocks from which the order draws records at the same time.
    n_runs : int
        Number of partly read runs that are kept in memory; see `Store.runs`. 0 if each block is a run of its own.
    runs_in_use : int
        Number of runs from which the order draws records at the same time.
    """

    def __init__(
        self,
        store: Store,
        sampler: Sampler,
        n_workers: int,
        prefetch: bool,
        bytes_bound: int | None = None,
        share: int | None = None,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
    ) -> None:
        self._store, self._sampler = store, sampler
        self.decodes_ahead = prefetch and store.decodes_ahead
        self._in_order = sampler.shuffle == "none"
        bound = bytes_bound or min(DEFAULT_BYTES, share or DEFAULT_BYTES)
        self._record = store.record_bytes
        self._largest = max(store.blocks, key=self._reading)
        self._decoded = 0 if store.mapped else self._record * max(block.n for block in store.blocks)
        # when records are read in file order, a batch can span two blocks
        self._min_kept = 2 if self._in_order else 1
        batch = max(high - low for low, high in pairwise(sampler.bounds(n_workers))) * self._record
        self.buffer_steps = max(1, min(MAX_STEPS, min(BUFFER_BYTES, bound // 8) // max(batch, 1)))
        # when records are read in file order, batches are either views of blocks or copies in buffers
        times = 2 if self._in_order and not store.mapped else 1
        self.buffer_bytes = self.buffer_steps * batch * times
        self.n_in_use = min(len(store.blocks), sampler.blocks_in_use(n_workers) or len(store.blocks))
        self.runs_in_use, self._run_bytes = self._runs()
        self.bytes_bound = bound if self._needed() <= bound else self._needed_beyond_bound(bytes_bound, share)
        rest = self.bytes_bound - self._needed()
        self.n_runs = min(self.runs_in_use, 1 + rest // max(self._run_bytes, 1))
        rest -= max(self.n_runs - 1, 0) * self._run_bytes
        self.pool_blocks, pool_bytes = self._pool(rest - min(rest // 8, BATCHES_BYTES + in_flight_bytes))
        rest -= pool_bytes
        most = min(BATCHES_BYTES * times, BATCHES_STEPS // self.buffer_steps * self.buffer_bytes)
        more = max(0, min(most - 2 * self.buffer_bytes, rest // 2))
        self.batches = 2 * self.buffer_bytes + more
        rest -= more
        ahead = max(0, min(in_flight_bytes - self._one_in_flight, self._ahead(rest)))
        self.in_flight = self._one_in_flight + ahead
        self.horizon = self.in_flight // max(batch, 1)
        self.n_kept, self.resident_bytes = self._kept(rest - ahead)

    def _runs(self) -> tuple[int, int]:
        """Return the number of runs from which the order draws at the same time, and the memory of one run."""
        store = self._store
        if store.runs is None:
            return 0, 0
        of_run = np.bincount(store.runs, [block.length for block in store.blocks])
        # a stream has one run, but holds two blocks while it changes from one block to the next
        of_full = int(np.count_nonzero(of_run))
        n = {"none": 1, "block": max(self.n_in_use // 2, 1), "full": of_full}[self._sampler.shuffle]
        return n, int(of_run.max()) if store.remote else 0

    def _reading(self, block: Block) -> int:
        """Return the memory for reading a block: its bytes, and its records while they are decoded."""
        return 0 if self._store.mapped else block.length + decoding_bytes(self._store, block)

    def _needed(self) -> int:
        # batches in use can be views of another block
        kept = (self._min_kept + self._in_order) * self._decoded
        reading = 0 if self.decodes_ahead else self._reading(self._largest)
        return 2 * self.buffer_bytes + reading + kept + self._one_in_flight + self._run_bytes

    @property
    def _one_in_flight(self) -> int:
        if self.decodes_ahead:
            return self._reading(self._largest)
        return max(block.length for block in self._store.blocks) if self._store.remote else 0

    def _needed_beyond_bound(self, chosen: int | None, share: int | None) -> int:
        """Return the required bytes if they may exceed the limit; else raise a `DataError`."""
        needed, most = self._needed(), chosen or (share and 2 * share)
        if most is None or (needed <= most and not chosen):
            return needed
        block, largest = self._largest, self._reading(self._largest)
        says = "memory_mb allows" if chosen else "The memory of the process allows this reader"
        advice = "or write the records in smaller blocks" if largest > 2 * self.buffer_bytes else "or lower batchsize"
        raise DataError(
            f"{self._store.url}, block {block.id}: the block has {block.n} records, {_mib(block.n * self._record)} "
            f"MiB. Reading it takes {_mib(needed)} MiB of memory: a block of that size, and batches of "
            f"{_mib(2 * self.buffer_bytes)} "
            f"MiB. {says} {most // MIB} MiB. Set memory_mb: {_mib(needed)}, {advice}."
        )

    def _ahead(self, free: int) -> int:
        """Return how many of ``free`` bytes may be in flight."""
        if self._store.remote:
            return free
        # for local files, reading ahead saves only decoding time: most memory is better used to keep blocks for later
        # epochs
        return min(free // 8, LOCAL_BLOCKS * self._one_in_flight) if self.decodes_ahead else 0

    def _kept(self, free: int) -> tuple[int, int]:
        """Divide ``free`` bytes among `n_kept` and `resident_bytes`."""
        n_blocks = len(self._store.blocks)
        if self._store.mapped or self._store.count * self._record <= free:
            return n_blocks, 0
        if self._in_order and self._sampler.count * self._record > free:
            return self._min_kept, free
        # if there is a pool, it keeps the blocks; this reader then reads only the records that replace bad records
        resident = free - free // 8 if 0 < self.pool_blocks < n_blocks else 0
        return min(n_blocks, self._min_kept + (free - resident) // max(self._decoded, 1)), resident

    def _pool(self, free: int) -> tuple[int, int]:
        """Return the number of blocks and the bytes of a pool, which takes at most ``free`` bytes."""
        store = self._store
        if self._in_order:
            return 0, 0
        if store.count * self._record <= free:
            return len(store.blocks), store.count * self._record
        n_bytes = self.n_in_use * max(block.n for block in store.blocks) * self._record
        return (self.n_in_use, n_bytes) if n_bytes <= free else (0, 0)


def decoding_bytes(store: Store, block: Block) -> int:
    """Return the number of bytes for decoding the records of a block."""
    return 2 * block.n * store.record_bytes


def _mib(n_bytes: int) -> int:
    """Return a size in MiB, rounded up."""
    return -(-n_bytes // MIB)
