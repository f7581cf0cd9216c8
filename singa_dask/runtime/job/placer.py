"""Place the units of a job again, and choose what they start from: the Dask workers, snapshots and checkpoints."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.planning.layout import Layout, pack
from singa_dask.runtime.planning.placement import WorkerFacts, place
from singa_dask.shown import plural

FIRST_S = 5.0
"""How long a Dask worker that could not host a process, or end it in time, is not used. Twice as long each time."""
PARTED_S = 60.0
"""The same for two together that have not reached each other twice, or once while others do not: the first time may be
a moment's."""
MAX_S = 600.0
EVER = sys.float_info.max
"""A time after all but what is suspected for good."""


class Suspects:
    """Remembers what has failed, and how often. A worker that is gone, or comes, begins anew."""

    def __init__(self) -> None:
        self._failures: dict[frozenset[str], tuple[int, float]] = {}

    def add(self, now: float, *workers: str, for_good: bool = False) -> float:
        """Add a worker, or two that do not reach each other; return for how many seconds from ``now`` that counts."""
        key = frozenset(workers)
        n, _ = self._failures.get(key, (0, 0.0))
        parted = {pair: failure for pair, failure in self._failures.items() if len(pair) == len(key) > 1}
        if len(key) > 1 and not n and all(until <= now for _, until in parted.values()):
            seconds = 0.0
        else:
            first_s, n_doubled = (FIRST_S, n) if len(key) == 1 else (PARTED_S, max(n - 1, 0))
            seconds = min(first_s * 2.0 ** min(n_doubled, 9), MAX_S)
        seconds = math.inf if for_good else seconds
        end = now + seconds
        # the network is not mended yet
        self._failures |= {pair: (m, max(end, until)) for pair, (m, until) in parted.items()}
        self._failures[key] = n + 1, end
        return seconds

    def forget(self, worker: str) -> None:
        """Forget what has been said of a worker."""
        self._failures = {key: failure for key, failure in self._failures.items() if worker not in key}

    def others(self, now: float, workers: Mapping[str, int], kept: Sequence[str]) -> set[str]:
        """Return the workers without suspects, as many as possible that all reach each other.

        Parameters
        ----------
        now : float
            `EVER` leaves out only what is suspected for good.
        workers : mapping of str to int
            Free threads of each.
        kept : sequence of str
            Those to keep rather than others.
        """
        pending = [key for key, (_, until) in self._failures.items() if until > now]
        left = set(workers).difference(*(key for key in pending if len(key) == 1))
        while parted := [key for key in pending if len(key) > 1 and key <= left]:
            n_parted = Counter(worker for key in parted for worker in key)
            worst = max(n_parted, key=lambda worker: (n_parted[worker], worker not in kept, -workers[worker], worker))
            left.remove(worst)
        return left


HOPELESS_S = 30.0
"""How long units wait where Dask workers are there that have no package to host them."""
TELL_S = 10.0
"""When it is said that the job waits."""
FAILED = "it has failed, or does not reach others"
STEADY_S = 2.0
"""How long new Dask workers must be there before units move to them."""


class Roster(NamedTuple):
    """Where the units of a job are during one life.

    Attributes
    ----------
    life : int
        Rises by one whenever the units are placed anew.
    layout : Layout
        Units of each process.
    workers : tuple of str
        Dask worker of each process.
    lives : tuple of int
        In which life each process has begun: some may have been replaced since the others have.
    term : int
        The last life in which all processes have begun.
    threads : int
        Of each worker on the CPU, kept from the first life, as results depend on it in the last bits; 0 if each process
        chooses.
    """

    life: int
    layout: Layout
    workers: tuple[str, ...]
    lives: tuple[int, ...]
    term: int
    threads: int = 0

    @classmethod
    def of(cls, life: int, layout: Layout, workers: Sequence[str], threads: int = 0) -> Roster:
        """Return the roster of processes that begin together."""
        return cls(life, layout, tuple(workers), (life,) * len(workers), life, threads)

    def has(self, process: int, life: int) -> bool:
        """Return whether a process is in a life."""
        return process < len(self.lives) and self.lives[process] == life

    def describe(self) -> list[dict[str, Any]]:
        """Return the Dask worker and the units of each process."""
        pairs = zip(self.workers, self.layout.processes, strict=True)
        return [{"address": address, "units": [str(unit) for unit in units]} for address, units in pairs]


class Placer:
    """Places the units of one job anew, each time that this is needed.

    Parameters
    ----------
    layout : Layout
        Of the job file.
    cluster : ClusterConf

    Attributes
    ----------
    suspects : Suspects
        Dask workers that have failed to host the job, and those that do not reach each other.
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
        """Remember which Dask workers of the job have a nanny."""
        self._with_nanny |= {worker for worker in mine if worker in workers and workers[worker].has_nanny}

    def lose(self, worker: str, workers: Mapping[str, WorkerFacts]) -> None:
        """Take note of a lost Dask worker: if its process has ended, its nanny starts it again."""
        self._expects_nanny |= worker not in workers and worker in self._with_nanny

    @property
    def _nanny_s(self) -> float:
        """How long to wait for a nanny before units share Dask workers; anew when another process is lost."""
        return limit("nanny") if self._expects_nanny else 0.0

    def begin(self, now: float) -> None:
        """Begin to look for Dask workers."""
        self._since, self._has_told = now, False

    def place(
        self, now: float, workers: Mapping[str, WorkerFacts], before: Sequence[str], warn: Callable[[str], None]
    ) -> tuple[Layout, tuple[str, ...]] | None:
        """Return the units of each process and their Dask workers; None if it is better to wait.

        ``warn`` is told when that takes long.

        Raises
        ------
        ClusterError
            There have been too few for too long.
        """
        waited = now - self._since
        packed = waited >= self._nanny_s
        try:
            placement = place_again(self._layout, self._candidates(now, workers, before), before, self._limits, packed)
        except ClusterError as error:
            why = f"{error} {self._unused(now, workers, before)}".rstrip()
            usable = {address for address, known in workers.items() if known.usable} - self.leaving
            is_hopeless = usable != self._candidates(EVER, workers, ()).keys()
            if waited >= (min(HOPELESS_S, self._patience_s) if is_hopeless else self._patience_s):
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

        ``others`` are those of the processes that go on, with the number of units that run there. They are shared if
        no others are left, and if they have a thread for each unit.

        Raises
        ------
        ClusterError
            There are too few.
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
        """Return how many processes there is room for, if that is more than now, and not only for a moment; else 0."""
        n = len(set(mine))  # processes that were replaced may share a Dask worker
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
        """Return the Dask workers that answer: those that are about to close do, too."""
        return {address for address, known in workers.items() if known.usable or address in self.leaving}

    def has_hope(self, workers: Mapping[str, WorkerFacts]) -> bool:
        """Return whether any Dask worker is not suspected for good."""
        return bool(self.suspects.others(EVER, {address: known.nthreads for address, known in workers.items()}, ()))

    def _candidates(
        self, now: float, workers: Mapping[str, WorkerFacts], before: Sequence[str]
    ) -> dict[str, WorkerFacts]:
        """Return the Dask workers that may be used."""
        usable = {address: known for address, known in workers.items() if known.usable and address not in self.leaving}
        free = {address: known.nthreads - known.busy for address, known in usable.items()}
        others = self.suspects.others(now, free, before)
        return {address: known for address, known in usable.items() if address in others}

    def _unused(self, now: float, workers: Mapping[str, WorkerFacts], before: Sequence[str]) -> str:
        """Say why Dask workers that are there are not used."""
        used = self._candidates(now, workers, before)
        why = [
            f"{address} ({'it closes' if address in self.leaving else FAILED if known.usable else 'nothing is heard'})"
            for address, known in workers.items()
            if address not in used
        ]
        return f"Not used: {', '.join(why)}." if why else ""


def share(layout: Layout, workers: Mapping[str, WorkerFacts], others: Mapping[str, int]) -> list[str]:
    """Choose a Dask worker for each process, with a thread for each unit; several may be on the same.

    Parameters
    ----------
    layout : Layout
        Processes to place.
    workers : mapping of str to WorkerFacts
        The Dask workers that can be used.
    others : mapping of str to int
        Number of units that run there already.

    Raises
    ------
    ClusterError
        There are too few threads.
    """
    room = {address: known.nthreads - known.busy - others.get(address, 0) for address, known in workers.items()}
    chosen = []
    for units in layout.processes:
        fitting = [address for address in room if room[address] >= len(units)]
        if not fitting:
            raise ClusterError(f"no Dask worker has {len(units)} free threads.")
        address = min(fitting, key=lambda other: (other in chosen, other in others, -room[other], other))
        room[address] -= len(units)
        chosen.append(address)
    return chosen


def limits_of(cluster: ClusterConf, layout: Layout) -> tuple[int, int]:
    """Return the smallest and the largest number of processes of a job; ``layout`` is that of the job file."""
    n, elastic = len(layout.processes), cluster.elastic
    return elastic.min_processes, min(elastic.max_processes or n, n)


def place_again(
    layout: Layout,
    workers: Mapping[str, WorkerFacts],
    before: Sequence[str],
    limits: tuple[int, int],
    packed: bool,
) -> tuple[Layout, tuple[str, ...]]:
    """Choose Dask workers for all units; processes stay where they are if they can.

    Parameters
    ----------
    layout : Layout
        Of the job file.
    workers : mapping of str to WorkerFacts
        The Dask workers that can be used.
    before : sequence of str
        Dask workers that have units of the job, or had them in its last life.
    limits : tuple of int
        Smallest and largest number of processes.
    packed : bool
        Also use fewer processes than the largest number, as many as possible; their units share threads.

    Raises
    ------
    ClusterError
        There are too few.
    """
    low, high = limits
    if high < len(layout.processes):
        layout = pack(layout, high)
    stays = frozenset(before)
    try:
        return layout, tuple(place(layout, workers, kept=stays))
    except ClusterError:
        free = {address: known.nthreads - known.busy for address, known in workers.items()}
        roomy = [address for address in free if free[address] > 0]
        roomy.sort(key=lambda address: (address not in stays, -free[address], address))
        n = min(len(roomy), len(layout.processes))
        if not packed or n < low:
            raise
        return pack(layout, n), tuple(roomy[:n])


def place_first(layout: Layout, workers: Mapping[str, WorkerFacts]) -> tuple[Layout, tuple[str, ...]]:
    """Choose Dask workers for a job that begins; for an elastic one fewer than it has processes, if need be.

    Raises
    ------
    ClusterError
        There are too few.
    """
    limits, packed = limits_of(layout.cluster, layout), bool(layout.cluster.elastic.max_processes)
    return place_again(layout, workers, (), limits, packed)


def buddies_of(roster: Roster, workers: Mapping[str, WorkerFacts]) -> list[str]:
    """Choose for each process the Dask worker that keeps a second copy of its snapshots; empty if there is none.

    It is on another host if possible, and of the job if possible. Each of the job keeps one copy, as far as hosts of
    different sizes allow that.
    """
    mine = roster.workers
    usable = {address: known.host for address, known in workers.items() if known.usable}
    hosts = {address: workers[address].host if address in workers else address for address in mine}
    spare = [address for address in usable if address not in hosts]
    in_order = sorted(range(len(mine)), key=lambda process: hosts[mine[process]])
    # so far behind a process, in a circle by hosts, is one on another host, unless one host has more than all others
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


MAX_BACKOFF_S = 30.0
KEPT = 2
MAX_CHECKPOINTS = 8
KEYS = "parts", "states"


class RestartPoints:
    """The newest snapshots and checkpoints of a job.

    Parameters
    ----------
    resume : str or None
        URL of the checkpoint that the job continues from.
    """

    def __init__(self, resume: str | None) -> None:
        self._resume = resume
        self._checkpoints: list[tuple[int, str]] = []
        self._snapshots: list[tuple[int, Mapping[str, Any]]] = []

    def add_checkpoint(self, step: int, url: str) -> None:
        """Add a checkpoint that is complete; news of an older one may come late."""
        self._checkpoints = sorted({*self._checkpoints, (step, url)})[-MAX_CHECKPOINTS:]

    def add_snapshot(self, step: int, manifest: Mapping[str, Any], present: Collection[str]) -> None:
        """Add a snapshot that is complete; those of later steps, from an older life, are replaced by it.

        Holders that are not ``present`` on the cluster have been lost since.
        """
        older = [snapshot for snapshot in self._snapshots if snapshot[0] < step]
        manifest = {**manifest, **_held(manifest, present)}
        self._snapshots = [*older, (step, manifest)][-KEPT:]

    def forget(self, worker: str) -> None:
        """Take note that a Dask worker has lost all parts: another one may come at its address."""
        kept: list[tuple[int, Mapping[str, Any]]] = []
        for step, manifest in self._snapshots:
            others = {holder for key in KEYS for part in manifest.get(key, ()) for holder in part["holders"]} - {worker}
            kept.append((step, {**manifest, **_held(manifest, others)}))
        self._snapshots = kept

    def drop_named(self, text: str) -> bool:
        """Drop what cannot be read: ``text``, the cause of a failure, names a file of it. Return whether there is any.

        The job starts from an older one next.
        """
        before = len(self._checkpoints) + len(self._snapshots)
        self._checkpoints = [point for point in self._checkpoints if f"{point[1]}/" not in text]
        self._snapshots = [
            (step, manifest)
            for step, manifest in self._snapshots
            if not any(part["file"] in text for key in KEYS for part in manifest.get(key, ()))
        ]
        return len(self._checkpoints) + len(self._snapshots) < before

    def newest(self, present: Collection[str]) -> tuple[int | None, dict[str, Any], str]:
        """Return the newest point that can still be read.

        Parameters
        ----------
        present : collection of str
            Dask workers that can be reached.

        Returns
        -------
        step : int or None
            None if the job starts where it has started.
        start : dict
            ``manifest`` of a snapshot, ``url`` of a checkpoint, or nothing.
        what : str
            In words.
        """
        for step, manifest in reversed(self._snapshots):
            if self._checkpoints and self._checkpoints[-1][0] >= step:
                break
            left = _held(manifest, present)
            if all(part["holders"] for parts in left.values() for part in parts):
                return step, {"manifest": {**manifest, **left}}, f"the snapshot of step {step}"
        if self._checkpoints:
            step, url = self._checkpoints[-1]
            return step, {"url": url}, f"the checkpoint of step {step}"
        return None, {"url": self._resume} if self._resume else {}, "its beginning"

    def of_groups(self, steps: Mapping[int, int], present: Collection[str]) -> dict[str, Any]:
        """Return the newest point from which worker groups can start again whose servers go on.

        Parameters
        ----------
        steps : mapping of int to int
            The step that each group has to start at: no snapshot after it will do. Checkpoints are of earlier moments.
        present : collection of str
            Dask workers that can be reached.
        """
        for _, manifest in reversed(self._snapshots):
            if all(int(manifest["groups"][str(group)]["step"]) <= step for group, step in steps.items()):
                return {"manifest": {**manifest, **_held(manifest, present)}}
        url = self._checkpoints[-1][1] if self._checkpoints else self._resume
        return {"url": url} if url else {}


def _held(manifest: Mapping[str, Any], present: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the parts of a snapshot, by kind, each with those of its holders that can be reached."""

    def reached(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "holders": [holder for holder in part["holders"] if holder in present]}

    return {key: [reached(part) for part in manifest.get(key, ())] for key in KEYS}


class Restarts:
    """Counts the restarts of a job.

    Parameters
    ----------
    max_restarts : int
        Largest number without a later step between them.

    Attributes
    ----------
    reasons : list of str
        Why the job was restarted, each time.
    recomputed_steps : int
        Steps that were computed again.
    lost_s : float
        Time from each loss to the first step after it, in seconds.
    """

    def __init__(self, max_restarts: int) -> None:
        self.reasons: list[str] = []
        self.recomputed_steps = 0
        self.lost_s = 0.0
        self._max = max_restarts
        self._n_in_place = 0  # since the newest step
        self._best = -1
        self._lost_at: float | None = None

    def __len__(self) -> int:
        return len(self.reasons)

    def refusal(self, step: int) -> str:
        """Return why the job may not be restarted once more; empty if it may."""
        if not self._max:
            return "cluster.max_restarts is 0."
        if step <= self._best and self._n_in_place >= self._max:
            return f"The job was restarted {plural(self._max, 'time')} without a later step (cluster.max_restarts)."
        return ""

    def add(self, reason: str, step: int) -> None:
        """Count a restart; ``step`` is the newest step that is known."""
        self.reasons.append(reason)
        self._n_in_place = 1 if step > self._best else self._n_in_place + 1
        self._best = max(step, self._best)

    def backoff_s(self) -> float:
        """Return how long to wait before the next start: longer each time that the job made no progress."""
        return min(0.5 * 2.0 ** (self._n_in_place - 1), MAX_BACKOFF_S) if self._n_in_place > 1 else 0.0

    def lose(self, now: float) -> None:
        """Count time as lost from now on."""
        if self._lost_at is None:
            self._lost_at = now

    def resume(self, now: float) -> None:
        """Count no more time as lost: the job trains again."""
        if self._lost_at is not None:
            self.lost_s += now - self._lost_at
            self._lost_at = None

    def summary(self) -> dict[str, Any]:
        """Return the numbers for the summary of the job."""
        return {
            "restarts": len(self.reasons),
            "recomputed_steps": self.recomputed_steps,
            "lost_s": round(self.lost_s, 3),
        }
