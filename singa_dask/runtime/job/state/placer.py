"""Choose new Dask workers for the units of a job, after a loss or when Dask workers have joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state.suspects import EVER, Suspects
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.worker_choice import WorkerFacts, limits_of, place, place_again, share
from singa_dask.shown import plural

TELL_S = 10.0
"""Seconds of waiting after which the user gets a message."""
FAILED = "it has failed, or does not reach other Dask workers"
STEADY_S = 2.0
"""Seconds for which new Dask workers must be present before units move to them."""


class Roster(NamedTuple):
    """The Dask workers of the processes of a job during one incarnation.

    Attributes
    ----------
    incarnation : int
        Number of the incarnation, which rises by one whenever new Dask workers are chosen for the units.
    layout : Layout
        The units of each process.
    workers : tuple of str
        Dask worker of each process.
    incarnations : tuple of int
        The incarnation in which each process began. A replacement process began later than all other processes.
    full_incarnation : int
        The last incarnation in which all processes started together.
    threads : int
        Number of threads of each CPU worker; 0 if each process chooses this number. Later incarnations use the number
        of the first incarnation, because the last bits of results depend on it.
    """

    incarnation: int
    layout: Layout
    workers: tuple[str, ...]
    incarnations: tuple[int, ...]
    full_incarnation: int
    threads: int = 0

    @classmethod
    def of(cls, incarnation: int, layout: Layout, workers: Sequence[str], threads: int = 0) -> Roster:
        """Return the roster of an incarnation whose processes all begin together."""
        return cls(incarnation, layout, tuple(workers), (incarnation,) * len(workers), incarnation, threads)

    def has(self, process: int, incarnation: int) -> bool:
        """Return whether a process began in this incarnation and is current."""
        return process < len(self.incarnations) and self.incarnations[process] == incarnation

    def describe(self) -> list[dict[str, Any]]:
        """Return the Dask worker and the units of each process."""
        pairs = zip(self.workers, self.layout.processes, strict=True)
        return [{"address": address, "units": [str(unit) for unit in units]} for address, units in pairs]


class Placer:
    """Chooses new Dask workers for the units of one job.

    Parameters
    ----------
    layout : Layout
        Layout of the job file.

    Attributes
    ----------
    suspects : Suspects
        Dask workers that have failed to host the job, and Dask workers that cannot reach each other.
    leaving : set of str
        Dask workers that are about to close.
    """

    def __init__(self, layout: Layout, cluster: ClusterConf) -> None:
        self.suspects = Suspects()
        self.leaving: set[str] = set()
        self._layout = layout
        self._limits = limits_of(cluster, layout)
        self._patience_s = 60 * cluster.wait_for_workers_minutes
        self._has_told = False
        self._with_nanny: set[str] = set()
        self._expects_nanny = False
        self._since = 0.0
        self._room_since: float | None = None

    def look_at(self, workers: Mapping[str, WorkerFacts], mine: Sequence[str]) -> None:
        """Record which of the job's Dask workers, ``mine``, have a nanny."""
        self._with_nanny |= {worker for worker in mine if worker in workers and workers[worker].has_nanny}

    def lose(self, worker: str, workers: Mapping[str, WorkerFacts]) -> None:
        """Expect the nanny of a lost Dask worker, if it had one and its process ended, to restart it."""
        self._expects_nanny |= worker not in workers and worker in self._with_nanny

    @property
    def _nanny_s(self) -> float:
        """Seconds to wait for a nanny to restart a Dask worker, before several processes share one."""
        return limit("nanny") if self._expects_nanny else 0.0

    def begin(self, now: float) -> None:
        """Begin to look for Dask workers; waits count from ``now``."""
        self._since, self._has_told = now, False

    def place(
        self, now: float, workers: Mapping[str, WorkerFacts], before: Sequence[str], warn: Callable[[str], None]
    ) -> tuple[Layout, tuple[str, ...]] | None:
        """Return a layout and the Dask worker of each process; None if it is better to wait.

        Parameters
        ----------
        before : sequence of str
            The Dask workers of the last incarnation, which are preferred.
        warn : callable
            Called with a message if the wait is long.

        Raises
        ------
        ClusterError
            There have been too few Dask workers for too long.
        """
        waited = now - self._since
        packed = waited >= self._nanny_s
        try:
            placement = place_again(self._layout, self._candidates(now, workers, before), before, self._limits, packed)
        except ClusterError as error:
            why = f"{error} {self._unused(now, workers, before)}".rstrip()
            usable = {address for address, known in workers.items() if known.usable} - self.leaving
            is_hopeless = usable != self._candidates(EVER, workers, ()).keys()
            if waited >= (min(limit("hopeless"), self._patience_s) if is_hopeless else self._patience_s):
                raise ClusterError(f"Waited {waited:.0f} s for Dask workers: {why}") from error
            if waited >= TELL_S and not self._has_told:
                self._has_told = True
                warn(f"the job waits for Dask workers, {plural(self._patience_s / 60, 'minute')} at most: {why}")
            return None
        self._expects_nanny = False
        return placement

    def place_some(
        self, now: float, workers: Mapping[str, WorkerFacts], processes: Sequence[int], others: Mapping[str, int]
    ) -> list[str] | None:
        """Return a Dask worker for each of some processes; None if it is better to wait.

        Parameters
        ----------
        others : mapping of str to int
            Number of units on each Dask worker whose processes continue. These Dask workers are used only if no free
            Dask workers are left, and only if they have a thread for each unit.

        Raises
        ------
        ClusterError
            There are too few Dask workers.
        """
        there = self._candidates(now, workers, list(others))
        free = {address: known for address, known in there.items() if address not in others}
        layout = Layout(tuple(self._layout.processes[p] for p in processes), self._layout.cluster)
        waited = now - self._since
        try:
            chosen = place(layout, free)
        except ClusterError:
            if waited < self._nanny_s:
                return None
            chosen = share(layout, there, others)
        self._expects_nanny = False
        return chosen

    def room(self, now: float, workers: Mapping[str, WorkerFacts], mine: Sequence[str]) -> int:
        """Return the number of processes in which the job could run, or 0 if this is not more than now.

        The cluster must have had room for these processes for `STEADY_S` seconds. ``mine`` are the Dask workers of the
        job.
        """
        n = len(set(mine))  # replaced processes may share a Dask worker
        if n >= self._limits[1]:
            return 0
        try:
            layout, _ = place_again(self._layout, self._candidates(now, workers, mine), mine, self._limits, packed=True)
        except ClusterError:
            return 0
        if len(layout.processes) <= n:
            self._room_since = None
        elif self._room_since is None:
            self._room_since = now
        elif now - self._room_since >= STEADY_S:
            self._room_since = None
            return len(layout.processes)
        return 0

    def reachable(self, workers: Mapping[str, WorkerFacts]) -> set[str]:
        """Return the Dask workers that answer, including workers that are about to close."""
        return {address for address, known in workers.items() if known.usable or address in self.leaving}

    def has_hope(self, workers: Mapping[str, WorkerFacts]) -> bool:
        """Return whether any Dask worker may host the job now or later: it must not be suspected permanently."""
        return bool(self.suspects.others(EVER, {address: known.nthreads for address, known in workers.items()}, ()))

    def _candidates(
        self, now: float, workers: Mapping[str, WorkerFacts], before: Sequence[str]
    ) -> dict[str, WorkerFacts]:
        """Return the Dask workers that may be used: they answer, do not leave, and are not suspected."""
        usable = {address: known for address, known in workers.items() if known.usable and address not in self.leaving}
        free = {address: known.free for address, known in usable.items()}
        others = self.suspects.others(now, free, before)
        return {address: known for address, known in usable.items() if address in others}

    def _unused(self, now: float, workers: Mapping[str, WorkerFacts], before: Sequence[str]) -> str:
        """Return a message that says why some Dask workers of the cluster are not used."""
        used = self._candidates(now, workers, before)
        why = [
            f"{address} ({'it closes' if address in self.leaving else FAILED if known.usable else 'nothing is heard'})"
            for address, known in workers.items()
            if address not in used
        ]
        return f"Not used: {', '.join(why)}." if why else ""


def buddies_of(roster: Roster, workers: Mapping[str, WorkerFacts]) -> list[str]:
    """Choose the buddy of each process: the Dask worker that keeps a second copy of its snapshots.

    If possible, a buddy is on another host and belongs to the job. Copies are spread evenly over the Dask workers of
    the job, as far as hosts of different sizes allow this. Without another Dask worker, the buddy is an empty string.
    """
    mine = roster.workers
    usable = {address: known.host for address, known in workers.items() if known.usable}
    hosts = {address: workers[address].host if address in workers else address for address in mine}
    spare = [address for address in usable if address not in hosts]
    in_order = sorted(range(len(mine)), key=lambda process: hosts[mine[process]])
    # Arrange processes in a circle, sorted by host. `shift` is the number of processes on the largest host, so the
    # process `shift` places further is on another host, unless one host has the majority.
    shift = max(Counter(hosts[address] for address in mine).values())
    buddies = [""] * len(mine)
    for position, process in enumerate(in_order):
        own, here = mine[process], hosts[mine[process]]
        behind = mine[in_order[(position + shift) % len(mine)]]
        if behind in usable and hosts[behind] != here:
            buddies[process] = behind
            continue
        others = [address for address in mine if address in usable and address != own]
        away = [each for each in others if hosts[each] != here] or [each for each in spare if usable[each] != here]
        choice = away or others or spare
        buddies[process] = choice[position % len(choice)] if choice else ""
    return buddies
