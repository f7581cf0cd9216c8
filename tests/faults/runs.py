"""Jobs that are disturbed at moments of their own, and comparisons with calm ones."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask.conf import JobConf
from singa_dask.runtime import Result
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.faults.machines import Machines
from tests.faults.parts import HELD
from tests.runtime.harness import Outcome
from tests.runtime.processes import NUMBERS, driver_of

# A job that does not end is stopped after this, and its test fails.
LIMIT_S = 240.0
ENDLESS = 1_000_000

Event = dict[str, Any]
Moment = Callable[["Run", Event], bool]
Fault = Callable[["Run"], None]


class Run:
    """One job, run in this thread on a cluster.

    Parameters
    ----------
    job : JobConf
    machines : Machines
    directory : Path
        Holds the run directory.
    *script : (moment, fault)
        What happens to the job: each fault once, in the order given, each when an event is its moment.
    resume : str, optional
        URL of a checkpoint.
    limit_s : float
        A job that takes longer is ended.
    queue : bool
        The job waits in line for room.
    held_at : int, optional
        Step from which on workers are slow until the script is over; none begins the last step before. So the job does
        not end before its faults, however slow this process is. By default one in its last quarter; none of a job that
        others stop.

    Attributes
    ----------
    events : list of (float, dict)
        Time and event, in the order in which they came.
    placed : dict of str to str
        Address of the Dask worker of each unit, by its newest placement.
    hangs : bool
        The job did not end within the limit.
    """

    def __init__(
        self,
        job: JobConf,
        machines: Machines,
        directory: Path,
        *script: tuple[Moment, Fault],
        resume: str | None = None,
        limit_s: float = LIMIT_S,
        job_id: str = "",
        queue: bool = False,
        held_at: int | None = None,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.url = str(directory / f"run{len(list(directory.iterdir()))}")
        Path(self.url).mkdir()
        self.job, self.machines = job, machines
        self.events: list[tuple[float, Event]] = []
        self.placed: dict[str, str] = {}
        self.fault_times: list[float] = []
        self.pids: list[int] = []
        self.hangs = False
        self._script = list(script)
        self._timers: list[threading.Timer] = []
        if script and job.train_steps < ENDLESS:
            self._held.write_text(str(job.train_steps * 3 // 4 if held_at is None else held_at))
        self.job_id = job_id or f"{job.name}-{next(NUMBERS)}"
        self.driver = driver_of(
            job,
            machines.client,
            run_url=self.url,
            on_event=self._on_event,
            job_id=self.job_id,
            resume=resume,
            queue=queue,
        )
        self.later(limit_s, self._end)
        try:
            self.result: Result = self.driver.run()
        finally:
            for timer in self._timers:
                timer.cancel()
                timer.join()

    @property
    def _held(self) -> Path:
        return Path(self.url) / HELD

    def release(self) -> None:
        """Let the job go on to its end; for faults that need that. It is done after the last fault."""
        self._held.unlink(missing_ok=True)

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        """Do something after some seconds, unless the job has ended: for faults that last."""
        timer = threading.Timer(seconds, act)
        self._timers.append(timer)
        timer.start()

    def _end(self) -> None:
        self.hangs = True
        self.driver.stop()
        self.driver.stop()
        self.later(20, self.machines.kill_all)

    def _on_event(self, event: Event) -> None:
        self.events.append((time.monotonic(), event))
        if event["event"] == "placed":
            self.placed = {str(unit): each["address"] for each in event["processes"] for unit in each["units"]}
        while self._script and self._script[0][0](self, event):
            _, fault = self._script.pop(0)
            self.fault_times.append(time.monotonic())
            fault(self)
            if not self._script:
                self.release()

    # -- what was seen ---------------------------------------------------------------------------------

    def n_moves(self) -> int:
        """Return how often units were placed anew for new Dask workers, which may come before the end."""
        return sum(each.get("message", "").endswith("placing the units again.") for each in self.named("log"))

    def named(self, name: str) -> list[Event]:
        """Return the events of a name."""
        return [event for _, event in self.events if event["event"] == name]

    def metrics(self, phase: str = "train", group: int = 0) -> dict[int, float]:
        """Return the loss of each step that was shown; each step may be shown only once."""
        shown = [each for each in self.named("metrics") if (each["phase"], each["group"]) == (phase, group)]
        steps = [event["step"] for event in shown]
        assert len(steps) == len(set(steps)), f"shown twice: {steps}"
        return {event["step"]: event["loss"] for event in shown}

    def accuracy(self, phase: str = "train", group: int = 0) -> dict[int, float]:
        """Return the accuracy of each step that was shown."""
        shown = [each for each in self.named("metrics") if (each["phase"], each["group"]) == (phase, group)]
        return {event["step"]: event["accuracy"] for event in shown}

    def detection_s(self) -> float:
        """Return the time from the first fault until the job says that it goes on without what was lost."""
        return self._first_time(lambda event: "The job continues." in event.get("message", "")) - self.fault_times[0]

    def recovery_s(self) -> float:
        """Return the time from the first fault to the first new metrics after units were placed again."""
        restarted = self._first_time(lambda event: event["event"] == "placed", self.fault_times[0])
        return self._first_time(lambda event: event["event"] == "metrics", restarted) - self.fault_times[0]

    def _first_time(self, is_it: Callable[[Event], bool], since: float = 0.0) -> float:
        return next(at for at, event in self.events if at >= since and is_it(event))

    def longest_pause_s(self) -> float:
        """Return the longest time without any event between the first metrics and the end."""
        times = [at for at, event in self.events if event["event"] in ("metrics", "restart", "placed", "checkpoint")]
        return max(np.diff(times), default=0.0)


# -- moments -------------------------------------------------------------------------------------------


def at_step(step: int, group: int = 0, phase: str = "train") -> Moment:
    """Return the moment when a group has shown a step, or a later one."""

    def is_now(run: Run, event: Event) -> bool:
        return (
            event["event"] == "metrics" and (event["group"], event["phase"]) == (group, phase) and event["step"] >= step
        )

    return is_now


def at(name: str, **wanted: Any) -> Moment:
    """Return the moment of an event of a name and some values."""
    return lambda run, event: event["event"] == name and wanted.items() <= event.items()


def after(n_steps: int) -> Moment:
    """Return the moment some shown steps after the last fault."""
    seen: list[Event] = []

    def is_now(run: Run, event: Event) -> bool:
        if event["event"] == "metrics" and event["phase"] == "train":
            seen.append(event)
        return len(seen) >= n_steps

    return is_now


# -- faults --------------------------------------------------------------------------------------------


def signalled(number: signal.Signals, *units: str) -> Fault:
    """Return a fault that sends a signal to the processes of some units, all at once."""

    def strike(run: Run) -> None:
        pids = [run.machines.pid(address) for address in {run.placed[unit]: None for unit in units}]
        for pid in pids:
            os.kill(pid, number)
        run.pids += pids

    return strike


def killed(*units: str) -> Fault:
    """Return a fault that kills the processes of some units with signal 9."""
    return signalled(signal.SIGKILL, *units)


def stopped_for(seconds: float, *units: str) -> Fault:
    """Return a fault that stops the processes of some units for a time."""

    def go_on(pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def strike(run: Run) -> None:
        known = len(run.pids)
        signalled(signal.SIGSTOP, *units)(run)
        run.later(seconds, partial(go_on, run.pids[known:]))

    return strike


def both(*faults: Fault) -> Fault:
    """Return a fault that is several."""

    def strike(run: Run) -> None:
        for fault in faults:
            fault(run)

    return strike


def end_job(run: Run) -> None:
    """Stop the job with a checkpoint; for the last line of a script of a job without end."""
    run.driver.stop()


# -- comparisons ---------------------------------------------------------------------------------------


def check_same(run: Run, calm: Outcome, restarts: int = 1, moves: int = 0) -> None:
    """Check that a job is done, and that its steps and params are those of a calm run bit by bit."""
    check_done(run, restarts, moves)
    check_params(run.url, calm)
    shown, wanted = run.metrics(), calm.losses()
    assert shown.keys() == wanted.keys()
    # the mean of several workers is of sums in the order in which they came
    np.testing.assert_allclose([shown[step] for step in wanted], list(wanted.values()), rtol=1e-9)


def check_params(url: str, calm: Outcome) -> None:
    """Check that the params of the newest checkpoint are those of a calm run bit by bit."""
    found, wanted = load_values(url), calm.params()
    assert found.keys() == wanted.keys()
    for name, stored in found.items():
        assert stored.values.tobytes() == wanted[name].tobytes(), f"{name} differs"


def check_done(run: Run, restarts: int = 1, moves: int = 0) -> None:
    """Check that a job is done after some restarts and planned moves, and what it says about them."""
    result = run.result
    assert not run.hangs, [event for _, event in run.events[-5:]]
    assert (result.state, result.exit_code, result.reason) == ("done", 0, ""), result
    told = run.named("restart")
    assert result.restarts == restarts, told
    incarnations = [event["incarnation"] for event in run.named("placed")]
    assert incarnations == list(range(1 + restarts + moves)), told
    # not every incarnation starts all units again
    assert {event["incarnation"] for event in told} <= set(incarnations[1:]), told
    assert (result.lost_s > 0) == (len(incarnations) > 1)
    assert result.recomputed_steps >= 0
