"""One incarnation of a job, and the replacement of some of its processes while the others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from singa_dask.comm.message import Address
from singa_dask.errors import ClusterError
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.placer import Placer, RestartPoints, Roster, buddies_of
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.placement import WorkerFacts


@dataclass
class Life:
    """What is known of one life of a job.

    Attributes
    ----------
    roster : Roster
    endpoints : dict of int to str
        Where each process is reached, once it is hosted.
    started : set of str
        Units that run.
    reports : dict of str to dict
        Of the units that have ended.
    ending : set of str
        Dask workers that have not ended their units yet.
    threads : set of int
        Numbers of threads that workers have.
    buddies : list of str
        Of each process: the Dask worker that keeps a second copy of its snapshots; empty if there is none.
    gone : set of int
        Processes that were done, and whose Dask workers are gone.
    """

    roster: Roster
    endpoints: dict[int, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)
    buddies: list[str] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)

    def take_threads(self, n: int) -> None:
        """Keep the number of threads of workers for later lives, if it is the same everywhere; 0 does not count."""
        self.threads |= {n} - {0}
        self.roster = self.roster._replace(threads=max(self.threads) if len(self.threads) == 1 else 0)

    def units_on(self, worker: str) -> list[Address]:
        """Return the units on a Dask worker."""
        roster = self.roster
        pairs = zip(roster.workers, roster.layout.processes, strict=True)
        return [unit for address, units in pairs if address == worker for unit in units]

    def workers_in(self, processes: Collection[int]) -> tuple[Address, ...]:
        """Return the workers in some processes."""
        units = (unit for process in sorted(processes) for unit in self.roster.layout.processes[process])
        return tuple(unit for unit in units if unit.kind == "worker")

    def is_done(self, process: int) -> bool:
        """Return whether all units of a process are done."""
        units = self.roster.layout.processes[process]
        return all(self.reports.get(str(unit), {}).get("state") == "done" for unit in units)

    def has_ended_servers(self) -> bool:
        """Return whether servers are done: those that start again would miss them."""
        servers = [str(unit) for unit in self.roster.layout.units if unit.kind == "server"]
        return any(self.reports.get(server, {}).get("state") == "done" for server in servers)

    def give_up_missing(self) -> list[str]:
        """Report the units that have not begun as not started; return them."""
        missing = [unit for unit in map(str, self.roster.layout.units) if unit not in self.started]
        for unit in missing:
            self.reports.setdefault(unit, {"unit": unit, "state": "not started", "step": -1})
        return missing

    def known_step(self, steps: Mapping[str, int]) -> int:
        """Return the newest step that is known, from reports and from the ``steps`` of worker groups; else -1."""
        reported = [int(report.get("step", -1)) for report in self.reports.values()]
        return max([*reported, *steps.values(), -1])


def run_actions(life: Life, processes: Iterable[int], workers: Mapping[str, WorkerFacts]) -> list[ev.RunUnits]:
    """Return what starts the units of some processes."""
    roster = life.roster
    endpoints = tuple(life.endpoints[p] for p in range(len(roster.workers)))
    actions = []
    for process in processes:
        worker, units = roster.workers[process], roster.layout.processes[process]
        known = workers.get(worker)
        n_tasks = min(max(1, known.nthreads - known.busy) if known else 1, len(units))
        actions.append(ev.RunUnits(roster.lives[process], worker, process, units, n_tasks, endpoints))
    return actions


def host_actions(
    roster: Roster,
    processes: Iterable[int],
    start: Mapping[str, Any],
    buddies: Sequence[str],
    rejoin: Mapping[str, Any] | None = None,
) -> list[ev.Host]:
    """Return what hosts some processes of a job.

    Parameters
    ----------
    roster : Roster
    processes : iterable of int
    start : mapping
        What the units start from: ``manifest`` of a snapshot, ``url`` of a checkpoint, or nothing.
    buddies : sequence of str
        Of each process of the job.
    rejoin : mapping, optional
        Fields of `Rejoin`, as plain values, for processes that join others that go on.
    """
    facts = {
        "processes": [[list(unit) for unit in units] for units in roster.layout.processes],
        "workers": list(roster.workers),
        "term": roster.term,
        "threads": roster.threads or None,
        "silent_s": limit("silent"),
        "start": start,
        "rejoin": rejoin,
    }
    return [ev.Host(roster.lives[p], p, roster.workers[p], {**facts, "buddy": buddies[p]}) for p in processes]


def processes_to_replace(layout: Layout, lost: Collection[int]) -> list[int] | None:
    """Return the lost processes and all that share a worker group with them; None if the whole job has to restart.

    It has to if no worker group is left then, or if servers are lost: the newest moment of which all is known is that
    of the newest snapshot or checkpoint.
    """
    if layout.cluster.nworker_groups == 1:
        return None
    replaced = set(lost)
    groups = [{unit.group for unit in units if unit.kind == "worker"} for units in layout.processes]
    while more := {
        process
        for process, mine in enumerate(groups)
        if process not in replaced and any(mine & groups[other] for other in replaced)
    }:
        replaced |= more
    if not any(mine for process, mine in enumerate(groups) if process not in replaced):
        return None
    if any(unit.kind == "server" for process in replaced for unit in layout.processes[process]):
        return None
    return sorted(replaced)


class Replacement:
    """Starts processes again.

    They are cut off from the others first (``"ending"``). Surviving servers then say up to which step they have had the
    gradients of the groups that are lost. The processes are placed (``"placing"``) and hosted (``"hosting"``). Once
    the survivors know where they are (``"joining"``), their units run (``"running"``) until all of them have begun
    (``"done"``). If anything goes wrong meanwhile it has ``failed``.

    Parameters
    ----------
    life : Life
        Of the job; its roster and endpoints are brought up to date.
    processes : sequence of int
        The processes to start again.
    points : RestartPoints
    placer : Placer

    Attributes
    ----------
    failed : str
        Why the whole job must be restarted; empty if it need not.
    is_refused : bool
        Whether that is so because the processes cannot be placed, not because anything more was lost.
    """

    def __init__(self, life: Life, processes: Sequence[int], points: RestartPoints, placer: Placer) -> None:
        self.phase: Literal["ending", "placing", "hosting", "joining", "running", "done"] = "ending"
        self.failed = ""
        self.is_refused = False
        self._life = life
        self._processes = list(processes)
        self._survivors = [p for p in range(len(life.roster.workers)) if p not in processes]
        self._points = points
        self._placer = placer
        self._applied: dict[int, int] = {}
        self._hosted: dict[int, str] = {}
        self._missing: set[str] = set()
        self._joining: set[int] = set()
        self._deadline = self._now = 0.0

    @property
    def units(self) -> list[Address]:
        """The units that start again."""
        return [unit for process in self._processes for unit in self._life.roster.layout.processes[process]]

    @property
    def groups(self) -> list[int]:
        """The worker groups that start again."""
        return sorted({unit.group for unit in self.units if unit.kind == "worker"})

    def begin(self, now: float, workers: Mapping[str, WorkerFacts], reason: str) -> list[Any]:
        """Cut the processes off."""
        self._deadline = now + limit("start")
        self._placer.begin(now)
        roster = self._life.roster
        ending = [p for p in self._processes if roster.workers[p] in workers and workers[roster.workers[p]].usable]
        self._survivors = [p for p in self._survivors if not self._has_left(p, workers)]
        self._ending, self._cutting = set(ending), set(self._survivors)
        processes, groups = tuple(self._processes), tuple(self.groups)
        return [
            *(ev.CutOff(roster.lives[p], roster.workers[p], p, processes, groups) for p in self._survivors),
            *(ev.EndLife(roster.lives[p], roster.workers[p], reason, process=p) for p in ending),
        ]

    def _has_left(self, process: int, workers: Mapping[str, WorkerFacts]) -> bool:
        """Return whether a process is done and gone; the first one is needed by all others."""
        worker = self._life.roster.workers[process]
        is_there = worker in workers and workers[worker].usable
        return process > 0 and not is_there and self._life.is_done(process)

    def handle(self, event: Any, now: float, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Take an event of the job; return what is to be done."""
        actions: list[Any] = []
        self._now = now
        if isinstance(event, ev.Ended | ev.Cut | ev.Hosted | ev.Joined):
            if event.process is not None and self._life.roster.has(event.process, event.life):
                actions = self._take_answer(event)
        elif isinstance(event, ev.Said) and event.what["event"] == "unit" and event.life == self._life.roster.life:
            self._missing.discard(event.what["unit"])
        elif isinstance(event, ev.Reported) and event.life == self._life.roster.life:
            self._missing.discard(str(event.unit))
        elif isinstance(event, ev.Gone):
            self._take_loss(event)
        if self.phase == "ending" and not self._ending and not self._cutting:
            self.phase = "placing"
        if self.phase == "placing" and not self.failed:
            actions += self._place(now, workers)
        if self.phase == "joining" and not self._joining and not self.failed:
            actions += self._run(workers)
        if self.phase == "running" and not self._missing:
            self.phase = "done"
        if now >= self._deadline and self.phase != "done":
            self.failed = self.failed or f"units do not start again within {limit('start'):g} s."
        return actions

    def _take_answer(self, event: ev.Ended | ev.Cut | ev.Hosted | ev.Joined) -> list[Any]:
        if isinstance(event, ev.Ended):
            self._ending.discard(event.process or 0)
        elif isinstance(event, ev.Cut):
            self._take_applied(event)
        elif isinstance(event, ev.Hosted):
            return self._take_hosted(event)
        elif self.phase == "joining":
            self.failed = self.failed or event.error
            self._joining.discard(event.process)
        return []

    def _take_loss(self, event: ev.Gone) -> None:
        roster = self._life.roster
        on_it = {p for p, worker in enumerate(roster.workers) if worker == event.worker}
        if self.phase in ("ending", "placing"):
            self._ending -= on_it
            on_it -= set(self._processes)
        left = {p for p in on_it if p > 0 and self._life.is_done(p)} - set(self._processes)
        self._cutting -= left
        self._joining -= left
        self._survivors = [p for p in self._survivors if p not in left]
        if on_it - left:
            self.failed = f"the Dask worker at {event.worker} was lost while others were replaced: {event.reason}."

    def _take_applied(self, event: ev.Cut) -> None:
        if event.error:
            self.failed = event.error
        self._cutting.discard(event.process)
        for group, step in event.applied.items():
            self._applied[int(group)] = min(step, self._applied.get(int(group), step))

    def _place(self, now: float, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Host the processes once there are Dask workers for them."""
        roster = self._life.roster
        others = Counter[str]()
        for p in range(len(roster.workers)):
            if p not in self._processes:
                others[roster.workers[p]] += 0 if self._life.is_done(p) else len(roster.layout.processes[p])
        try:
            chosen = self._placer.place_some(now, workers, self._processes, others)
        except ClusterError as error:
            self.failed, self.is_refused = str(error), True
            return []
        if chosen is None:
            return []
        steps = {group: self._applied[group] + 1 for group in self.groups if group in self._applied}
        if 0 in steps.values() or len(steps) < len(self.groups):  # it may not have sent its initial values
            self.failed, self.is_refused = "a lost worker group had not trained a step yet.", True
            return []
        start = self._points.of_groups(steps, self._placer.reachable(workers))
        self.phase = "hosting"
        self._placer.look_at(workers, chosen)
        mine = dict(zip(self._processes, chosen, strict=True))
        life = 1 + max(roster.lives)
        roster = self._life.roster = roster._replace(
            life=life,
            workers=tuple(mine.get(p, worker) for p, worker in enumerate(roster.workers)),
            lives=tuple(life if p in mine else before for p, before in enumerate(roster.lives)),
        )
        rejoin = {
            "running": [list(unit) for p in self._survivors for unit in roster.layout.processes[p]],
            "left": [list(unit) for unit in self._left()],
            "steps": [list(each) for each in steps.items()],
        }
        self._life.buddies = buddies_of(roster, workers)
        return host_actions(roster, self._processes, start, self._life.buddies, rejoin)

    def _left(self) -> tuple[Address, ...]:
        """Return the workers that are done in processes that are gone, and do not start again."""
        gone = set(range(len(self._life.roster.workers))).difference(self._survivors, self._processes)
        return self._life.workers_in(gone)

    def _take_hosted(self, event: ev.Hosted) -> list[Any]:
        if self.phase != "hosting" or event.process not in self._processes:
            return []
        if event.error:
            if not event.final:
                worker = self._life.roster.workers[event.process]
                self._placer.suspects.add(self._now, worker, for_good=event.lasting)
            self.failed = event.error
            return []
        self._hosted[event.process] = event.endpoint
        if len(self._hosted) < len(self._processes):
            return []
        self.phase = "joining"
        self._joining = set(self._survivors)
        self._life.endpoints |= self._hosted
        roster = self._life.roster
        left = self._left()
        return [
            ev.Join(roster.lives[p], roster.workers[p], p, dict(self._hosted), left, self._life.buddies[p])
            for p in self._survivors
        ]

    def _run(self, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Start the units, now that all others know where they are."""
        self.phase = "running"
        self._missing = set(map(str, self.units))
        for unit in self._missing:
            self._life.reports.pop(unit, None)
        return run_actions(self._life, self._processes, workers)
