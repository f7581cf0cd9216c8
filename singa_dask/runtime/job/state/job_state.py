"""JobState: decide what a job does after each event, without I/O and without waiting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any, Literal

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError, LostUnitError, UnitError
from singa_dask.runtime.job.job_end import Failure, JobEnd
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.deadlines import Deadlines
from singa_dask.runtime.job.state.incarnation import Incarnation, host_actions, run_actions
from singa_dask.runtime.job.state.move import Move
from singa_dask.runtime.job.state.placer import Placer, Roster, buddies_of
from singa_dask.runtime.job.state.replacement import Replacement, processes_to_replace
from singa_dask.runtime.job.state.restarts import RestartPoints, Restarts
from singa_dask.runtime.job.state.stop import Stop
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.planning.layout import pack, plan_processes
from singa_dask.runtime.planning.worker_choice import WorkerFacts
from singa_dask.shown import plural

SILENT_TOGETHER_S = 1.0
"""Seconds to wait after a Dask worker is found silent, because Dask workers that were lost at the same time are found
silent within these seconds."""
FIRST = Address.worker(0, 0)
CLIENT_GONE = Failure("the client that ran the job is gone")


class JobState:
    """Decides what a job does, from its submission to its end.

    An incarnation of a job is the time between two restarts of all its units. An incarnation begins with the action
    `Host` for each process, continues with `RunUnits`, and ends with `EndIncarnation` on each Dask worker. For the next
    incarnation, new Dask workers are chosen for the units, which continue from the newest snapshot or checkpoint.

    An incarnation ends early in two cases. First, if a process is lost, unless other worker groups can continue while a
    `Replacement` restarts the lost process. Second, if a Dask worker leaves, or if new Dask workers allow the job to
    use more processes; in this case a snapshot is taken first.

    Attributes
    ----------
    restarts : Restarts
        Counts the restarts and the lost time.
    steps : dict of str to int
        Last known step of each worker group that trains.
    phase : str
        ``"new"`` until `begin` is called, then ``"starting"``, and ``"running"`` once all processes are hosted.
        ``"ending"`` while an incarnation ends, ``"placing"`` while new Dask workers are sought, ``"over"`` after the
        end of the job.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.phase: Literal["new", "starting", "running", "ending", "placing", "over"] = "new"
        self.cluster = ClusterConf.model_validate(json.loads(spec.job)["cluster"])
        self._layout = plan_processes(self.cluster)
        self._placer = Placer(self._layout, self.cluster)
        # an elastic job may start on fewer Dask workers than it has processes
        self._incarnation = Incarnation(
            Roster.of(spec.first_incarnation - 1, pack(self._layout, len(spec.workers)), spec.workers)
        )
        self._points = RestartPoints(spec.resume)
        self.restarts = Restarts(self.cluster.max_restarts)
        self._failure: Failure | None = None
        self._is_done = False
        self._ended_by = ""  # reason why the units were last ended
        self._stop = Stop()
        self.steps: dict[str, int] = {}
        self._deadlines = Deadlines()
        self._now = 0.0
        self._workers: Mapping[str, WorkerFacts] = {}
        self._actions: list[Any] = []
        self._trains = self._has_trained = False
        self._replacement: Replacement | None = None
        self._move: Move | None = None
        self._is_alone = False  # whether the client is gone
        self._checkpoint_from = -1  # minimum step of a requested checkpoint; -1 without a request
        self._is_early = False  # whether the request led to a checkpoint of an earlier step, after a restart

    @property
    def incarnation(self) -> int:
        """Number of the newest incarnation."""
        return self.roster.incarnation

    @property
    def roster(self) -> Roster:
        """The Dask worker and the units of each process."""
        return self._incarnation.roster

    @property
    def _first_worker(self) -> str:
        """The Dask worker with the unit that takes checkpoints and snapshots."""
        return self.roster.workers[self.roster.layout.process_of[FIRST]]

    @property
    def reached(self) -> int:
        """Last known step of the slowest worker group; 0 before the first step."""
        return max(min(self.steps.values(), default=self._incarnation.known_step({})), 0)

    @property
    def is_stopping(self) -> bool:
        """Whether the job has failed or was asked to stop, and is not over yet."""
        return self.phase != "over" and (bool(self._stop) or self._failure is not None)

    @property
    def threads(self) -> dict[str, int]:
        """Number of units, and so of threads, on each Dask worker, also of a job that is about to begin."""
        n_units = Counter[str]()
        if self.phase in ("new", "starting", "running"):
            for address, units in zip(self.roster.workers, self.roster.layout.processes, strict=True):
                n_units[address] += len(units)
        return n_units

    @property
    def workers(self) -> tuple[str, ...]:
        """Dask workers with units of the current incarnation."""
        return self.roster.workers if self.phase in ("starting", "running", "ending") else ()

    def is_current(self, process: int, incarnation: int) -> bool:
        """Return whether this incarnation of a process has begun and has not ended."""
        return self.phase in ("starting", "running") and self.roster.has(process, incarnation)

    @property
    def _is_saved(self) -> bool:
        """Whether the job was asked to stop, and no snapshot is newer than its newest checkpoint."""
        return bool(self._stop) and "manifest" not in self._points.newest(self._workers)[1]

    def needs(self, workers: Collection[str]) -> bool:
        """Return whether the job still needs units or snapshots on ``workers``, which are about to leave."""
        if self.phase == "over" or not self._placer.leaving & set(workers):
            return False
        return bool(set(self.workers) & set(workers)) or not self._trains

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: Any, now: float, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Handle an event; return the actions to carry out, in order.

        Parameters
        ----------
        event : object
            An event from `singa_dask.runtime.job.state.events`.
        now : float
            Current time of a monotonic clock, in seconds.
        workers : mapping of str to WorkerFacts
            The Dask workers of the cluster.
        """
        self._now, self._workers, self._actions = now, workers, []
        if self._replacement is not None:
            self._replace_further(event, self._replacement)
        if self.phase != "over":
            self._take(event)
        return self._actions

    @singledispatchmethod
    def _take(self, event: Any) -> None:
        raise TypeError(f"{type(event).__name__} is not an event of a job")

    @_take.register(ev.Cut)
    def _on_cut(self, event: ev.Cut) -> None:
        """Do nothing, because only a replacement handles this event."""

    def begin(self, now: float, workers: Mapping[str, WorkerFacts]) -> list[Any]:
        """Begin the first incarnation, on the Dask workers that the client has chosen."""
        self._now, self._workers, self._actions = now, workers, []
        if self._failure is None:
            self._begin_incarnation(Roster.of(self.incarnation + 1, self.roster.layout, self.spec.workers))
        else:  # the job failed before it began
            self._finish()
        return self._actions

    @_take.register(ev.Hosted)
    def _on_hosted(self, event: ev.Hosted) -> None:
        if event.incarnation != self.incarnation or self.phase != "starting":
            return  # a replacement handles this event
        worker = self.roster.workers[event.process]
        if event.error and not event.final:
            self._placer.suspects.add(self._now, worker, for_good=event.lasting)
        cannot_begin = event.lasting and not self._has_trained and not self._placer.has_hope(self._workers)
        if event.error and (event.final or cannot_begin):
            reason = f"{worker}: {event.error}" if event.lasting else event.error
            code = ClusterError.exit_code if event.lasting else UnitError.exit_code
            self._fail(Failure(reason, code, is_hosting=True))
        elif event.error:
            self._lose(worker, event.error)
        else:
            self._incarnation.endpoints[event.process] = event.endpoint
            self._incarnation.take_threads(event.threads)
            if len(self._incarnation.endpoints) == len(self.roster.workers):
                self.phase = "running"
                self._actions += run_actions(self._incarnation, range(len(self.roster.workers)), self._workers)

    @_take.register(ev.Began)
    def _on_began(self, event: ev.Began) -> None:
        if event.incarnation not in self.roster.incarnations:
            return
        self._incarnation.started.add(event.unit)
        if event.unit == str(FIRST):
            self._request_checkpoint()
        if len(self._incarnation.started) == len(self._layout.units) and self.phase == "running":
            self._deadlines.end("start")
            self._stop_units()
            self._replace_buddies()

    @_take.register(ev.TrainingBegan)
    def _on_trainingbegan(self, event: ev.TrainingBegan) -> None:
        if event.incarnation in self.roster.incarnations:
            self._trains = self._has_trained = True
            self.restarts.reach(self._now, self._incarnation.known_step(self.steps))

    @_take.register(ev.Stepped)
    def _on_stepped(self, event: ev.Stepped) -> None:
        if event.incarnation in self.roster.incarnations:
            self.steps = dict(event.steps)
            if self._trains:
                self.restarts.reach(self._now, self._incarnation.known_step(self.steps))
            if self._is_early and self.phase == "running" and self.reached >= self._checkpoint_from:
                self._request_checkpoint()

    @_take.register(ev.Saved)
    def _on_saved(self, event: ev.Saved) -> None:
        # also accept a checkpoint of an earlier incarnation: it is complete
        self._points.add_checkpoint(event.step, event.url)
        if event.step >= self._checkpoint_from:
            self._checkpoint_from = -1
        elif event.incarnation in self.roster.incarnations:
            self._is_early = True
        self._begin_move(event)

    @_take.register(ev.Snapshotted)
    def _on_snapshotted(self, event: ev.Snapshotted) -> None:
        if event.incarnation in self.roster.incarnations:
            self._points.add_snapshot(event.step, event.manifest, self._workers)
            self._begin_move(event)

    def _begin_move(self, saved: ev.Saved | ev.Snapshotted) -> None:
        """Move the units, if the move was waiting only for this checkpoint or snapshot."""
        is_current = saved.incarnation in self.roster.incarnations and self.phase == "running"
        if is_current and self._move is not None and self._move.is_ready(saved.step):
            self._move_units(self._move)

    def groups_of(self) -> dict[str, list[str]]:
        """Return, for each Dask worker, the worker groups that make no steps without it.

        Only Dask workers of the current incarnation are included.
        """
        groups = self.roster.layout.groups_of if self.workers else ()
        return {address: [str(group) for group in each] for address, each in zip(self.workers, groups, strict=True)}

    def last_steps(self) -> dict[str, int]:
        """Return the last step of each worker group that is done. Keys are group numbers as text."""
        done = [(unit, report) for unit, report in self._incarnation.reports.items() if report["state"] == "done"]
        return {unit.split("-")[1]: report["step"] for unit, report in done if unit.startswith("worker")}

    @_take.register(ev.Reported)
    def _on_reported(self, event: ev.Reported) -> None:
        if not self.roster.has(self.roster.layout.process_of[event.unit], event.incarnation):
            return
        report = event.report
        self._incarnation.reports.setdefault(str(event.unit), report)
        if event.unit.kind == "worker" and report["state"] == "done":
            self._actions.append(act.Tell({"event": "steps", "steps": {str(event.unit.group): report["step"]}}))
        if self.phase not in ("starting", "running"):
            return
        if report["state"] == "done" and event.unit.kind == "server" and self._replacement is not None:
            self._recover("Servers ended while lost processes were replaced.")
        elif report["state"] == "failed" or (report["state"] == "aborted" and "exit_code" in report):
            if self._points.drop(report.get("unreadable", "")) or report.get("retry"):
                peer = report.get("unreachable")
                # a process that is being replaced is no longer on the Dask worker that could not be reached
                if peer is not None and not (self._replacement and peer in self._replacement.processes):
                    self._suspect_pair(event.unit, peer)
                self._recover(str(report["reason"]), report)
            else:
                self._fail(Failure.of(report))
        else:
            self._end_if_done()

    def _end_if_done(self) -> None:
        if len(self._incarnation.reports) == len(self._layout.units) and self._replacement is None:
            if all(report["state"] == "done" for report in self._incarnation.reports.values()):
                self._is_done = True
                self._end_incarnation("the job is done")
            else:
                self._recover_ended()

    def _recover_ended(self) -> None:
        left = [unit for unit, report in self._incarnation.reports.items() if report["state"] != "done"]
        self._recover(f"units ended before the job was done: {', '.join(left)}.")

    def _suspect_pair(self, unit: Address, peer: int) -> None:
        """Record that two processes cannot reach each other, so that their Dask workers are not used together."""
        mine, other = self.roster.workers[self.roster.layout.process_of[unit]], self.roster.workers[peer]
        seconds = self._placer.suspects.add(self._now, mine, other) if mine != other else 0.0
        if seconds:
            self._warn(f"{mine} and {other} do not reach each other. Only one of them is used for {seconds:g} s.")

    def _are_aborted(self) -> bool:
        """Return whether units were aborted ``limit("aborted")`` ago, and no failed unit has explained why."""
        reports = self._incarnation.reports.values()
        if self._replacement is not None or all(report["state"] != "aborted" for report in reports):
            self._deadlines.end("aborted")
        elif "aborted" not in self._deadlines:
            self._deadlines.begin("aborted", self._now)
        return self._deadlines.has_passed("aborted", self._now)

    @_take.register(ev.Gone)
    def _on_gone(self, event: ev.Gone) -> None:
        self._placer.leaving.discard(event.worker)
        self._placer.suspects.forget(event.worker)
        if event.worker in self._workers:  # the Dask worker is silent but not gone, so more of them may be silent
            self._deadlines.begin("losses", self._now, SILENT_TOGETHER_S)
        else:
            self._points.forget(event.worker)
        if self.phase in ("starting", "running"):
            self._lose(event.worker, event.reason)
            self._replace_buddies()
        elif self.phase == "ending" and event.worker in self._incarnation.ending:
            self._on_ended(ev.Ended(self.incarnation, event.worker))

    @_take.register(ev.Arrived)
    def _on_arrived(self, event: ev.Arrived) -> None:
        self._placer.suspects.forget(event.worker)
        self._replace_buddies()
        self._on_tick()

    @_take.register(ev.Joined)
    def _on_joined(self, event: ev.Joined) -> None:
        if not self._incarnation.take_answer(event):
            return
        if event.error:
            self._incarnation.untold.add(event.process)
        elif self._replacement is None and self.phase == "running":
            self._actions.append(act.Request(self._first_worker, "snapshot"))

    @_take.register(ev.Leaving)
    def _on_leaving(self, event: ev.Leaving) -> None:
        self._placer.leaving.add(event.worker)
        if self.phase in ("starting", "running") and event.worker in self.roster.workers:
            self._prepare_move(f"the Dask worker at {event.worker} leaves", is_urgent=True)

    @_take.register(ev.Ended)
    def _on_ended(self, event: ev.Ended) -> None:
        if event.incarnation == self.incarnation and event.process is None and event.worker in self._incarnation.ending:
            for unit, report in event.reports.items():
                self._incarnation.reports.setdefault(unit, report)
            self._incarnation.ending.discard(event.worker)
            if self.phase == "ending" and not self._incarnation.ending:
                self._after_incarnation()
            elif self.phase == "placing":  # a late answer shows that the Dask worker works again
                self._placer.suspects.forget(event.worker)

    @_take.register(ev.Signal)
    def _on_signal(self, event: ev.Signal) -> None:
        if failure := self._stop.abort(event):
            self._fail(failure)
        elif message := self._stop.request(event):
            if self.phase == "placing":
                why = "The job has no newer state to save." if self._is_saved else "The checkpoint needs Dask workers."
                message += f" {why}"
            self._actions.append(act.Tell({"event": "notice", "level": "WARNING", "message": message}))
            self._stop_units()

    @_take.register(ev.CheckpointAsked)
    def _on_checkpointasked(self, event: ev.CheckpointAsked) -> None:
        self._checkpoint_from = self.reached
        if self.phase == "running":
            self._request_checkpoint()

    def _request_checkpoint(self) -> None:
        self._is_early = False
        if self._checkpoint_from >= 0:
            self._actions.append(act.Request(self._first_worker, "checkpoint"))

    def _stop_units(self) -> None:
        """Ask the units to stop with a checkpoint, if a stop was requested and all units run."""
        if self.phase == "placing" and self._is_saved:
            self._finish()
            return
        if not self._stop or self.phase != "running" or ("start" in self._deadlines and self._move is None):
            return
        self._move = None
        if self._is_alone:
            self._deadlines.begin("stop", self._now)
        self._actions += [act.Request(worker, "stop") for worker in self.roster.workers]

    @_take.register(ev.ClientGone)
    def _on_clientgone(self, event: ev.ClientGone) -> None:
        if not self._has_trained:
            self._fail(CLIENT_GONE)
            return
        self._is_alone = True
        self._stop.request(ev.Signal("SIGHUP", "the loss of its client"))
        self._stop_units()

    @_take.register(ev.Tick)
    def _on_tick(self, event: ev.Tick | None = None) -> None:
        if self._incarnation.untold:
            self._replace_buddies()
        now, is_up = self._now, self.phase in ("starting", "running")
        if self._deadlines.has_passed("stop", now):
            self._deadlines.end("stop")
            self._fail(CLIENT_GONE)
        elif self.phase == "ending" and self._deadlines.has_passed("ended", now):
            for worker in self._incarnation.ending:
                self._placer.suspects.add(now, worker)
            self._after_incarnation()
        elif is_up and self._move is not None and self._move.is_late(now):
            self._move_without_snapshot(self._move)
        elif is_up and self._move is None and self._deadlines.has_passed("start", now):
            self._fail_to_start()
        elif self.phase == "placing":
            self._place()
        elif self.phase == "running" and self._are_aborted():
            self._recover_ended()
        elif self.phase == "running" and not (self._move or self._stop or "start" in self._deadlines):
            # a job that can use more processes moves when there are more Dask workers
            if n := self._placer.room(now, self._workers, self.roster.workers):
                self._prepare_move(f"there is room for {n} processes", is_urgent=False)

    # -- changes of the placement -------------------------------------------------------------------------------

    def break_off(self, failure: Failure) -> list[Any]:
        """End the job without waiting; return the actions to carry out."""
        self._actions = [
            act.EndIncarnation(self.incarnation, worker, failure.reason, forget=True) for worker in self.workers
        ]
        self._failure = failure
        self._finish()
        return self._actions

    def _fail(self, failure: Failure) -> None:
        """End the job with a failure. Only the first failure of a job counts."""
        if self._failure is None and not self._is_done:
            self._failure = failure
        if self.phase in ("starting", "running"):
            self._end_incarnation(failure.reason)
        elif self.phase == "placing":
            self._finish()

    def _fail_to_start(self) -> None:
        """Handle units that have not started in time: fail the job, or restart it if it ran before."""
        roster, missing = self.roster, self._incarnation.give_up_missing()
        reason = f"Dask had not started these units after {limit('start'):g} s: {', '.join(missing)}."
        late = {worker for process, worker in enumerate(roster.workers) if process not in self._incarnation.endpoints}
        busy = {worker for worker in roster.workers if worker in self._workers and self._workers[worker].busy} - late
        if late:
            reason += f" No answer yet from {', '.join(sorted(late))}."
        if busy:
            reason += f" Other tasks hold threads of {', '.join(sorted(busy))}."
        if self.incarnation > 0:
            self._recover(reason)
        else:
            self._fail(Failure(reason, ClusterError.exit_code))

    def _end_incarnation(self, reason: str) -> None:
        self._move, self._trains, self._replacement = None, False, None
        self.phase, self._ended_by = "ending", reason
        self._deadlines.end("start", "aborted")
        self._deadlines.begin("ended", self._now)
        forget = self._is_done or self._failure is not None
        self._incarnation.ending = self._placer.reachable(self._workers).intersection(self.roster.workers)
        self._actions += [
            act.EndIncarnation(self.incarnation, worker, reason, forget) for worker in sorted(self._incarnation.ending)
        ]
        if not self._incarnation.ending:
            self._after_incarnation()

    def _after_incarnation(self) -> None:
        """Continue after the last unit of an incarnation has ended."""
        self._deadlines.end("ended")
        if self._is_done or self._failure is not None or self._is_saved:
            self._finish()
            return
        self.phase = "placing"
        self._placer.begin(self._now)
        self._deadlines.begin("pause", self._now, self.restarts.backoff_s())
        self._place()

    def _finish(self) -> None:
        self.phase = "over"
        self.restarts.resume(self._now)
        stuck = tuple(sorted(self._incarnation.ending & set(self._workers)))
        end = JobEnd(
            reports=self._incarnation.reports,
            processes=self.roster.layout.describe()["processes"],
            restarts=len(self.restarts),
            recomputed_steps=self.restarts.recomputed_steps,
            lost_s=round(self.restarts.lost_s, 3),
            failure=self._failure,
            signal=self._stop.signal,
            by=self._stop.by,
            stuck=[str(unit) for worker in stuck for unit in self._incarnation.units_on(worker)],
        )
        self._actions.append(act.Over(end, stuck))

    def _warn(self, message: str) -> None:
        self._actions.append(act.Tell({"event": "log", "level": "WARNING", "message": message}))

    def _place(self) -> None:
        """Choose new Dask workers for the units, or wait for Dask workers.

        Fail the job if the wait was too long.
        """
        if any(self._deadlines.is_waiting(wait, self._now) for wait in ("pause", "losses")):
            return
        try:
            placement = self._placer.place(self._now, self._workers, self.roster.workers, self._warn)
        except ClusterError as error:
            reason = f"{' '.join(self.restarts.reasons)} {error}"
            self._fail(Failure(reason, LostUnitError.exit_code))
            return
        if placement is not None:
            self._begin_incarnation(Roster.of(self.incarnation + 1, *placement, self.roster.threads))

    def _begin_incarnation(self, roster: Roster) -> None:
        step, start, what = self._points.newest(self._placer.reachable(self._workers))
        reached = self._incarnation.known_step(self.steps)
        lost = [unit for unit, report in self._incarnation.reports.items() if report["state"] == "lost"]
        self._incarnation = Incarnation(roster)
        self._placer.look_at(self._workers, roster.workers)
        self.phase = "starting"
        self._deadlines.begin("start", self._now)
        self.steps = {}
        if roster.incarnation > self.spec.first_incarnation:
            self.restarts.lose(self._now, reached)
            self.restarts.recomputed_steps += max(0, reached - (step or 0))
            facts = {
                "event": "restart",
                "incarnation": roster.incarnation,
                "step": step or 0,
                "lost": lost,
                "from": what,
            }
            self._actions.append(act.Tell({**facts, "reason": self._ended_by}))
            size = plural(len(roster.workers), "process", "processes")
            self._warn(f"incarnation {roster.incarnation} of the job starts from {what}, in {size}.")
        self._tell_placed()
        self._incarnation.buddies = buddies_of(roster, self._workers)
        self._actions += host_actions(roster, range(len(roster.workers)), start, self._incarnation.buddies)

    def _tell_placed(self, groups: Sequence[int] = ()) -> None:
        """Publish the Dask workers of all units. Pass ``groups`` if only these worker groups restart."""
        roster = self.roster
        if groups:
            names = ", ".join(map(str, groups))
            self._warn(f"restarting worker groups {names}; the other groups continue.")
            facts = {"event": "restart", "incarnation": roster.incarnation, "groups": list(groups)}
            self._actions.append(act.Tell({**facts, "reason": self.restarts.reasons[-1]}))
        self._actions.append(
            act.Tell({"event": "placed", "incarnation": roster.incarnation, "processes": roster.describe()})
        )

    # -- lost processes --------------------------------------------------------------------------------------------

    def _lose(self, worker: str, reason: str) -> None:
        """Restart the processes of a lost Dask worker, unless all of their units are done."""
        units, reports = map(str, self._incarnation.units_on(worker)), self._incarnation.reports
        lost = [unit for unit in units if reports.get(unit, {}).get("state") != "done"]
        if not lost or self._replacement is not None:
            return  # nothing is lost, or the replacement in progress handles the loss
        processes = [process for process, other in enumerate(self.roster.workers) if other == worker]
        self._placer.lose(worker, self._workers)
        step = self._incarnation.known_step(self.steps)
        for unit in lost:
            self._incarnation.reports.setdefault(unit, {"unit": unit, "state": "lost", "step": step})
        when = f"the last step that it reported is {step}" if step >= 0 else "it has reported no step"
        where = f"process {', '.join(map(str, processes))} of the job, on the Dask worker at {worker}"
        text = f"{where}: {reason}; {when}. Lost: {', '.join(lost)}."
        if not self._replace(processes, text):
            self._recover(text)

    def _replace(self, lost: Sequence[int], reason: str) -> bool:
        """Replace only the lost processes, if other worker groups can continue; return whether they can."""
        can = self.phase == "running" and self._trains and not (self._move or self._stop or "start" in self._deadlines)
        can = can and not self._incarnation.has_ended_servers()
        processes = processes_to_replace(self.roster.layout, lost) if can else None
        if processes is None or self._refusal():
            return False
        replacement = Replacement(self._incarnation, processes, self._points, self._placer)
        self._count_restart(reason)
        self._replacement = replacement
        self._actions += replacement.begin(self._now, self._workers, reason)
        return True

    def _replace_further(self, event: Any, replacement: Replacement) -> None:
        """Pass an event to a replacement; restart the whole job if the replacement fails."""
        incarnation = self.incarnation
        self._actions += replacement.handle(event, self._now, self._workers)
        if self.incarnation != incarnation:
            self._tell_placed(replacement.groups)
        if replacement.failed:
            self._replacement = None
            if replacement.is_refused:  # no process was lost since the replacement began, so count no further restart
                self._warn(f"All processes start again: {replacement.failed}")
                self._end_incarnation(replacement.failed)
            else:
                self._recover(replacement.failed)
        elif replacement.phase == "done":
            self._replacement = None
            self.restarts.resume(self._now)
            self._stop_units()
            self._replace_buddies()
            self._end_if_done()

    def _recover(self, reason: str, report: Mapping[str, Any] | None = None) -> None:
        """End this incarnation; begin a new one if the job may restart, else fail the job.

        ``report`` is the report of the unit whose failure is the reason, if any.
        """
        refusal = self._refusal()
        if refusal:
            tried = f" {refusal} Earlier: {' '.join(self.restarts.reasons)}" if len(self.restarts) else f" {refusal}"
            lost = {"exit_code": LostUnitError.exit_code}
            self._fail(Failure.of({**(report or lost), "reason": reason + tried}))
            return
        self._count_restart(reason)
        self._end_incarnation(reason)

    def _refusal(self) -> str:
        return self.restarts.refusal(self._incarnation.known_step(self.steps))

    def _count_restart(self, reason: str) -> None:
        step = self._incarnation.known_step(self.steps)
        self.restarts.lose(self._now, step)
        self.restarts.add(reason, step)
        self._warn(f"{reason} The job continues.")

    # -- moves to other Dask workers -------------------------------------------------------------------------------

    def _prepare_move(self, why: str, is_urgent: bool) -> None:
        """Request a snapshot. Once it is complete, the units move to new Dask workers."""
        self._move = Move(why, is_urgent, min(self.reached, self._move.step) if self._move else self.reached)
        self._actions.append(self._move.save("snapshot", self._now, self._first_worker))

    def _move_without_snapshot(self, move: Move) -> None:
        """Handle a snapshot that was not taken in time before a move.

        If a Dask worker leaves, move the units immediately. Otherwise request a checkpoint, because the job may take no
        snapshots.
        """
        if move.is_urgent:
            self._move_units(move)
        else:
            self._actions.append(move.save("checkpoint", self._now, self._first_worker))

    def _replace_buddies(self) -> None:
        """Choose new buddies for processes whose buddies are lost; `_on_joined` then requests a snapshot.

        A buddy is the Dask worker that keeps a second copy of a process's snapshots. This method also tells each
        process which other processes are done and gone, so that no unit waits for their workers.
        """
        if self.phase != "running" or self._replacement is not None:
            return
        roster, there, incarnation = self.roster, self._placer.reachable(self._workers), self._incarnation
        gone = {p for p, worker in enumerate(roster.workers) if worker not in there and incarnation.is_done(p)}
        untold = incarnation.untold if gone == incarnation.gone else {*range(len(roster.workers))}
        incarnation.gone, incarnation.untold = gone, set()
        for process, buddy in enumerate(buddies_of(roster, self._workers)):
            # a process that started without a buddy takes no snapshots, so it needs no new buddy
            is_new = incarnation.buddies[process] not in ("", *there) and buddy != ""
            if (is_new or process in untold) and process not in gone:
                incarnation.buddies[process] = buddy if is_new else incarnation.buddies[process]
                where = roster.incarnations[process], roster.workers[process], process
                left = incarnation.worker_units_in(gone)
                self._actions.append(act.Join(*where, incarnation.ask(process), {}, left, incarnation.buddies[process]))

    def _move_units(self, move: Move) -> None:
        self._warn(f"{move.why}: placing the units again.")
        self.restarts.lose(self._now, self._incarnation.known_step(self.steps))
        self._end_incarnation(f"placing the units again: {move.why}")
