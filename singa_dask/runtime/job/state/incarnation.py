"""The state of one incarnation of a job, and the actions that start its processes and units."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.placer import Roster
from singa_dask.runtime.planning.layout import Rejoin
from singa_dask.runtime.planning.worker_choice import WorkerFacts


@dataclass
class Incarnation:
    """The state of one incarnation of a job.

    Attributes
    ----------
    roster : Roster
        The Dask worker and the units of each process.
    endpoints : dict of int to str
        Address of each process that is ready for its units.
    started : set of str
        Units that have started.
    reports : dict of str to dict
        Report of each unit that has ended.
    ending : set of str
        Dask workers that have been asked to end their units, and have not answered yet.
    threads : set of int
        The different numbers of threads that workers have.
    buddies : list of str
        For each process, the Dask worker that keeps a second copy of its snapshots; an empty string without a second
        copy.
    gone : set of int
        Processes whose units were done and whose Dask workers are gone.
    untold : set of int
        Processes that have not received the newest `Join`. The `Join` is sent to these processes again.
    requests : dict of int to int
        For each process that has not answered yet, the number of the newest `CutOff` or `Join`.
    n_requests : int
        Number of the last `CutOff` or `Join`.
    """

    roster: Roster
    endpoints: dict[int, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    reports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)
    buddies: list[str] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    untold: set[int] = field(default_factory=set)
    requests: dict[int, int] = field(default_factory=dict)
    n_requests: int = 0

    def ask(self, process: int) -> int:
        """Return the number of a new `CutOff` or `Join`.

        Answers to earlier requests to the process no longer count.
        """
        self.n_requests += 1
        self.requests[process] = self.n_requests
        return self.n_requests

    def take_answer(self, event: ev.Cut | ev.Joined) -> bool:
        """Return whether an event answers the newest request to a process, and was not taken before."""
        is_newest = self.requests.get(event.process) == event.request
        if is_current := is_newest and self.roster.has(event.process, event.incarnation):
            del self.requests[event.process]
        return is_current

    def take_threads(self, n: int) -> None:
        """Record a worker's number of threads.

        If all workers have the same number, later incarnations use it, too.
        """
        self.threads |= {n} - {0}
        self.roster = self.roster._replace(threads=max(self.threads) if len(self.threads) == 1 else 0)

    def units_on(self, worker: str) -> list[Address]:
        """Return the units on a Dask worker."""
        roster = self.roster
        pairs = zip(roster.workers, roster.layout.processes, strict=True)
        return [unit for address, units in pairs if address == worker for unit in units]

    def worker_units_in(self, processes: Collection[int]) -> tuple[Address, ...]:
        """Return the workers in some processes."""
        units = (unit for process in sorted(processes) for unit in self.roster.layout.processes[process])
        return tuple(unit for unit in units if unit.kind == "worker")

    def is_done(self, process: int) -> bool:
        """Return whether all units of a process are done."""
        units = self.roster.layout.processes[process]
        return all(self.reports.get(str(unit), {}).get("state") == "done" for unit in units)

    def has_ended_servers(self) -> bool:
        """Return whether any server is done. Restarted workers could not use such a server."""
        done = [unit for unit, report in self.reports.items() if report["state"] == "done"]
        return any(unit.startswith("server") for unit in done)

    def give_up_missing(self) -> list[str]:
        """Record the report "not started" for all units that have not started; return these units."""
        missing = [unit for unit in map(str, self.roster.layout.units) if unit not in self.started]
        for unit in missing:
            self.reports.setdefault(unit, {"unit": unit, "state": "not started", "step": -1})
        return missing

    def known_step(self, steps: Mapping[str, int]) -> int:
        """Return the highest step in the reports, and in ``steps`` of worker groups; -1 if there is none."""
        return max([-1, *steps.values(), *(int(report.get("step", -1)) for report in self.reports.values())])


def run_actions(
    incarnation: Incarnation, processes: Iterable[int], workers: Mapping[str, WorkerFacts]
) -> list[act.RunUnits]:
    """Return the actions that start the units of some processes."""
    roster = incarnation.roster
    endpoints = tuple(incarnation.endpoints[p] for p in range(len(roster.workers)))
    actions = []
    for process in processes:
        worker, units = roster.workers[process], roster.layout.processes[process]
        known = workers.get(worker)
        n_tasks = min(max(1, known.free) if known else 1, len(units))
        actions.append(act.RunUnits(roster.incarnations[process], worker, process, units, n_tasks, endpoints))
    return actions


def host_actions(
    roster: Roster,
    processes: Iterable[int],
    start: Mapping[str, Any],
    buddies: Sequence[str],
    rejoin: Rejoin | None = None,
) -> list[act.Host]:
    """Return the actions that host some processes. ``buddies`` has an entry for each process of the job."""
    return [
        act.Host(roster.incarnations[p], p, roster.workers[p], roster, start, buddies[p], rejoin) for p in processes
    ]
