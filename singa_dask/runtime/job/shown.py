"""Shown: what the dashboard shows of the jobs on a Dask scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from distributed import Scheduler

from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.job_record import History, JobRecord
from singa_dask.runtime.job.views import Views
from singa_dask.runtime.job.waiting import Waiting

__all__ = ["Shown"]

ENDED_JOBS = QUEUED_JOBS = 50
SHOWN_REASONS = 5
LONG = 300
"""Characters of a text that are shown: the answers stay small."""
TEXTS = {
    "checkpoint": "checkpoint of step {step}",
    "placed": "life {life}: units placed in {n} processes",
    "restart": "life {life}: {reason}",
}


class Shown:
    """Describes jobs to the page and to Prometheus.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    jobs : mapping of str to JobRecord
        Those that have not ended.
    history : History
        Those that have.
    waiting : Waiting
        Those in line.
    views : Views
    """

    def __init__(
        self,
        scheduler: Scheduler,
        jobs: Mapping[str, JobRecord],
        history: History,
        waiting: Waiting,
        views: Views,
    ) -> None:
        self._scheduler = scheduler
        self._jobs = jobs
        self._history = history
        self._waiting = waiting
        self._views = views

    def overview(self) -> dict[str, Any]:
        """Return a row for each job: those that run, the newest first; the first 50 in line; the last 50 that ended.

        Returns
        -------
        dict
            ``scheduler``, its address; ``n_queued`` and ``n_ended``, the numbers of jobs in line, and of ended ones
            that are known; ``jobs``: rows of `Views.list`.
        """
        jobs = [_short(row) for row in self._views.newest(ENDED_JOBS, QUEUED_JOBS)]
        n_queued, n_ended = len(self._waiting.facts()), len(self._history.facts)
        return {"scheduler": self._scheduler.address, "n_queued": n_queued, "n_ended": n_ended, "jobs": jobs}

    def describe(self, job_id: str) -> dict[str, Any] | None:
        """Describe a job; None if it is not known.

        Returns
        -------
        dict
            That of `Views.view` and of `Activity.describe`; ``time``, now; ``reasons`` of the last restarts;
            ``events``, the newest first, of each ``time``, ``event``, ``level`` and ``text``.
        """
        facts = self._views.view(job_id)
        if facts is None:
            return None
        record = self._jobs.get(job_id)
        activity = record.activity if record else self._history.activity(job_id)
        shown = {"processes": [], **_short(facts), **activity.describe(), "time": time.time()}
        shown["reasons"] = [_cut(reason) for reason in facts.get("reasons", ())[-SHOWN_REASONS:]]
        shown["events"] = [_line_of(event) for event in reversed(facts["events"])]
        return shown

    def live(self) -> Iterable[tuple[Mapping[str, Any], Activity]]:
        """Return the facts and the activity of each job that has not ended."""
        return [(record.facts(), record.activity) for record in self._jobs.values()]


def _cut(text: str) -> str:
    """Return the first words of a long text."""
    return text if len(text) <= LONG else f"{text[:LONG].rpartition(' ')[0] or text[:LONG]} …"


def _short(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) if isinstance(value, str) and key != "id" else value for key, value in facts.items()}


def _line_of(event: Mapping[str, Any]) -> dict[str, Any]:
    kind = event["event"]
    facts = {**event, "n": len(event.get("processes", ()))}
    text = TEXTS[kind].format(**facts) if kind in TEXTS else str(event.get("message") or kind)
    if event["unit"] != "driver":
        text = f"{event['unit']}: {text}"
    return {"time": event["time"], "event": kind, "level": event.get("level", ""), "text": _cut(text)}
