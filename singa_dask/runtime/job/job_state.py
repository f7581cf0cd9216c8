"""JobState: decides what a job does next when something happens to it. It does no I/O and never waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from singa_dask.comm import Address
from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError, LostUnitError, UnitError
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.life import Life
from singa_dask.runtime.job.replacing import Placer, Roster, buddies_of
from singa_dask.runtime.job.report import SIGNAL_CODES
from singa_dask.runtime.job.restarting import RestartPoints, Restarts
from singa_dask.runtime.job.spec import JobSpec
from singa_dask.runtime.planning.placement import plan_processes

__all__ = ["JobState"]

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 8.0
HAND_OVER_S = 5.0
"""How long a snapshot may take before units move."""


class JobState:
    """One job on a Dask cluster, from its submission to its end.

    A job has one life after the other. A life begins with `Host` for each process, goes on with `RunUnits`, and ends
    with `EndLife` on each Dask worker: because all units are done, or because one was lost. Then the units are placed
    anew, and the next life goes on from the newest snapshot.

    Parameters
    ----------
    spec : JobSpec

    Attributes
    ----------
    cluster : ClusterConf
    steps : dict of str to int
        Step of each worker group that is training, as far as it is known.
    phase : str
        ``"starting"``, ``"running"``, ``"ending"`` a life, ``"placing"`` the units anew, or ``"over"``.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.phase: Literal["starting", "running", "ending", "placing", "over"] = "placing"
        self.cluster = ClusterConf.model_validate_json(spec.cluster)
        self._layout = plan_processes(self.cluster)
        self._placer = Placer(self._layout, self.cluster)
        self._life = Life(Roster(-1, self._layout, tuple(spec.workers)))
        self._points = RestartPoints(spec.resume)
        self._restarts = Restarts(self.cluster.max_restarts)
        self._failure: dict[str, Any] | None = None
        self._is_done = False
        self._signal = ""
        self.steps: dict[str, int] = {}
        self._deadline: float | None = None
        self._place_at = 0.0
        self._moving = ""
        self._now = 0.0
        self._workers: Mapping[str, ev.WorkerFacts] = {}
        self._actions: list[Any] = []

    # -- what others see -------------------------------------------------------------------------------------------

    @property
    def life(self) -> int:
        """The current life."""
        return self._life.roster.life

    @property
    def threads(self) -> dict[str, int]:
        """Number of units on each Dask worker."""
        roster = self._life.roster
        if self.phase not in ("starting", "running"):
            return {}
        return {address: len(units) for address, units in zip(roster.workers, roster.layout.processes, strict=True)}

    @property
    def workers(self) -> tuple[str, ...]:
        """Dask workers with units of the current life."""
        return self._life.roster.workers if self.phase in ("starting", "running", "ending") else ()

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: Any, now: float, workers: Mapping[str, ev.WorkerFacts]) -> list[Any]:
        """Take an event; return what is to be done, in order.

        Parameters
        ----------
        event : object
            One of `singa_dask.runtime.job.events`.
        now : float
            Seconds, of a clock that never goes back.
        workers : mapping of str to WorkerFacts
            The Dask workers of the cluster.
        """
        self._now, self._workers, self._actions = now, workers, []
        self._placer.look_at(workers, self._life.roster.workers)
        if self.phase != "over":
            getattr(self, "_on_" + type(event).__name__.lower())(event)
        return self._actions

    def begin(self, now: float, workers: Mapping[str, ev.WorkerFacts]) -> list[Any]:
        """Begin the first life, on the Dask workers that the client has chosen."""
        self._now, self._workers, self._actions = now, workers, []
        self._begin_life(Roster(0, self._layout, tuple(self.spec.workers)))
        return self._actions

    def _on_hosted(self, event: ev.Hosted) -> None:
        if event.life != self.life or self.phase != "starting":
            return
        worker = self._life.roster.workers[event.process]
        if event.error and event.final:
            self._fail({"reason": event.error, "exit_code": UnitError.exit_code, "expected": True, "hosting": True})
        elif event.error:
            self._placer.barred.add(worker)
            self._lose(worker, event.error)
        else:
            self._life.endpoints[event.process] = event.endpoint
            if len(self._life.endpoints) == len(self._life.roster.workers):
                self._run_units()

    def _run_units(self) -> None:
        self.phase = "running"
        roster = self._life.roster
        endpoints = tuple(self._life.endpoints[process] for process in range(len(roster.workers)))
        for worker, units in zip(roster.workers, roster.layout.processes, strict=True):
            known = self._workers.get(worker)
            room = max(1, known.nthreads - known.busy) if known else 1
            self._actions.append(ev.RunUnits(self.life, worker, units, min(room, len(units)), endpoints))

    def _on_said(self, event: ev.Said) -> None:
        what, kind = event.what, event.what["event"]
        if kind == "checkpoint":
            # also one that a life wrote that has ended meanwhile: it is complete
            self._points.add_checkpoint(what["step"], what["url"])
        if event.life != self.life:
            return
        if kind == "unit":
            self._life.started.add(what["unit"])
            if len(self._life.started) == len(self._layout.units) and self.phase == "running":
                self._deadline = None
                if self._signal:
                    self._stop_units()
        elif kind == "training":
            self._restarts.resume(self._now)
        elif kind == "steps":
            self.steps = dict(what["steps"])
        elif kind == "snapshot":
            self._points.add_snapshot(what["step"], what["manifest"])
            if self._moving and self.phase == "running":
                self._move()

    def _on_reported(self, event: ev.Reported) -> None:
        if event.life != self.life:
            return
        report = event.report
        self._life.reports.setdefault(str(event.unit), report)
        if event.unit.kind == "worker" and report["state"] == "done":
            self._actions.append(ev.Tell({"event": "steps", "steps": {str(event.unit.group): report["step"]}}))
        if self.phase not in ("starting", "running"):
            return
        if report["state"] == "failed" or (report["state"] == "aborted" and "exit_code" in report):
            if report.get("retry"):
                self._recover(str(report["reason"]), cause=str(report.get("cause", report["reason"])))
            else:
                self._fail(dict(report))
        elif len(self._life.reports) == len(self._layout.units):
            left = [unit for unit, each in self._life.reports.items() if each["state"] != "done"]
            if left:
                self._recover(f"units ended before the job was done: {', '.join(left)}.", cause="ended early")
            else:
                self._is_done = True
                self._end_life("the job is done")

    def _on_gone(self, event: ev.Gone) -> None:
        self._placer.leaving.discard(event.worker)
        if self.phase in ("starting", "running"):
            self._lose(event.worker, event.reason)
        elif self.phase == "ending" and event.worker in self._life.ending:
            self._on_ended(ev.Ended(self.life, event.worker))

    def _on_arrived(self, event: ev.Arrived) -> None:
        self._placer.barred.discard(event.worker)
        self._on_tick()

    def _on_leaving(self, event: ev.Leaving) -> None:
        self._placer.leaving.add(event.worker)
        if self.phase in ("starting", "running") and event.worker in self._life.roster.workers:
            self._prepare_move(f"the Dask worker at {event.worker} leaves")

    def _on_ended(self, event: ev.Ended) -> None:
        if event.life == self.life and self.phase == "ending":
            for unit, report in event.reports.items():
                self._life.reports.setdefault(unit, report)
            self._life.ending.discard(event.worker)
            if not self._life.ending:
                self._after_life()

    def _on_signal(self, event: ev.Signal) -> None:
        again, self._signal = bool(self._signal), event.name
        if again:
            code = SIGNAL_CODES.get(event.name, 1)
            reason = f"ended at once by a second {event.name}"
            self._fail({"reason": reason, "exit_code": code, "expected": True})
            return
        message = f"{event.name}: the job stops with a checkpoint; once more to abort it."
        self._actions.append(ev.Tell({"event": "notice", "level": "WARNING", "message": message}))
        if self.phase == "running" and self._deadline is None:
            self._stop_units()

    def _stop_units(self) -> None:
        self._actions += [ev.StopUnits(self.life, worker) for worker in self._life.roster.workers]

    def _on_clientgone(self, event: ev.ClientGone) -> None:
        self._fail({"reason": "the client that ran the job is gone", "exit_code": 1, "expected": True})

    def _on_tick(self, event: ev.Tick | None = None) -> None:
        late = self._deadline is not None and self._now >= self._deadline
        if self.phase == "ending" and late:
            for worker in self._life.ending:
                self._placer.barred.add(worker)
            self._after_life()
        elif self.phase in ("starting", "running") and self._moving and late:
            self._move()
        elif self.phase in ("starting", "running") and late:
            self._fail_to_start()
        elif self.phase == "placing" and self._now >= self._place_at:
            self._place()
        elif self.phase == "running" and not self._moving and not self._signal:
            self._look_for_room()

    # -- ends ------------------------------------------------------------------------------------------------------

    def _fail(self, failure: dict[str, Any]) -> None:
        """End the job: what failed first is told."""
        if self._failure is None:
            self._failure = failure
        if self.phase in ("starting", "running"):
            self._end_life(str(failure["reason"]))
        elif self.phase == "placing":
            self._finish()

    def _fail_to_start(self) -> None:
        """End a job that Dask has started only in part, because other tasks took the threads."""
        missing = [unit for unit in map(str, self._layout.units) if unit not in self._life.started]
        for unit in missing:
            self._life.reports.setdefault(unit, {"unit": unit, "state": "not started", "step": -1})
        reason = f"Dask had not started these units after {START_TIMEOUT_S:g} s: {', '.join(missing)}. "
        reason += "Other tasks hold the threads."
        self._fail({"reason": reason, "exit_code": ClusterError.exit_code, "expected": True})

    def _end_life(self, reason: str) -> None:
        self.phase = "ending"
        self._moving = ""
        self._deadline = self._now + END_TIMEOUT_S
        forget = self._is_done or self._failure is not None
        present = [each for each in self._life.roster.workers if each in self._workers and self._workers[each].usable]
        closing = [each for each in self._life.roster.workers if each in self._placer.leaving and each in self._workers]
        self._life.ending = {*present, *closing}
        self._actions += [ev.EndLife(self.life, each, reason, forget) for each in sorted(self._life.ending)]
        if not self._life.ending:
            self._after_life()

    def _after_life(self) -> None:
        """Go on after the last unit of a life has ended."""
        self._deadline = None
        if self._is_done or self._failure is not None:
            self._finish()
            return
        self.phase = "placing"
        self._placer.begin(self._now)
        self._place_at = self._now + self._restarts.backoff_s()
        if self._now >= self._place_at:
            self._place()

    def _finish(self) -> None:
        self.phase = "over"
        stuck = tuple(sorted(self._life.ending & set(self._workers)))
        what = {
            "event": "over",
            "reports": dict(self._life.reports),
            "failure": self._failure,
            "signal": self._signal,
            "processes": [[str(unit) for unit in units] for units in self._life.roster.layout.processes],
            "stuck": [str(unit) for worker in stuck for unit in self._life.units_on(worker)],
            **self._restarts.summary(),
        }
        self._actions.append(ev.Over(what, stuck))

    # -- losses ----------------------------------------------------------------------------------------------------

    def _lose(self, worker: str, reason: str) -> None:
        """Restart the job, unless all units of the Dask worker have ended already."""
        units = [str(unit) for unit in self._life.units_on(worker)]
        lost = [unit for unit in units if self._life.reports.get(unit, {}).get("state") != "done"]
        if not lost:
            return
        process = self._life.roster.process_on(worker)
        self._placer.lose(worker, self._workers)
        for unit in lost:
            self._life.reports.setdefault(
                unit, {"unit": unit, "state": "lost", "step": self._life.known_step(self.steps)}
            )
        text = f"process {process} of the job, on the Dask worker at {worker}: {reason}. Lost: {', '.join(lost)}."
        self._recover(text, lost=lost)

    def _recover(self, reason: str, cause: str = "", lost: Sequence[str] = ()) -> None:
        """End this life, and begin another one if the job may."""
        step = self._life.known_step(self.steps)
        refusal = self._restarts.refusal(self._now, cause, step)
        if refusal:
            tried = f" {refusal} Earlier: {' '.join(self._restarts.reasons)}" if len(self._restarts) else f" {refusal}"
            code = LostUnitError.exit_code
            self._fail({"reason": reason + tried, "exit_code": code, "expected": True})
            return
        self._restarts.lose(self._now)
        self._restarts.add(self._now, reason, step, cause)
        self._warn(f"{reason} The job goes on.")
        self._end_life(reason)

    def _warn(self, message: str) -> None:
        self._actions.append(ev.Tell({"event": "log", "level": "WARNING", "message": message}))

    # -- moves -----------------------------------------------------------------------------------------------------

    def _look_for_room(self) -> None:
        """Move units that share threads once there are more Dask workers."""
        if self._deadline is None:
            n = self._placer.room(self._now, self._workers, self._life.roster.workers)
            if n:
                self._prepare_move(f"there is room for {n} processes")

    def _prepare_move(self, why: str) -> None:
        """Have a snapshot taken, after which the units are placed anew."""
        self._moving = why
        self._deadline = self._now + HAND_OVER_S
        first = self._life.roster.layout.process_of[Address.worker(0, 0)]
        self._actions.append(ev.RequestSnapshot(self.life, self._life.roster.workers[first]))

    def _move(self) -> None:
        self._warn(f"{self._moving}: the units are placed anew.")
        self._restarts.lose(self._now)
        self._end_life(f"the units are placed anew: {self._moving}")

    # -- the next life ---------------------------------------------------------------------------------------------

    def _place(self) -> None:
        """Place the units anew, or wait for Dask workers as long as that can help."""
        try:
            found = self._placer.place(self._now, self._workers, self._life.roster.workers)
        except ClusterError as error:
            reason = f"{' '.join(self._restarts.reasons)} {error}"
            self._fail({"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True})
            return
        if found is not None:
            self._begin_life(Roster(self.life + 1, *found))

    def _begin_life(self, roster: Roster) -> None:
        step, start, what = self._points.newest(self._workers)
        reached = self._life.known_step(self.steps)
        lost = [unit for unit, report in self._life.reports.items() if report["state"] == "lost"]
        self._life = Life(roster)
        self.phase, self._deadline = "starting", self._now + START_TIMEOUT_S
        self.steps = {}
        if roster.life > 0:
            self._restarts.recomputed_steps += max(0, reached - (step or 0))
            facts = {"event": "restart", "life": roster.life, "step": step or 0, "lost": lost, "from": what}
            reason = self._restarts.reasons[-1] if self._restarts.reasons else ""
            self._actions.append(ev.Tell({**facts, "reason": reason}))
            self._warn(f"life {roster.life} of the job starts from {what}, in {len(roster.workers)} processes.")
        processes = [[list(unit) for unit in units] for units in roster.layout.processes]
        placed = [
            {"address": address, "units": [str(unit) for unit in units]}
            for address, units in zip(roster.workers, roster.layout.processes, strict=True)
        ]
        self._actions.append(ev.Tell({"event": "placed", "life": roster.life, "processes": placed}))
        for process, (worker, buddy) in enumerate(zip(roster.workers, buddies_of(roster, self._workers), strict=True)):
            facts = {"processes": processes, "workers": list(roster.workers), "buddy": buddy, "start": start}
            self._actions.append(ev.Host(roster.life, process, worker, facts))
