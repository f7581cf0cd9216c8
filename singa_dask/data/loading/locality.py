"""Locality: find the hosts of blocks, and assign blocks so that workers read from their own host.

An assignment determines which worker reads a block. It does not change how many records a worker reads.
"""

from __future__ import annotations

import contextlib
import socket
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from singa_dask import fs
from singa_dask.data.random import permutation
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Block
from singa_dask.errors import DataError

LOOPBACK = ("127.", "localhost", "::1", "ip6-l")


def host_names(*names: str) -> frozenset[str]:
    """Return ``names`` and all names of this host, e.g. both ``node1.example.org`` and ``node1``."""
    system = [name for name in (socket.gethostname(), socket.getfqdn()) if not name.startswith(LOOPBACK)]
    # a loopback address among the names means that all processes are on this machine
    loopback = ["localhost"] if any(name.startswith(LOOPBACK) for name in names) else []
    return frozenset(form for name in (*names, *system, *loopback) for form in _forms(name))


def same_host(host: str, names: Collection[str]) -> bool:
    """Return whether a host name from a filesystem is one of these `host_names`."""
    return any(form in names for form in _forms(host))


def _forms(name: str) -> tuple[str, ...]:
    name = name.lower().rstrip(".")
    short = name.partition(".")[0]
    return (name,) if short.isdigit() or ":" in name or not short else (name, short)


class Locations:
    """Hosts of the blocks of a store.

    The filesystem is queried for each file on first use. Once it cannot answer, it is not queried again.
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
        """Return how many bytes of a block are stored on the host that has these `host_names`.

        For a block of a local file, all bytes are on this host.
        """
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
    """Description of a store's blocks, obtained without reading them.

    Attributes
    ----------
    sizes : list of int
        Number of records of each block.
    lengths : list of int
        Number of bytes of each block.
    hosts : list of tuple of str
        Hosts that store each block.
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
        """Return the survey of a store, after querying the hosts of all of its blocks."""
        locations = Locations(store.storage_options)
        return cls(
            [block.n for block in store.blocks],
            [block.length for block in store.blocks],
            [locations.hosts(block) for block in store.blocks],
            store.fingerprint,
            None if store.runs is None else store.runs.tolist(),
        )


class HostSpan(NamedTuple):
    """A span of records up to ``high`` (excluded), and the index of the host that reads the span, or -1."""

    high: int
    host: int


def assign_by_host(
    sizes: Sequence[int], hosts: Sequence[Collection[int]], spans: Iterable[HostSpan], seed: int
) -> list[int]:
    """Order blocks so that each host reads, as far as possible, blocks that are stored on this host.

    Each span of the order is read by one host. Blocks with the fewest hosts are assigned first. Among the hosts that
    store a block, the host with the most room left gets it. If none of these hosts has room, other blocks are moved
    to other hosts. If all blocks have the same size, the number of blocks that are read from their own host is the
    largest possible.

    Parameters
    ----------
    sizes : sequence of int
        Number of records of each block.
    hosts : sequence of collections of int
        Hosts of each block, as indices.
    spans : iterable of HostSpan
        Spans in order. Together they cover all records.
    seed : int
        Seed for the random order of the blocks of a host.

    Returns
    -------
    list of int
        A permutation of the blocks.
    """
    # merge consecutive spans of the same host
    cuts = [list(same)[-1] for _, same in groupby(spans, lambda span: span.host)]
    rooms: dict[int, int] = {}
    low = 0
    for high, host in cuts:
        rooms[host] = rooms.get(host, 0) + max(high - low, 0)
        low = high
    rooms.pop(-1, None)
    known = [[host for host in members if host in rooms] for members in hosts]
    shuffled = permutation(len(sizes), seed, "deal").tolist()
    assignment = _Assignment(sizes, known, rooms)
    filled = [block for block in shuffled if sizes[block]]
    for block in sorted(filled, key=lambda block: len(known[block])):
        assignment.assign(block)
    for block in filled:
        if assignment.host_of[block] == -1:
            assignment.make_room(block)
    return _lay(sizes, assignment.host_of, cuts, shuffled)


class _Assignment:
    """The host that reads each block, and the room that each host has left, in records."""

    def __init__(self, sizes: Sequence[int], hosts: Sequence[Sequence[int]], rooms: dict[int, int]) -> None:
        self._sizes, self._hosts, self._rooms = sizes, hosts, rooms
        self.host_of = [-1] * len(sizes)
        # _movable[host][other]: blocks that are assigned to ``host`` and also stored on ``other``
        self._movable = {host: defaultdict[int, dict[int, None]](dict) for host in rooms}
        self._full: set[int] = set()

    def assign(self, block: int) -> None:
        """Assign a block to the host with the most room among the hosts that store it, if any has room."""
        best = max(self._hosts[block], key=lambda host: (self._rooms[host], -host), default=-1)
        if best != -1 and self._fits(block, self._rooms[best]):
            self._move(block, best)

    def make_room(self, block: int) -> None:
        """Assign a block to a full host, and move blocks along a chain of hosts to a host that has room.

        This is an augmenting path of a bipartite matching. If no chain leads to room, nothing changes.
        """
        came = {host: (block, -1) for host in self._hosts[block] if host not in self._full}
        queue = deque(came)
        while queue:
            host = queue.popleft()
            arriving = came[host][0]
            if self._fits(arriving, self._rooms[host]):
                while host != -1:
                    arriving, previous = came[host]
                    self._move(arriving, host)
                    host = previous
                return
            for other, blocks in self._movable[host].items():
                if other not in came and other not in self._full:
                    for leaving in blocks:
                        if self._fits(arriving, self._rooms[host] + self._sizes[leaving]):
                            came[other] = (leaving, host)
                            queue.append(other)
                            break
        # no chain from these hosts leads to a host with room; moves of other blocks cannot change this later
        self._full.update(came)

    def _fits(self, block: int, room: int) -> bool:
        # a block that crosses a boundary between spans is assigned to the host that reads its larger part
        return 2 * room >= self._sizes[block]

    def _move(self, block: int, host: int) -> None:
        before = self.host_of[block]
        others = self._hosts[block]
        if before != -1:
            self._rooms[before] += self._sizes[block]
            for other in others:
                self._movable[before][other].pop(block, None)
        self.host_of[block] = host
        self._rooms[host] -= self._sizes[block]
        for other in others:
            if other != host:
                self._movable[host][other][block] = None


def _lay(sizes: Sequence[int], host_of: Sequence[int], cuts: Sequence[HostSpan], shuffled: Sequence[int]) -> list[int]:
    """Fill each span with blocks of its host, then with unassigned blocks; append the remaining blocks."""
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
