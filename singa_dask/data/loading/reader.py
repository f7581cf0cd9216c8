"""BlockReader: reads the blocks of a store for a loader, keeps recent ones, and replaces bad records; who reads which.

Batches stay full, and the order of other records does not change. The substitute of a bad record depends only on the
store, the seed and the record, so it is the same for any number of workers and after a resume.
"""

from __future__ import annotations

import contextlib
import socket
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.random import draw, permutation
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays, Block
from singa_dask.errors import Aborted, DataError
from singa_dask.shown import plural

PAGE_BYTES = 4096
# random records that may be bad before the next good one is taken
MAX_DRAWS = 8
Ids = npt.NDArray[np.int64]
OnError = Literal["raise", "skip", "replace"]


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
        rows = {"rows": self.rows} if self.row is None and self.block is not None else {}
        return {"block": self.block, "row": self.row, **rows, "reason": self.reason.rstrip(".")}

    def __str__(self) -> str:
        where = f"block {self.block}" if self.block is not None else "the end of the file"
        return f"{where}{f', row {self.row}' if self.row is not None else ''}: {self.reason.rstrip('.')}"


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

    def add(self, records: list[BadRecord]) -> None:
        """Add the bad records of a batch.

        Raises
        ------
        DataError
            There are more than ``max_bad``.
        """
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
            found = plural(len(self.records), "bad record")
            last = f"The last: {records[-1]}."
            raise DataError(f"{self.url}: {found}, more than the {self.max_bad} that max_bad allows. {last}")

    def take(self) -> list[BadRecord]:
        """Return the records added since the last call; of a block that is bad as a whole, only the first record."""
        new, self._new = self._new, []
        return new


class BlockReader:
    """Reads blocks. Must be used by one thread at a time.

    Parameters
    ----------
    store : Store
    policy : BadPolicy
        How to treat bad records. Unless they raise errors, they are collected in ``bad``, and are zeros in their block.
    n_kept : int
        Number of blocks that are kept, the most recently used ones; those of a mapped store are always kept.
    touch : bool
        Whether to load mapped pages into memory immediately.
    cancelled : callable
        Returns whether to stop reading.
    host_names : collection of str
        Names of this host, see `locality.host_names`.
    fetcher : Fetcher, optional
        Reads blocks ahead.
    resident_bytes : int
        Maximum bytes of ``resident``.

    Attributes
    ----------
    kept : OrderedDict of int to dict of str to ndarray
        Blocks in memory, the most recently used last.
    resident : dict of int to dict of str to ndarray
        Blocks that stay in memory: those that were read first.
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

    # -- blocks ------------------------------------------------------------------------------------------

    def block(self, block: int) -> Arrays:
        """Return the arrays of a block, from memory if it is kept.

        Raises
        ------
        DataError
            The block cannot be read. Names URL and block.
        """
        arrays = self.kept.get(block)
        if arrays is not None:
            if not self.store.mapped:
                self.kept.move_to_end(block)
            return arrays
        arrays = self.load(block)
        if self._touch:
            # load the pages of a mapped block here, not in the caller's thread while it computes
            for array in arrays.values():
                array.reshape(len(array), -1)[:, :: PAGE_BYTES // array.itemsize].max()
        self.kept[block] = arrays
        if len(self.kept) > self.n_kept and not self.store.mapped:
            self.kept.popitem(last=False)
        return arrays

    def load(self, block: int) -> Arrays:
        """Read a block, unless it is resident, without keeping it as a recent one.

        Raises
        ------
        DataError
            The block cannot be read. Names URL and block.
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
            # lack of memory does not mean that the block is bad
            if not self._is_tolerant or isinstance(error, MemoryError):
                raise named from (error.__cause__ if named is error else error)
            arrays, bad = self._salvage(block, named)
        if self._labels:
            bad = {**self._wrong_labels(block, arrays["label"]), **bad}
        if bad:
            # once bad, a record stays bad: its zeros may be in a pool
            self.bad[block] = {**self.bad.get(block, {}), **bad}
            ids = [int(self.store.starts[number]) + row for number, rows in self.bad.items() for row in rows]
            self._bad_ids = np.array(ids, np.int64)
        self.bytes_read += self.store.blocks[block].length
        self.bytes_local += self._locations.local_bytes(self.store.blocks[block], self._host_names)
        for array in arrays.values():
            # views are handed out, and the block may be kept
            array.flags.writeable = False
        # arrays can be views of the bytes
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
        if not self._is_tolerant:
            raise DataError(f"{self.store.url}, block {block}, row {rows[0]}: {bad[rows[0]]}.")
        return bad

    def bad_among(self, ids: Ids) -> Ids:
        """Return the indices in ``ids`` of bad records. Their blocks must have been read."""
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
            There is no good record, or too many consecutive ones are bad.
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
        """Return a random good record, or the next one, as the policy says."""
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
        # the first block is visited again at the end, for the records before this one
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
            f"{self.store.url}: no good record to replace record {record}: all in blocks {first} to {block} are bad; "
            f"max_bad allows {max_bad}. The last: {reason}."
        )


def empty_arrays(store: Store, n: int) -> Arrays:
    """Return uninitialised arrays for ``n`` records: (n, *shape) per field."""
    return {name: np.empty((n, *field.shape), field.dtype) for name, field in store.schema.items()}


# Locality: which hosts store a block, and an assignment of blocks such that workers read from their own host.
#
# An assignment only changes which worker reads a block, never the number of records that a worker reads.


LOOPBACK = ("127.", "localhost", "::1", "ip6-l")


def host_names(*names: str) -> frozenset[str]:
    """Return the names of this host: the given ones and those of the system, each in full and short form.

    Parameters
    ----------
    names : str
        Names or addresses by which others know this host, e.g. its Dask name and the host of its address.
    """
    system = [name for name in (socket.gethostname(), socket.getfqdn()) if not name.startswith(LOOPBACK)]
    # with a loopback address all hosts are this machine
    loopback = ["localhost"] if any(name.startswith(LOOPBACK) for name in names) else []
    return frozenset(form for name in (*names, *system, *loopback) for form in _forms(name))


def same_host(host: str, names: Collection[str]) -> bool:
    """Return whether a host, as named by a filesystem, is the one of these `host_names`."""
    return any(form in names for form in _forms(host))


def _forms(name: str) -> tuple[str, ...]:
    name = name.lower().rstrip(".")
    short = name.partition(".")[0]
    return (name,) if short.isdigit() or ":" in name or not short else (name, short)


class Locations:
    """Hosts of the blocks of a store. The filesystem is queried lazily, once per file.

    After a query without an answer, the filesystem is not queried again.

    Parameters
    ----------
    storage_options : mapping, optional
        Passed to the filesystem.
    """

    def __init__(self, storage_options: fs.Options = None) -> None:
        self._answers = True
        self._storage_options = storage_options
        self._files: dict[str, tuple[list[int], list[tuple[int, int, tuple[str, ...]]]]] = {}
        self._is_local: dict[str, bool] = {}

    def hosts(self, block: Block) -> tuple[str, ...]:
        """Return the hosts that store the most bytes of a block; empty if unknown."""
        by_host = self._bytes_by_host(block)
        return tuple(sorted(host for host, n_bytes in by_host.items() if n_bytes == max(by_host.values())))

    def local_bytes(self, block: Block, names: Collection[str]) -> int:
        """Return the number of bytes of a block on the host of these `host_names`; all bytes of a local file."""
        if block.file not in self._is_local:
            self._is_local[block.file] = fs.local_path(block.file) is not None
        if self._is_local[block.file]:
            return block.length
        by_host = self._bytes_by_host(block) if names else {}
        return max((n_bytes for host, n_bytes in by_host.items() if same_host(host, names)), default=0)

    def _bytes_by_host(self, block: Block) -> dict[str, int]:
        starts, locations = self._locations(block.file)
        by_host: dict[str, int] = {}
        end = block.offset + block.length
        for start, stop, hosts in locations[max(bisect_right(starts, block.offset) - 1, 0) :]:
            if start >= end:
                break
            for host in hosts:
                by_host[host] = by_host.get(host, 0) + min(stop, end) - max(start, block.offset)
        return {host: n_bytes for host, n_bytes in by_host.items() if n_bytes > 0}

    def _locations(self, file: str) -> tuple[list[int], list[tuple[int, int, tuple[str, ...]]]]:
        if file not in self._files:
            answer = []
            if self._answers:
                with contextlib.suppress(DataError):
                    answer = fs.get_block_locations(file, storage_options=self._storage_options)
            self._answers = bool(answer)
            locations = sorted(
                (block["offset"], block["offset"] + block["length"], tuple(block["hosts"])) for block in answer
            )
            self._files[file] = [start for start, _, _ in locations], locations
        return self._files[file]


class Survey(NamedTuple):
    """What is known about the blocks of a store without reading them.

    Attributes
    ----------
    sizes : list of int
        Number of records of each block.
    lengths : list of int
        Bytes of each block.
    hosts : list of tuple of str
        Hosts of each block.
    fingerprint : str
        Fingerprint of the store.
    runs : list of int, optional
        `Store.runs`.
    """

    sizes: list[int]
    lengths: list[int]
    hosts: list[tuple[str, ...]]
    fingerprint: str
    runs: list[int] | None = None

    @classmethod
    def of(cls, store: Store) -> Survey:
        """Query the hosts of all blocks of a store."""
        locations = Locations(store.storage_options)
        return cls(
            [block.n for block in store.blocks],
            [block.length for block in store.blocks],
            [locations.hosts(block) for block in store.blocks],
            store.fingerprint,
            None if store.runs is None else store.runs.tolist(),
        )


class HostSpan(NamedTuple):
    """A span of the assigned blocks, which ends at record ``high``, and its reading host (-1: one without blocks)."""

    high: int
    host: int


def assign_by_host(
    sizes: Sequence[int], hosts: Sequence[Collection[int]], spans: Iterable[HostSpan], seed: int
) -> list[int]:
    """Order the blocks such that spans of the order contain blocks of the host that reads them.

    Each block is assigned to one of its hosts with free capacity, those with the fewest hosts first; if there is none,
    other blocks are moved to make room (augmenting paths). So as many blocks as possible are local, except blocks at
    the boundaries of spans. O(n log n) for n blocks, plus O(h^2) for each of h hosts.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each block.
    hosts : sequence of collections of int
        Hosts of each block, as indices.
    spans : iterable of HostSpan
        Spans that cover all records, in order.
    seed : int
        Seed of the random order of the blocks of a host.

    Returns
    -------
    list of int
        A permutation of the blocks.
    """
    # consecutive spans of a host are one
    cuts = [list(same)[-1] for _, same in groupby(spans, lambda span: span.host)]
    rooms: dict[int, int] = {}
    low = 0
    for high, host in cuts:
        rooms[host] = rooms.get(host, 0) + max(high - low, 0)
        low = high
    rooms.pop(-1, None)
    matching = _Matching(sizes, hosts, rooms)
    shuffled = permutation(len(sizes), seed, "deal").tolist()
    for block in sorted(shuffled, key=lambda block: len(matching.hosts[block])):
        matching.add(block)
    return _lay(sizes, [matching.host_of.get(block, -1) for block in range(len(sizes))], cuts, shuffled)


class _Matching:
    """Assignment of blocks to hosts, within the capacity of each host in records."""

    def __init__(self, sizes: Sequence[int], hosts: Sequence[Collection[int]], rooms: dict[int, int]) -> None:
        self.sizes = sizes
        self.hosts = [sorted(host for host in members if host in rooms) for members in hosts]
        self.host_of: dict[int, int] = {}
        self._room = dict(rooms)
        # by host and other host: blocks that could move there; entries of blocks that have moved are stale
        self._movable: dict[int, dict[int, list[int]]] = {host: {} for host in rooms}
        # by host: minimum size of blocks that do not fit even if others move
        self._closed: dict[int, int] = {}

    def add(self, block: int) -> None:
        """Assign a block to one of its hosts, if possible."""
        size = self.sizes[block]
        hosts = [host for host in self.hosts[block] if size < self._closed.get(host, size + 1)]
        if hosts and size and not self._give_to_emptiest(block, hosts) and self._make_room(size, hosts):
            self._give_to_emptiest(block, hosts)

    def _give_to_emptiest(self, block: int, hosts: Sequence[int]) -> bool:
        best = max(hosts, key=lambda host: (self._room[host], -host))
        fits = self._fits(block, best)
        if fits:
            self._give(block, best)
        return fits

    def _fits(self, block: int, host: int) -> bool:
        # a boundary can be within a block: it counts for the reader of the larger part
        return 2 * self._room[host] >= self.sizes[block]

    def _give(self, block: int, host: int) -> None:
        before = self.host_of.get(block)
        if before is not None:
            self._room[before] += self.sizes[block]
        self.host_of[block] = host
        self._room[host] -= self.sizes[block]
        for other in self.hosts[block]:
            if other != host:
                self._movable[host].setdefault(other, []).append(block)

    def _make_room(self, size: int, hosts: Sequence[int]) -> bool:
        """Move blocks along the shortest path from one of ``hosts`` to a host with free capacity."""
        came_from: dict[int, int] = dict.fromkeys(hosts, -1)
        waiting = deque(hosts)
        while waiting:
            host = waiting.popleft()
            for other in sorted(self._movable[host]):
                moved = self._top(host, other)
                if moved is None or other in came_from or size >= self._closed.get(other, size + 1):
                    continue
                came_from[other] = host
                if self._fits(moved, other):
                    self._shift(other, came_from)
                    return True
                waiting.append(other)
        self._closed.update(dict.fromkeys(came_from, size))
        return False

    def _top(self, host: int, other: int) -> int | None:
        """Return a block that can move from one host to the other."""
        blocks = self._movable[host].get(other, [])
        while blocks and self.host_of.get(blocks[-1]) != host:
            blocks.pop()
        return blocks[-1] if blocks else None

    def _shift(self, to: int, came_from: dict[int, int]) -> None:
        while (host := came_from[to]) != -1:
            moved = self._top(host, to)
            assert moved is not None
            self._movable[host][to].pop()
            self._give(moved, to)
            to = host


def _lay(sizes: Sequence[int], host_of: Sequence[int], cuts: Sequence[HostSpan], shuffled: Sequence[int]) -> list[int]:
    """Fill each span with blocks of its host, then with unassigned blocks; append the rest."""
    own: dict[int, deque[int]] = {host: deque() for host in (*host_of, *(host for _, host in cuts), -1)}
    for block in shuffled:
        own[host_of[block]].append(block)
    last = {host: i for i, (_, host) in enumerate(cuts)}
    order: list[int] = []
    at = 0
    for i, (high, host) in enumerate(cuts):
        for queue in (own[host], own[-1]):
            while queue and 2 * at + sizes[queue[0]] <= 2 * high:
                at += sizes[queue[0]]
                order.append(queue.popleft())
        if host != -1 and i == last[host]:
            own[-1].extend(own.pop(host))
    return [*order, *own[-1]]
