"""SimulatedCluster: Dask workers that come and go in simulated time, without Dask and without processes."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.planning.worker_choice import WorkerFacts

SILENT_S = 5.0


@dataclass
class Hosting:
    """One process of the job on a Dask worker."""

    incarnation: int
    process: int
    placement: act.Host
    since: float = 0.0
    running: set[Address] = field(default_factory=set)
    waiting: list[tuple[Address, ...]] = field(default_factory=list)
    n_threads: int = 0
    cut: set[int] = field(default_factory=set)

    @property
    def units(self) -> list[Address]:
        """Its units."""
        return [*self.placement.roster.layout.processes[self.process]]


@dataclass
class Node:
    """A Dask worker."""

    address: str
    host: str
    nthreads: int
    has_nanny: bool = False
    busy: int = 0
    is_dead: bool = False
    frozen_at: float | None = None
    is_leaving: bool = False
    host_error: str = ""
    hostings: dict[int, Hosting] = field(default_factory=dict)
    oldest: dict[int, int] = field(default_factory=dict)
    parts: dict[str, tuple[int, str]] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    later: list[Callable[[], None]] = field(default_factory=list)

    @property
    def works(self) -> bool:
        """Whether it does anything."""
        return not self.is_dead and self.frozen_at is None

    def put(self, file: str, step: int, index: str, known: int) -> None:
        """Keep a part of a snapshot, as `SnapshotStore` does."""
        self.parts = {name: what for name, what in self.parts.items() if what[1] != index or what[0] == known}
        self.parts[file] = (step, index)
        self.ever.add(file)


class SimulatedCluster:
    """Dask workers, and a clock.

    Parameters
    ----------
    nodes : sequence of Node
    seed : int
        Of all delays.
    """

    def __init__(self, nodes: list[Node], seed: int) -> None:
        self.nodes = {node.address: node for node in nodes}
        self.random = Random(seed)
        self.now = 1000.0
        self.log: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0
        self._cuts: dict[frozenset[str], float] = {}

    def deliver(self, event: Any) -> None:
        """Give the job an event."""
        raise NotImplementedError

    def choose(self, n: int) -> list[str]:
        """Return Dask workers for the processes, the largest first."""
        return sorted(self.nodes, key=lambda each: -self.nodes[each].nthreads)[:n]

    def facts(self) -> dict[str, WorkerFacts]:
        """Return what the scheduler knows."""
        return {
            each.address: WorkerFacts(
                each.nthreads,
                each.busy,
                each.host,
                each.address,
                each.has_nanny,
                not each.is_leaving and not self.is_silent(each),
            )
            for each in self.nodes.values()
        }

    def is_silent(self, node: Node) -> bool:
        """Return whether a Dask worker has not been heard of for too long."""
        return node.frozen_at is not None and self.now - node.frozen_at > SILENT_S

    # -- time --------------------------------------------------------------------------------------------------------

    def at(self, delay: float, what: Callable[[], None]) -> None:
        """Do something later."""
        self._n += 1
        heapq.heappush(self._events, (self.now + delay, self._n, what))

    def soon(self, what: Callable[[], None]) -> None:
        """Do something after a delay that is mostly short."""
        self.at(self.random.choice([0.01, 0.05, 0.2, 0.2, 1.0]) * self.random.random(), what)

    def _every(self, period: float, what: Callable[[], None]) -> None:
        def again() -> None:
            what()
            self._every(period, what)

        self.at(period, again)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = end

    def history(self) -> str:
        """Return what has happened, for the message of a check that fails."""
        return "\n".join(["", *self.log[-150:]])

    # -- faults ------------------------------------------------------------------------------------------------------

    def join(self, node: Node) -> None:
        """Add a Dask worker."""
        self.nodes[node.address] = node
        self.deliver(ev.Arrived(node.address))

    def kill(self, node: Node, same_address: bool = False) -> None:
        """End the process of a Dask worker; its nanny, if it has one, starts it again."""
        if node.is_dead:
            return
        node.is_dead = True
        self.log.append(f"{self.now - 1000:.2f} {node.address} dies")
        self.soon(lambda: self._remove(node, same_address))

    def _remove(self, node: Node, same_address: bool) -> None:
        del self.nodes[node.address]
        self.deliver(ev.Gone(node.address, "it is gone"))
        if node.has_nanny and not node.is_leaving:
            self._n += 1
            address = node.address if same_address else f"{node.address.partition('-')[0]}-{self._n}"
            new = Node(address, node.host, node.nthreads, True)
            self.at(self.random.uniform(0.5, 4.0), lambda: self.join(new))

    def freeze(self, node: Node, seconds: float) -> None:
        """Stop a Dask worker for some time; then it goes on as if nothing had happened."""
        if node.works:
            node.frozen_at = self.now
            self.log.append(f"{self.now - 1000:.2f} {node.address} is silent for {seconds:g} s")
            self.at(seconds, lambda: self._thaw(node))

    def _thaw(self, node: Node) -> None:
        node.frozen_at = None
        self.log.append(f"{self.now - 1000:.2f} {node.address} is back")
        later, node.later = node.later, []
        for do in later if not node.is_dead else ():
            do()

    def part(self, first: str, second: str, seconds: float) -> None:
        """Let two Dask workers not reach each other for some time; the scheduler reaches both."""
        pair = frozenset((first, second))
        self._cuts[pair] = self.now
        self.log.append(f"{self.now - 1000:.2f} {first} and {second} are parted for {seconds:g} s")
        self.at(seconds, lambda: self._cuts.pop(pair, None))

    def parted_s(self, *addresses: str) -> float:
        """Return for how long two Dask workers have not reached each other; 0 if they do."""
        since = self._cuts.get(frozenset(addresses))
        return 0.0 if since is None else self.now - since

    def leave(self, node: Node) -> None:
        """Close a Dask worker, once its units are elsewhere or some seconds have passed."""
        if node.works and not node.is_leaving:
            node.is_leaving = True
            self.deliver(ev.Leaving(node.address))
            self.at(12.0, lambda: self.kill(node))
