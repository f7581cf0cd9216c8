"""LifeCycle: begins and ends the lives of a job, its units from one placement to the next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from singa_dask.comm import Address
from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError, LostUnitError
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.placer import Placer, Roster, buddies_of
from singa_dask.runtime.job.restarting import RestartPoints, Restarts
from singa_dask.runtime.job.spec import JobSpec
from singa_dask.runtime.planning.placement import pack, plan_processes

SILENT_TOGETHER_S = 1.0
"""How much later a Dask worker is found silent that has been cut off together with another one: two looks."""


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

    def describe(self) -> dict[str, Any]:
        """Return reports and units for the last event of a job."""
        return {"reports": dict(self.reports), "processes": [each["units"] for each in self.roster.describe()]}

    def known_step(self, steps: Mapping[str, int]) -> int:
        """Return the newest step that is known, from reports and from the ``steps`` of worker groups; else -1."""
        reported = [int(each.get("step", -1)) for each in self.reports.values()]
        return max([*reported, *steps.values(), -1])


def run_action(life: Life, process: int, workers: Mapping[str, ev.WorkerFacts]) -> ev.RunUnits:
    """Return what starts the units of a process."""
    roster = life.roster
    worker, units = roster.workers[process], roster.layout.processes[process]
    known = workers.get(worker)
    room = max(1, known.nthreads - known.busy) if known else 1
    endpoints = tuple(life.endpoints[p] for p in range(len(roster.workers)))
    return ev.RunUnits(roster.lives[process], worker, process, units, min(room, len(units)), endpoints)


FIRST = Address.worker(0, 0)
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 8.0


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
        "start": start,
        "rejoin": rejoin,
    }
    return [ev.Host(roster.lives[p], p, roster.workers[p], {**facts, "buddy": buddies[p]}) for p in processes]


class LifeCycle:
    """The lives of one job, from its submission to its end; `JobState` decides when they begin and end.

    A life begins with `Host` for each process, goes on with `RunUnits`, and ends with `EndLife` on each Dask worker:
    because all units are done, or because one was lost. Then the units are placed anew, and the next life goes on from
    the newest snapshot.

    Parameters
    ----------
    spec : JobSpec

    Attributes
    ----------
    cluster : ClusterConf
    steps : dict of str to int
        Step of each worker group that is training, as far as it is known.
    phase : str
        ``"new"`` until `begin`, ``"starting"``, ``"running"``, ``"ending"`` a life, ``"placing"`` the units anew, or
        ``"over"``.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.phase: Literal["new", "starting", "running", "ending", "placing", "over"] = "new"
        self.cluster = ClusterConf.model_validate_json(spec.cluster)
        self._layout = plan_processes(self.cluster)
        self._placer = Placer(self._layout, self.cluster)
        # a job with an elastic block may begin on fewer Dask workers
        self._life = Life(Roster.of(-1, pack(self._layout, len(spec.workers)), spec.workers))
        self._points = RestartPoints(spec.resume)
        self._restarts = Restarts(self.cluster.max_restarts)
        self._failure: dict[str, Any] | None = None
        self._is_done = False
        self._ended_by = ""  # why the last life ended
        self._signal = ""
        self._stopped_by = ""
        self.steps: dict[str, int] = {}
        self._deadline: float | None = None
        self._place_at = 0.0
        self._all_told_at = 0.0  # when others that fell silent together with a Dask worker are known, too
        self._now = 0.0
        self._workers: Mapping[str, ev.WorkerFacts] = {}
        self._actions: list[Any] = []

    @property
    def life(self) -> int:
        """The newest life."""
        return self.roster.life

    @property
    def roster(self) -> Roster:
        """Where the units are."""
        return self._life.roster

    @property
    def _first_worker(self) -> str:
        """The Dask worker with the unit that takes checkpoints and snapshots."""
        return self.roster.workers[self.roster.layout.process_of[FIRST]]

    @property
    def reached(self) -> int:
        """Step of the slowest worker group, as far as it is known; 0 before the first."""
        return max(min(self.steps.values(), default=self._life.known_step({})), 0)

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has stopped the job, or it has failed, and it is not over yet."""
        return self.phase != "over" and (bool(self._signal) or self._failure is not None)

    @property
    def restart_reasons(self) -> Sequence[str]:
        """Why units were started again, each time."""
        return self._restarts.reasons

    @property
    def n_restarts(self) -> int:
        """Number of times that units were started again."""
        return len(self._restarts)

    @property
    def threads(self) -> dict[str, int]:
        """Number of units on each Dask worker."""
        workers = self.workers if self.phase != "ending" else ()
        return {address: len(self._life.units_on(address)) for address in workers}

    @property
    def workers(self) -> tuple[str, ...]:
        """Dask workers with units of the current life."""
        return self.roster.workers if self.phase in ("starting", "running", "ending") else ()

    def is_current(self, process: int, life: int) -> bool:
        """Return whether a life of a process has begun, and is not over."""
        return self.phase in ("starting", "running") and self.roster.has(process, life)

    @property
    def _is_saved(self) -> bool:
        """Whether the job is to stop, and another life could not write a newer checkpoint than the last."""
        return bool(self._signal) and "manifest" not in self._points.newest(self._workers)[1]

    def _recover(self, reason: str) -> None:
        """End this life, and begin another one if the job may."""
        raise NotImplementedError

    def _run_units(self) -> None:
        self.phase = "running"
        processes = range(len(self.roster.workers))
        self._actions += [run_action(self._life, process, self._workers) for process in processes]

    def break_off(self, failure: dict[str, Any]) -> list[Any]:
        """End the job without waiting for anything; return what is to be done."""
        self._actions = [ev.EndLife(self.life, each, str(failure["reason"]), forget=True) for each in self.workers]
        self._failure = failure
        self._finish()
        return self._actions

    def _fail(self, failure: dict[str, Any]) -> None:
        """End the job: what failed first is told."""
        if self._failure is None and not self._is_done:
            self._failure = failure
        if self.phase in ("starting", "running"):
            self._end_life(str(failure["reason"]))
        elif self.phase == "placing":
            self._finish()

    def _fail_to_start(self) -> None:
        """End a job that Dask has started only in part; try again if it ran."""
        roster, missing = self.roster, self._life.give_up_missing()
        reason = f"Dask had not started these units after {START_TIMEOUT_S:g} s: {', '.join(missing)}."
        late = {worker for process, worker in enumerate(roster.workers) if process not in self._life.endpoints}
        busy = {worker for worker in roster.workers if worker in self._workers and self._workers[worker].busy} - late
        if late:
            reason += f" No answer yet of {', '.join(sorted(late))}."
        if busy:
            reason += f" Other tasks hold threads of {', '.join(sorted(busy))}."
        if self.life > 0:
            self._recover(reason)
        else:
            self._fail({"reason": reason, "exit_code": ClusterError.exit_code, "expected": True})

    def _end_life(self, reason: str) -> None:
        self.phase, self._ended_by = "ending", reason
        self._deadline = self._now + END_TIMEOUT_S
        forget = self._is_done or self._failure is not None
        present = [each for each in self.roster.workers if each in self._workers and self._workers[each].usable]
        closing = [each for each in self.roster.workers if each in self._placer.leaving and each in self._workers]
        self._life.ending = {*present, *closing}
        self._actions += [ev.EndLife(self.life, each, reason, forget) for each in sorted(self._life.ending)]
        if not self._life.ending:
            self._after_life()

    def _after_life(self) -> None:
        """Go on after the last unit of a life has ended."""
        self._deadline = None
        if self._is_done or self._failure is not None or self._is_saved:
            self._finish()
            return
        self.phase = "placing"
        self._placer.begin(self._now)
        self._place_at = max(self._now + self._restarts.backoff_s(), self._all_told_at)
        if self._now >= self._place_at:
            self._place()

    def _finish(self) -> None:
        self.phase = "over"
        stuck = tuple(sorted(self._life.ending & set(self._workers)))
        what = {
            **self._life.describe(),
            **self._restarts.summary(),
            "event": "over",
            "failure": self._failure,
            "signal": self._signal,
            "by": self._stopped_by,
            "stuck": [str(unit) for worker in stuck for unit in self._life.units_on(worker)],
        }
        self._actions.append(ev.Over(what, stuck))

    def _warn(self, message: str) -> None:
        self._actions.append(ev.Tell({"event": "log", "level": "WARNING", "message": message}))

    def _place(self) -> None:
        """Place the units anew, or wait for Dask workers as long as that can help."""
        try:
            found = self._placer.place(self._now, self._workers, self.roster.workers, self._warn)
        except ClusterError as error:
            reason = f"{' '.join(self._restarts.reasons)} {error}"
            self._fail({"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True})
            return
        if found is not None:
            self._begin_life(Roster.of(self.life + 1, *found, self.roster.threads))

    def _begin_life(self, roster: Roster) -> None:
        step, start, what = self._points.newest(self._placer.reachable(self._workers))
        reached = self._life.known_step(self.steps)
        lost = [unit for unit, report in self._life.reports.items() if report["state"] == "lost"]
        self._life = Life(roster)
        self.phase, self._deadline = "starting", self._now + START_TIMEOUT_S
        self.steps = {}
        if roster.life > 0:
            self._restarts.recomputed_steps += max(0, reached - (step or 0))
            facts = {"event": "restart", "life": roster.life, "step": step or 0, "lost": lost, "from": what}
            self._actions.append(ev.Tell({**facts, "reason": self._ended_by}))
            self._warn(f"life {roster.life} of the job starts from {what}, in {len(roster.workers)} processes.")
        self._tell_placed()
        self._life.buddies = buddies_of(roster, self._workers)
        self._actions += host_actions(roster, range(len(roster.workers)), start, self._life.buddies)

    def _tell_placed(self, groups: Sequence[int] = ()) -> None:
        """Tell where units are; ``groups`` of workers that start again while others go on."""
        roster = self.roster
        if groups:
            names = ", ".join(map(str, groups))
            self._warn(f"worker groups that start again, the others go on: {names}.")
            facts = {"event": "restart", "life": roster.life, "groups": list(groups)}
            self._actions.append(ev.Tell({**facts, "reason": self._restarts.reasons[-1]}))
        self._actions.append(ev.Tell({"event": "placed", "life": roster.life, "processes": roster.describe()}))
