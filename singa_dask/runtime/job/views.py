"""Views: what people ask of the jobs on a cluster, and what the page shows, on the Dask scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import dropwhile, islice
from typing import Any

from distributed import Scheduler

from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job import events as ev
from singa_dask.runtime.job.drivers import Drivers
from singa_dask.runtime.job.job_record import History, JobRecord
from singa_dask.runtime.job.names import JOBS, SITE, Op
from singa_dask.runtime.job.sites import Sites
from singa_dask.runtime.job.waiting import Waiting

STACK_TIMEOUT_S = 5.0
PAGE = 200
"""Number of jobs that have ended in an answer: the scheduler does nothing else meanwhile."""
SHOWN_EVENTS = 20
"""Number of events that `Views.view` returns; metrics do not count."""
NOT_SHOWN = frozenset(("metrics", "unit", "over"))
ROW = (
    "id", "name", "owner", "run_url", "state", "step", "train_steps", "samples_per_s", "began", "ended", "reason",
    "exit_code", "n_events",
)  # fmt: skip
ENDED_JOBS = QUEUED_JOBS = 50
SHOWN_REASONS = 5
LONG = 300
"""Characters of a text that are shown: the answers stay small."""
TEXTS = {
    "checkpoint": "checkpoint of step {step}",
    "placed": "life {life}: units placed in {n} processes",
    "restart": "life {life}: {reason}",
}


class Views:
    """Answers questions about jobs, and passes on what people want of them.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    jobs : mapping of str to JobRecord
        Of `Jobs`.
    history : History
    waiting : Waiting
    drivers : Drivers
    sites : Sites
    handle : callable
        (job_id, event) hands an event to the `JobState` of a job.

    Attributes
    ----------
    handlers : dict of str to callable
        By operation, for the scheduler.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        jobs: Mapping[str, JobRecord],
        history: History,
        waiting: Waiting,
        drivers: Drivers,
        sites: Sites,
        handle: Callable[[str, Any], None],
    ) -> None:
        self._scheduler = scheduler
        self._jobs = jobs
        self._history = history
        self._waiting = waiting
        self._drivers = drivers
        self._sites = sites
        self._handle = handle
        self.handlers: dict[str, Callable[..., Any]] = {
            Op.LIST: self.list,
            Op.VIEW: self.view,
            Op.SIGNAL: self.signal,
            Op.CHECKPOINT: self.checkpoint,
            Op.STACKS: self.stacks,
            Op.TOKENS: self.tokens,
        }
        # a client that sees this knows that the scheduler has the operations: Dask does not answer unknown ones
        scheduler.set_metadata([JOBS], True)

    def tokens(self) -> Sequence[str]:
        """Return the tokens of the part files that jobs read."""
        return [catalog.token for record in self._jobs.values() for catalog in record.spec.catalogs]

    def list(self, before: str = "") -> list[dict[str, Any]]:
        """Return rows of jobs, the newest first: those that have not ended, then some that have.

        Parameters
        ----------
        before : str
            Id of a job that has ended: return some of those that ended before it; empty if there are none.

        Returns
        -------
        list of dict
            ``loss``, None if it is not known, and of `JobRecord.facts`: ``id``, ``name``, ``owner``, ``run_url``,
            ``state``, ``step``, ``train_steps``, ``samples_per_s``, ``began``, ``ended``, ``reason``,
            ``exit_code``, ``n_events``; ``standing``, the state in words, with the place in line and the priority.
        """
        if not before:
            return [*self.newest(PAGE)]
        ended = dropwhile(lambda facts: facts["id"] != before, reversed(self._history.facts.values()))
        return [row_of(facts) for facts in islice(ended, 1, 1 + PAGE)]

    def newest(self, n_ended: int, n_queued: int | None = None) -> Sequence[dict[str, Any]]:
        """Return rows of `list`: the jobs that run, the newest first; the first in line; the last that have ended."""
        running = reversed([record.facts() for record in self._jobs.values()])
        queued = islice(self._waiting.facts().values(), n_queued)
        ended = islice(reversed(self._history.facts.values()), n_ended)
        return [row_of(facts) for facts in (*running, *queued, *ended)]

    def view(self, job_id: str) -> dict[str, Any] | None:
        """Return what is known of a job, or None if nothing is.

        Returns
        -------
        dict
            A row of `list`, that of `JobRecord.facts`, and ``life``; ``reasons``, why units were started again;
            ``processes``, see `processes_of`; ``events``, the last that are no metrics; ``driver``, the Dask worker of
            a driver that has not written the summary yet.
        """
        record = self._jobs.get(job_id)
        ended = self._history.facts.get(job_id)
        facts = record.facts() if record else self._waiting.facts().get(job_id, ended)
        if facts is None:
            return None
        kept = record.events if record else self._history.events(job_id)
        shown = (event for event in reversed(kept or ()) if event["event"] not in NOT_SHOWN)
        found = {**row_of(facts), **facts, "events": list(islice(shown, SHOWN_EVENTS))[::-1]}
        found["driver"] = self._drivers.worker_of(job_id)
        if record is not None:
            found["life"], found["reasons"] = record.state.life, list(record.state.restart_reasons)
            found["processes"] = processes_of(record, self._scheduler)
        return found

    def signal(self, job_id: str, name: str, by: str = "") -> bool | None:
        """Stop a job with a checkpoint, or end it at once, see `ev.Signal`; return None if it does not run.

        A job in line leaves it, and one whose driver is about to start it does not begin.
        """
        if job_id not in self._jobs:
            return self._waiting.stop(job_id, name, by) or self._drivers.stop(job_id, name, by) or None
        self._handle(job_id, ev.Signal(name, by))
        return True

    def checkpoint(self, job_id: str) -> int | None:
        """Ask for a checkpoint now; return the step that it will at least be of, or None if the job is not known."""
        record = self._jobs.get(job_id)
        if record is None:
            return None
        self._handle(job_id, ev.CheckpointAsked())
        return record.state.reached

    async def stacks(self, job_id: str, unit: str = "") -> dict[str, Any] | None:
        """Return what the units of a job, or one of them, are doing; None if the job is not known.

        Returns
        -------
        dict of str to dict
            By unit: ``address`` of the Dask worker; ``stack``, the lines of its Python stack, or ``error``, why there
            is none; ``wait``, what it waits for and for how many seconds.
        """
        record = self._jobs.get(job_id)
        if record is None:
            return None
        asked: dict[str, list[str]] = {}
        for process in record.state.roster.describe():  # several can be on one Dask worker
            asked.setdefault(process["address"], []).extend(
                str(each) for each in process["units"] if unit in ("", str(each))
            )
        found: dict[str, Any] = {}
        answers = await self._sites.ask_all(
            [each for each in asked if asked[each]], STACK_TIMEOUT_S, Op.STACKS, job_id=job_id
        )
        for address, answer in answers.items():
            for name in asked[address]:
                if isinstance(answer, dict):
                    known = answer.get(name, {"error": "it does not run there"})
                else:
                    known = {"error": f"the Dask worker does not answer: {answer!r}"}
                found[name] = {"address": address, **known}
        return found

    # -- what the page and Prometheus show ---------------------------------------------------------------------------

    def overview(self) -> dict[str, Any]:
        """Return a row for each job: those that run, the newest first; the first 50 in line; the last 50 that ended.

        Returns
        -------
        dict
            ``scheduler``, its address; ``n_queued`` and ``n_ended``, the numbers of jobs in line, and of ended ones
            that are known; ``jobs``: rows of `list`.
        """
        jobs = [_short(row) for row in self.newest(ENDED_JOBS, QUEUED_JOBS)]
        n_queued, n_ended = len(self._waiting.facts()), len(self._history.facts)
        return {"scheduler": self._scheduler.address, "n_queued": n_queued, "n_ended": n_ended, "jobs": jobs}

    def describe(self, job_id: str) -> dict[str, Any] | None:
        """Describe a job; None if it is not known.

        Returns
        -------
        dict
            That of `view` and of `Activity.describe`; ``time``, now; ``reasons`` of the last restarts;
            ``events``, the newest first, of each ``time``, ``event``, ``level`` and ``text``.
        """
        facts = self.view(job_id)
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


def row_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a job in a list, from `JobRecord.facts`."""
    metrics = facts["metrics"].get("train", {})
    loss = next((metrics[name] for name in sorted(metrics) if name.endswith("loss")), None)
    place = f", place {facts['place']}" if "place" in facts else ""
    priority = f", priority {facts['priority']}" if facts.get("priority") else ""
    return {"loss": loss, "standing": f"{facts['state']}{place}{priority}", **{key: facts[key] for key in ROW}}


def processes_of(record: JobRecord, scheduler: Scheduler) -> list[dict[str, Any]]:
    """Return where a job runs, and how far it is there.

    Returns
    -------
    list of dict
        For each process ``units``; ``address``, ``name`` and ``host`` of its Dask worker; ``life``; ``steps`` of its
        worker groups; ``waits``: what a unit waits for, and for how many seconds, if it does so for long.
    """
    state = record.state
    processes = []
    for process, facts in enumerate(state.roster.describe()):
        known = scheduler.workers.get(facts["address"])
        told = known.metrics.get(SITE, {}).get(record.spec.job_id, ()) if known else ()
        mine: Mapping[str, Any] = next((each for each in told if each["process"] == process), {})
        where = {"name": str(known.name), "host": known.host} if known else {"name": "", "host": ""}
        more = {"life": state.roster.lives[process], "steps": mine.get("steps", {}), "waits": mine.get("waits", {})}
        processes.append({**facts, **where, **more})
    return processes


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
