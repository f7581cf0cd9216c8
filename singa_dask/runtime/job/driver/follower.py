"""Follower: read the events of a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client

from singa_dask.cancellation import pause
from singa_dask.errors import ClusterError, LostUnitError, NoAnswerError, ReplacedError
from singa_dask.runtime.job.calls import GONE, UNANSWERED, ask_jobs
from singa_dask.runtime.job.job_end import Failure, JobEnd
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import JOBS, NOTICES, SIGNAL_CODES, TAKEN_OVER, Op
from singa_dask.shown import plural

LOOK_S = 1.0
WAIT_S = 1.0
"""How long the scheduler waits for the next event before it sends an empty answer."""
GATHER_S = 0.02
MANY = 100
"""After an answer with fewer events than this, the follower pauses for `GATHER_S` seconds, so that more events
gather."""

LOST = "the scheduler could not be reached again; units that it had started stop with a checkpoint"


class Follower:
    """Reads the events of one job in order, each exactly once, even if the connection is lost in between.

    Parameters
    ----------
    on_event : callable
        Called with each event, a dict, in the thread of `follow`. Metrics are means over the workers of a group.
    after : int
        Number of the last event to skip; -1 reads all events that the scheduler has kept.
    driver : int
        Number of the driver that uses this follower, if the driver runs on the cluster; else 0. `follow` ends when
        another driver replaces it.

    Attributes
    ----------
    n : int
        Number of the last event that was read.
    """

    def __init__(
        self,
        client: Client,
        job_id: str,
        on_event: Callable[[dict[str, Any]], None],
        after: int = -1,
        driver: int = 0,
    ) -> None:
        self.job_id = job_id
        self.n = after
        self._client = client
        self._publish = on_event
        self._driver = driver
        # (signal, sender): an empty sender means the user, and an empty signal means `leave`
        self._requests: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._n_signals = 0
        # time at which the scheduler became unreachable or silent; None while it answers
        self._unheard_since: float | None = None
        self._is_lost = self._is_told = False
        self._has_left = False
        self._over: JobEnd | None = None
        self._began = time.monotonic()
        self._latest: dict[str, dict[str, float]] = {}
        self._last_step = -1
        self._steps: dict[str, int] = {}

    def signal(self, name: str, by: str = "") -> None:
        """Stop the job with a checkpoint; a second call ends it immediately. Safe in a signal handler.

        `NOTICES` do not count as a second call, nor do signals with a sender ``by``, which do not come from the user.
        """
        self._requests.put((name, by))

    def leave(self) -> None:
        """Make `follow` return without ending the job. Safe in a signal handler."""
        self._requests.put(("", ""))

    def next_request(self, timeout_s: float) -> tuple[str, str] | None:
        """Return the next signal and its sender; None after a timeout. `leave` sends an empty signal."""
        try:
            return self._requests.get(timeout=timeout_s)
        except Empty:
            return None

    def warn(self, message: str) -> None:
        """Show a warning to the user, and add it to the log of the run."""
        self.log("WARNING", message)

    def log(self, level: str, message: str) -> None:
        """Publish a line of the driver's log."""
        self._publish({"event": "log", "unit": "driver", "level": level, "time": time.time(), "message": message})

    def ask(self, op: str, *, wait: Callable[[], None] | None = None, **arguments: Any) -> Any:
        """Repeat a call of `Jobs` until the scheduler answers. The operation must be idempotent.

        Parameters
        ----------
        wait : callable, optional
            Called between two attempts, to pause. ``wait`` may raise an error to give up.

        Raises
        ------
        NoAnswerError
            The scheduler is gone, or did not answer in time.
        """
        over = None
        while over is None:
            try:
                answer = ask_jobs(self._client, op, self._timeout_s, **arguments)
            except GONE:
                self._note_silence()
                if wait is None:
                    pause(LOOK_S)
                else:
                    wait()
                over, self._over = self._over, None
            else:
                self._note_answer()
                return answer
        self._unheard_since = None
        raise NoAnswerError(over.reason)

    def follow_to_its_end(self) -> JobEnd | None:
        """Follow the job as `follow` does. If `follow` raises an error, stop the job with a checkpoint.

        Raises
        ------
        ReplacedError
            Another driver has taken over the run directory of the job. The job continues.
        """
        try:
            return self.follow()
        except BaseException as error:
            if self._driver and isinstance(error, ReplacedError):
                raise  # another driver owns the job now
            with suppress(*UNANSWERED):
                ask_jobs(self._client, Op.SIGNAL, job_id=self.job_id, name="SIGTERM", by=f"{error!r} in its driver")
            raise

    def follow(self) -> JobEnd | None:
        """Read events until the job has ended; return its end, or None after `leave`.

        If the scheduler is gone or no longer knows the job, the returned end has a ``failure``.
        """
        pause_s, deadline = 0.0, None
        while self._over is None and not self._has_left:
            request = self.next_request(pause_s)
            if request is None:
                n = self.n
                pause_s = self._take_events()
                if deadline is not None and time.monotonic() > deadline and n == self.n and self._over is None:
                    return self._give_up("the scheduler does not end the job")
                continue
            pause_s = 0.0
            if not request[0]:
                return None
            self._on_signal(*request)
            deadline = time.monotonic() + limit("killed") if self._n_signals > 1 else None
        return self._over

    def _take_events(self) -> float:
        """Read the next events; return how many seconds to pause before the next call."""
        if self._client.status != "running":
            self._note_silence()
            return LOOK_S
        arguments = {"job_id": self.job_id, "after": self.n, "wait_s": WAIT_S, "driver": self._driver}
        try:
            events = ask_jobs(self._client, Op.EVENTS, WAIT_S + self._timeout_s, client=self._client.id, **arguments)
        except GONE:  # the connection is lost, or the scheduler is too busy to answer
            self._note_silence()
            return LOOK_S
        self._note_answer()
        if events is None:
            self._over = self._give_up("the scheduler does not know the job any more")
            return 0.0
        numbers = [event["n"] for event in events if "n" in event]
        n_missing = numbers[-1] - self.n - len(numbers) if numbers and self.n >= 0 else 0
        if n_missing:
            missing = plural(n_missing, "older event was", "older events were")
            self.warn(f"{missing} dropped by the scheduler; warnings are kept.")
        for event in events:
            self._take(event)
        return GATHER_S if 0 < len(numbers) < MANY else 0.0

    @property
    def _timeout_s(self) -> float:
        return limit("late" if self._unheard_since is None else "question")

    def _note_silence(self) -> None:
        """Warn that the scheduler is silent; give it up after a timeout, or at once if it was restarted."""
        is_lost, now = self._client.status != "running", time.monotonic()
        if self._unheard_since is None or is_lost != self._is_lost:
            # the unanswered call has already lasted for its timeout
            self._unheard_since = now - (0.0 if is_lost else limit("late"))
            self._is_lost, self._is_told = is_lost, False
        limit_s, unheard_s = limit("client" if is_lost else "scheduler"), now - self._unheard_since
        if unheard_s >= limit("late") and not self._is_told:
            self._is_told = True
            what = "the connection to the scheduler is lost" if is_lost else "the scheduler does not answer"
            self.warn(f"{what}. Running units continue to train. Waiting up to {limit_s:g} s for the scheduler.")
        if is_lost and (self._client.status == "closed" or unheard_s > limit_s):
            self._over = self._give_up(LOST)
        elif unheard_s > limit_s:
            reason = f"the scheduler has not answered for {limit_s:g} s, though the connection to it is there"
            self._over = self._give_up(reason, ClusterError.exit_code)
        elif not is_lost and self._was_restarted():
            self._over = self._give_up("the scheduler was restarted, and knows of no jobs")

    def _note_answer(self) -> None:
        if self._unheard_since is not None and self._is_told:
            self.warn("the scheduler answers again.")
        self._unheard_since = None

    def _was_restarted(self) -> bool:
        """Return whether the scheduler answers but lacks the plug-in `Jobs`, because it was restarted."""
        scheduler: Any = self._client.scheduler
        try:
            asked = {"keys": [JOBS], "default": False, "callback_timeout": limit("late")}
            return not self._client.sync(scheduler.get_metadata, **asked)
        except GONE:
            return False

    def _take(self, event: dict[str, Any]) -> None:
        kind, self.n = event["event"], event.get("n", self.n)
        if kind == "over":
            self._over = JobEnd.of(event)
        elif kind == TAKEN_OVER:
            self._has_left = True
        elif kind == "metrics":
            if event["group"] == 0:
                self._latest[event["phase"]] = event["metrics"]
            self._last_step = max(self._last_step, event["step"])
            facts = {name: value for name, value in event.items() if name not in ("metrics", "n")}
            self._publish({**facts, **event["metrics"]})
        elif kind == "steps" and event["steps"] == self._steps:
            return  # each answer of the scheduler repeats the newest steps
        elif kind != "unit":
            self._steps = event["steps"] if kind == "steps" else self._steps
            self._publish({name: value for name, value in event.items() if name != "n"})

    def _on_signal(self, name: str, by: str) -> None:
        self._n_signals += not (by or name in NOTICES)
        try:
            ask_jobs(self._client, Op.SIGNAL, job_id=self.job_id, name=name, by=by)
        except GONE as error:
            self.warn(f"{name}: the scheduler cannot be reached: {error}")
            if self._n_signals > 1:
                self._over = self._give_up(f"aborted by a second {name}", SIGNAL_CODES.get(name, 1))

    def _give_up(self, reason: str, exit_code: int = LostUnitError.exit_code) -> JobEnd:
        """Return the end of a job whose scheduler is gone or no longer knows the job."""
        return JobEnd(
            failure=Failure(f"{reason}.", exit_code),
            latest=self._latest,
            last_step=self._last_step,
            seconds=time.monotonic() - self._began,
            is_heard=False,
        )
