"""Replace some processes of a job while other worker groups continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from singa_dask.comm.message import Address
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.incarnation import Incarnation, host_actions, run_actions
from singa_dask.runtime.job.state.placer import Placer, buddies_of
from singa_dask.runtime.job.state.restarts import RestartPoints
from singa_dask.runtime.planning.layout import Layout, Rejoin
from singa_dask.runtime.planning.worker_choice import WorkerFacts


def processes_to_replace(layout: Layout, lost: Collection[int]) -> list[int] | None:
    """Return the processes to replace: all processes of each worker group that has lost a process.

    The result is None if the whole job must restart. The whole job must restart if no worker group would be left, or if
    a process to replace has servers: then only a snapshot or checkpoint has all values.
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
    """Replaces lost processes while other processes, the survivors, continue.

    A replacement has these phases:

    - ``"ending"``: the survivors disconnect from the lost processes. The survivors report the last step of the lost
      worker groups whose gradients their servers have applied.
    - ``"placing"``: Dask workers are chosen for the new processes.
    - ``"hosting"``: the new processes start.
    - ``"joining"``: the survivors receive the endpoints of the new processes.
    - ``"running"``: the units of the new processes start.
    - ``"done"``: all these units have started.

    Parameters
    ----------
    incarnation : Incarnation
        Incarnation of the job. The replacement updates its roster and endpoints.
    processes : sequence of int
        The processes to replace, also an attribute.

    Attributes
    ----------
    failed : str
        Why the replacement has failed, so that the whole job must restart; empty otherwise.
    is_refused : bool
        Whether the replacement failed without a further lost process, e.g. because there are too few Dask workers.
    """

    def __init__(
        self, incarnation: Incarnation, processes: Sequence[int], points: RestartPoints, placer: Placer
    ) -> None:
        self.phase: Literal["ending", "placing", "hosting", "joining", "running", "done"] = "ending"
        self.failed = ""
        self.is_refused = False
        self._incarnation = incarnation
        self.processes = list(processes)
        self._survivors = [p for p in range(len(incarnation.roster.workers)) if p not in processes]
        self._points = points
        self._placer = placer
        self._applied: dict[int, int] = {}
        self._hosted: dict[int, str] = {}
        self._missing: set[str] = set()
        self._ending: set[int] = set()
        self._deadline = self._now = 0.0

    @property
    def units(self) -> list[Address]:
        """The units that restart."""
        return [unit for process in self.processes for unit in self._incarnation.roster.layout.processes[process]]

    @property
    def groups(self) -> list[int]:
        """The worker groups that restart."""
        return sorted({unit.group for unit in self.units if unit.kind == "worker"})

    def begin(self, now: float, workers: Mapping[str, WorkerFacts], reason: str) -> list[Any]:
        """Return the actions that end the lost processes and disconnect them from the survivors."""
        self._deadline = now + limit("start")
        self._placer.begin(now)
        roster = self._incarnation.roster
        ending = [p for p in self.processes if roster.workers[p] in workers and workers[roster.workers[p]].usable]
        self._survivors = [p for p in self._survivors if not self._has_left(p, workers)]
        self._ending = set(ending)
        processes, groups = tuple(self.processes), tuple(self.groups)
        return [
            *(
                act.CutOff(roster.incarnations[p], roster.workers[p], p, self._incarnation.ask(p), processes, groups)
                for p in self._survivors
            ),
            *(act.EndIncarnation(roster.incarnations[p], roster.workers[p], reason, process=p) for p in ending),
        ]

    def _has_left(self, process: int, workers: Mapping[str, WorkerFacts]) -> bool:
        """Return whether a process is done and gone. Such a process does not have to be replaced.

        The result is False for process 0, because all other processes need it.
        """
        worker = self._incarnation.roster.workers[process]
        is_there = worker in workers and workers[worker].usable
        return process > 0 and not is_there and self._incarnation.is_done(process)

    def handle(self, event: Any, now: float, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Handle an event of the job; return the actions to carry out."""
        actions: list[Any] = []
        self._now, roster = now, self._incarnation.roster
        if isinstance(event, ev.Gone):
            self._take_loss(event)
        elif isinstance(event, ev.Began | ev.Reported) and event.incarnation == roster.incarnation:
            self._missing.discard(str(event.unit))
        elif isinstance(event, ev.Cut | ev.Joined):
            if event.process in self._survivors and self._incarnation.take_answer(event):
                self._take_answer(event)
        elif isinstance(event, ev.Ended | ev.Hosted) and event.process is not None:
            if roster.has(event.process, event.incarnation) and event.process in self.processes:
                actions = self._take_hosted(event) if isinstance(event, ev.Hosted) else self._take_end(event.process)
        if self.phase == "ending" and not self._ending and not self._unanswered:
            self.phase = "placing"
        if self.phase == "placing" and not self.failed:
            actions += self._place(now, workers)
        if self.phase == "joining" and not self._unanswered and not self.failed:
            actions += self._run(workers)
        if self.phase == "running" and not self._missing:
            self.phase = "done"
        if now >= self._deadline and self.phase != "done":
            self.failed = self.failed or f"units do not start again within {limit('start'):g} s."
        return actions

    @property
    def _unanswered(self) -> set[int]:
        """Survivors that have not answered their `CutOff` or `Join`."""
        return self._incarnation.requests.keys() & set(self._survivors)

    def _take_answer(self, event: ev.Cut | ev.Joined) -> None:
        self.failed = self.failed or event.error
        for group, step in event.applied.items() if isinstance(event, ev.Cut) else ():
            self._applied[int(group)] = min(step, self._applied.get(int(group), step))

    def _take_end(self, process: int) -> list[Any]:
        self._ending.discard(process)
        return []

    def _take_loss(self, event: ev.Gone) -> None:
        roster = self._incarnation.roster
        on_it = {p for p, worker in enumerate(roster.workers) if worker == event.worker}
        if self.phase in ("ending", "placing"):
            self._ending -= on_it
            on_it -= set(self.processes)
        left = {p for p in on_it if p > 0 and self._incarnation.is_done(p)} - set(self.processes)
        self._survivors = [p for p in self._survivors if p not in left]
        if on_it - left:
            self.failed = (
                f"the Dask worker at {event.worker} was lost while other processes were replaced: {event.reason}."
            )

    def _place(self, now: float, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Once there are Dask workers for the new processes, return the actions that host them."""
        roster = self._incarnation.roster
        others = Counter[str]()
        for p in range(len(roster.workers)):
            if p not in self.processes:
                others[roster.workers[p]] += 0 if self._incarnation.is_done(p) else len(roster.layout.processes[p])
        try:
            chosen = self._placer.place_some(now, workers, self.processes, others)
        except ClusterError as error:
            self.failed, self.is_refused = str(error), True
            return []
        if chosen is None:
            return []
        steps = {group: self._applied[group] + 1 for group in self.groups if group in self._applied}
        if 0 in steps.values() or len(steps) < len(self.groups):  # a group may not have sent its initial values yet
            self.failed, self.is_refused = "a lost worker group had not trained a step yet.", True
            return []
        start = self._points.of_groups(steps, self._placer.reachable(workers))
        self.phase = "hosting"
        self._placer.look_at(workers, chosen)
        mine = dict(zip(self.processes, chosen, strict=True))
        incarnation = 1 + max(roster.incarnations)
        roster = self._incarnation.roster = roster._replace(
            incarnation=incarnation,
            workers=tuple(mine.get(p, worker) for p, worker in enumerate(roster.workers)),
            incarnations=tuple(incarnation if p in mine else before for p, before in enumerate(roster.incarnations)),
        )
        running = frozenset(unit for p in self._survivors for unit in roster.layout.processes[p])
        rejoin = Rejoin(running, frozenset(self._left()), steps)
        self._incarnation.buddies = buddies_of(roster, workers)
        return host_actions(roster, self.processes, start, self._incarnation.buddies, rejoin)

    def _left(self) -> tuple[Address, ...]:
        """Return the workers that are done, in processes that are gone and not replaced."""
        gone = set(range(len(self._incarnation.roster.workers))).difference(self._survivors, self.processes)
        return self._incarnation.worker_units_in(gone)

    def _take_hosted(self, event: ev.Hosted) -> list[Any]:
        if self.phase != "hosting":
            return []
        if event.error:
            if not event.final:
                worker = self._incarnation.roster.workers[event.process]
                self._placer.suspects.add(self._now, worker, for_good=event.lasting)
            self.failed = event.error
            return []
        self._hosted[event.process] = event.endpoint
        if len(self._hosted) < len(self.processes):
            return []
        self.phase = "joining"
        self._incarnation.endpoints |= self._hosted
        incarnation, roster, left = self._incarnation, self._incarnation.roster, self._left()
        where = [(roster.incarnations[p], roster.workers[p], p, incarnation.ask(p)) for p in self._survivors]
        return [act.Join(*each, dict(self._hosted), left, incarnation.buddies[each[2]]) for each in where]

    def _run(self, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Return the actions that start the units, now that survivors know the new processes' endpoints."""
        self.phase = "running"
        self._missing = set(map(str, self.units))
        for unit in self._missing:
            self._incarnation.reports.pop(unit, None)
        return run_actions(self._incarnation, self.processes, workers)
