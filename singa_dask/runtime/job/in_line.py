"""InLine: the driver's wait for room on a cluster, in the line that the scheduler keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client

from singa_dask.errors import ClusterError, LeftLineError
from singa_dask.runtime.job.follower import GONE, ask_jobs
from singa_dask.runtime.job.names import SIGNAL_CODES, Op
from singa_dask.runtime.job.tenure import TakenOver

__all__ = ["InLine"]

ASK_S = 0.5
BACK_S = 8.0
SHOWN = 3


class InLine:
    """Waits until it is the turn of a job and there is room for it.

    Parameters
    ----------
    client : distributed.Client
    facts : mapping
        See `Waiting.turn`.
    priority : int
        Jobs of higher priority go first.
    driver : int
        Number of the driver if it is on the cluster, see `Tenure`; else 0.
    publish : callable
        Takes an event ``queued`` each time that something changes: ``place``, 1 for the first, and a ``message``.
    """

    def __init__(
        self,
        client: Client,
        facts: Mapping[str, Any],
        priority: int,
        driver: int,
        publish: Callable[[dict[str, Any]], None],
    ) -> None:
        self._client = client
        self._asked = {"facts": dict(facts), "priority": priority, "driver": driver}
        self._job_id = facts["id"]
        self._publish = publish
        self._signals: SimpleQueue[str] = SimpleQueue()
        self._said = ""
        self._heard_at = 0.0

    def stop(self, signal_name: str) -> None:
        """Leave the line; an empty name: leave the place to another driver. Safe in a signal handler."""
        self._signals.put(signal_name)

    def wait(self, start: Callable[[], None]) -> None:
        """Wait until ``start`` succeeds. It is called when the job is the first; a `ClusterError` says what it lacks.

        Raises
        ------
        LeftLineError
            Somebody has stopped the job.
        ClusterError
            The scheduler is gone.
        TakenOver
            Another driver waits in place of this one.
        """
        why = ""
        self._heard_at = time.monotonic()
        while True:
            answer = self._ask(why)
            if answer is not None:
                if answer["taken_over"]:
                    raise TakenOver
                if answer["end"]:
                    self._leave(answer["end"])
                if not answer["ahead"]:
                    try:
                        start()
                        return
                    except ClusterError as error:
                        why = str(error)
                self._say(answer["ahead"], why)
            try:
                name = self._signals.get(timeout=ASK_S)
            except Empty:
                continue
            if not name:
                raise TakenOver
            reason = f"{name}: the job has left the line, and was not started."
            self._leave({"reason": reason, "exit_code": SIGNAL_CODES.get(name, 1)})

    def _ask(self, why: str) -> dict[str, Any] | None:
        """Ask for the place in line; None if there is no answer now."""
        try:
            asked: dict[str, Any] = {**self._asked, "client": self._client.id, "why": why}
            answer: dict[str, Any] = ask_jobs(self._client, Op.TURN, **asked)
        except GONE as error:
            if self._client.status == "closed" or time.monotonic() - self._heard_at > BACK_S:
                raise ClusterError(f"the scheduler is gone while the job waited in line: {error!r}") from error
            return None
        self._heard_at = time.monotonic()
        return answer

    def _leave(self, failure: Mapping[str, Any]) -> None:
        try:
            ask_jobs(self._client, Op.LEAVE, job_id=self._job_id, failure=dict(failure))
        except GONE:
            pass  # the scheduler drops those who do not ask any more
        raise LeftLineError(failure["reason"], failure["exit_code"])

    def _say(self, ahead: Sequence[str], why: str) -> None:
        if ahead:
            more = f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else ""
            message = f"in line, place {len(ahead) + 1}, behind {', '.join(ahead[-SHOWN:])}{more}"
        else:
            message = f"first in line: {why}"
        if message != self._said:
            self._said = message
            self._publish({"event": "queued", "place": len(ahead) + 1, "message": message, "time": time.time()})
