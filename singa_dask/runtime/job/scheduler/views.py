"""Views: answer users' questions about jobs, and carry out their requests to stop or save jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any

from distributed import Scheduler

from singa_dask.observe.event_texts import event_text, log_text, stack_text
from singa_dask.redaction import redact
from singa_dask.runtime.dashboard.activity import Activity
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import SITE, Op
from singa_dask.runtime.job.scheduler.event_log import EventLog
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.state import events as ev
from singa_dask.shown import shown

if TYPE_CHECKING:
    from singa_dask.runtime.job.scheduler.jobs import Jobs

ENDED_PAGE = 200
"""Maximum number of ended jobs in one answer. The scheduler does nothing else while it prepares an answer."""
SHOWN_EVENTS = 20
"""Maximum number of events that `Views.view` returns. Steps and metrics are not among them."""
NOT_SHOWN = frozenset(("metrics", "steps", "profile", "unit", "over"))
ENDED_JOBS = QUEUED_JOBS = 50
SHOWN_REASONS = 5
SHOWN_LINES = 1000
"""Maximum number of lines of a log on the dashboard, the newest ones."""
LONG = 300
"""Maximum length of a text in an answer, in characters."""


class Views:
    """Answers questions about jobs, and passes on requests to stop or save them."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def tokens(self) -> Sequence[str]:
        """Return the tokens of the part files that running jobs and queued detached jobs read."""
        running = [catalog.token for record in self._jobs.records.values() for catalog in record.spec.catalogs]
        return [*running, *self._jobs.detached.tokens()]

    def list(self, before: str = "") -> list[dict[str, Any]]:
        """Return rows of all jobs that have not ended, the newest first, then a page of ended jobs.

        Parameters
        ----------
        before : str
            Id of an ended job. If passed, only a page of jobs that ended before that job is returned.

        Returns
        -------
        list of dict
            Each row has these keys. From `JobFacts`: ``id``, ``name``, ``owner``, ``run_url``, ``state``, ``step``,
            ``train_steps``, ``samples_per_s``, ``began``, ``ended``, ``reason``, ``exit_code``, ``n_events``. ``loss``:
            the last training loss; None if not known. ``standing``: the state in words, with the position in the queue
            and the priority.
        """
        if not before:
            return [*self.newest(ENDED_PAGE)]
        ended = dropwhile(lambda facts: facts.id != before, reversed(self._jobs.history.facts.values()))
        return [facts.row() for facts in islice(ended, 1, 1 + ENDED_PAGE)]

    def newest(self, n_ended: int, n_queued: int | None = None) -> Sequence[dict[str, Any]]:
        """Return rows of all running jobs, the newest first, then of the first queued and the last ended jobs."""
        running = reversed([record.facts() for record in self._jobs.records.values()])
        queued = islice(self._jobs.queue.facts().values(), n_queued)
        ended = islice(reversed(self._jobs.history.facts.values()), n_ended)
        return [facts.row() for facts in (*running, *queued, *ended)]

    def runs_in(self, run_url: str) -> dict[str, bool]:
        """Return, for each job in a run directory, whether it is running or queued; False for ended jobs.

        Jobs whose client has left, and which therefore end soon, are left out.
        """
        jobs, clients = self._jobs, self._jobs.scheduler.clients
        url, records = redact(run_url), jobs.records.values()
        leaving = {each.spec.job_id for each in records if not each.spec.driver and each.spec.client not in clients}
        runs = {job_id: False for job_id, facts in jobs.history.facts.items() if facts.run_url == url}
        runs |= {job_id: True for job_id, facts in jobs.queue.facts().items() if facts.run_url == url}
        runs |= {each.spec.job_id: True for each in records if each.spec.run_url == run_url}
        starting = {job_id: True for job_id, its_url in jobs.detached.run_urls() if its_url == run_url}
        return {job_id: is_live for job_id, is_live in {**starting, **runs}.items() if job_id not in leaving}

    def view(self, job_id: str) -> dict[str, Any] | None:
        """Return the facts of a job; None if it is not known.

        Returns
        -------
        dict
            A row of `list`, the fields of `JobFacts`, and these keys. ``events``: the last events except steps, metrics
            and profiles. ``driver``: the Dask worker where the driver of a detached job runs. Only for a running job:
            ``incarnation``; ``reasons`` of its restarts; ``processes``, see `processes_of`.
        """
        record = self._jobs.records.get(job_id)
        ended = self._jobs.history.facts.get(job_id)
        facts = record.facts() if record else self._jobs.queue.facts().get(job_id, ended)
        if facts is None:
            return None
        last = (event for event in reversed(self._events(job_id) or ()) if event["event"] not in NOT_SHOWN)
        view = {**facts.row(), **facts.to_dict(), "events": list(islice(last, SHOWN_EVENTS))[::-1]}
        view["driver"] = self._jobs.detached.worker_of(job_id)
        if record is not None:
            view["incarnation"], view["reasons"] = record.state.incarnation, list(record.state.restarts.reasons)
            view["processes"] = processes_of(record, self._jobs.scheduler)
        return view

    def signal(self, job_id: str, name: str, by: str = "") -> bool | None:
        """Stop a job with a checkpoint, or end it immediately; see `ev.Signal`.

        A queued job leaves the queue. The result is True, or None if no such job is running or queued.
        """
        if job_id not in self._jobs.records:
            return self._jobs.detached.stop(job_id, name, by) or self._jobs.queue.stop(job_id, name, by) or None
        self._jobs.handle(job_id, ev.Signal(name, by))
        return True

    def checkpoint(self, job_id: str) -> int | None:
        """Request a checkpoint now; return the earliest step at which it can be taken.

        Return None if the job does not run.
        """
        record = self._jobs.records.get(job_id)
        if record is None:
            return None
        self._jobs.handle(job_id, ev.CheckpointAsked())
        return record.state.reached

    async def stacks(self, job_id: str, unit: str = "") -> dict[str, Any] | None:
        """Return the Python stacks of the units of a job, or of one unit; None if the job does not run.

        Returns
        -------
        dict of str to dict
            For each unit: ``address`` of its Dask worker; ``stack``, the lines of its stack, or ``error``, the reason
            why there is no stack; ``wait``, a description of the unit's wait and its duration in seconds.
        """
        record = self._jobs.records.get(job_id)
        if record is None:
            return None
        asked: dict[str, list[str]] = {}
        for process in record.state.roster.describe():  # several processes can run on the same Dask worker
            asked.setdefault(process["address"], []).extend(
                str(name) for name in process["units"] if unit in ("", str(name))
            )
        stacks: dict[str, Any] = {}
        answers = await self._jobs.sites.ask_all(
            [address for address in asked if asked[address]], limit("late"), Op.STACKS, job_id=job_id
        )
        for address, answer in answers.items():
            for name in asked[address]:
                if isinstance(answer, dict):
                    known = answer.get(name, {"error": "it does not run there"})
                else:
                    known = {"error": f"the Dask worker does not answer: {answer!r}"}
                stacks[name] = {"address": address, **known}
        return stacks

    def overview(self) -> dict[str, Any]:
        """Return the jobs for the first page of the dashboard.

        Returns
        -------
        dict
            ``scheduler``: address of the scheduler. ``n_queued``, ``n_ended``: numbers of queued jobs and of known
            ended jobs. ``jobs``: rows of `list` for all running jobs, the newest first, the first 50 queued jobs and
            the last 50 ended jobs.
        """
        jobs = [_short(row) for row in self.newest(ENDED_JOBS, QUEUED_JOBS)]
        n_queued, n_ended = len(self._jobs.queue.facts()), len(self._jobs.history.facts)
        return {"scheduler": self._jobs.scheduler.address, "n_queued": n_queued, "n_ended": n_ended, "jobs": jobs}

    def describe(self, job_id: str) -> dict[str, Any] | None:
        """Describe a job for its page of the dashboard; None if it is not known.

        Returns
        -------
        dict
            The results of `view` and of `Activity.describe`, and these keys. ``time``: the current time. ``left_s``:
            seconds until the last step; None if unknown. ``has_log``: whether `log` has lines. ``reasons`` of the last
            restarts. ``events``: the newest first, each with ``time``, ``event``, ``level`` and ``text``.
        """
        facts = self.view(job_id)
        if facts is None:
            return None
        record = self._jobs.records.get(job_id)
        activity = record.activity if record else self._jobs.history.activity(job_id)
        description = {"processes": [], **facts, **activity.describe(), "time": time.time()}
        description["left_s"] = activity.left_s(facts["train_steps"]) if facts["state"] == "running" else None
        description["has_log"] = self._events(job_id) is not None
        description["reasons"] = [_cut(reason) for reason in facts.get("reasons", ())[-SHOWN_REASONS:]]
        description["events"] = [_line_of(event) for event in reversed(facts["events"])]
        return description

    def log(self, job_id: str) -> str | None:
        """Return the newest log lines of a job as a text; None if they are no longer kept."""
        events = self._events(job_id)
        if events is None:
            return None
        newest = islice((event for event in reversed(events) if event["event"] in ("log", "notice")), SHOWN_LINES + 1)
        lines = [shown(log_text(event)) for event in newest][::-1]
        if len(lines) > SHOWN_LINES:
            lines[0] = f"... singa-dask logs {job_id} prints the lines before these."
        return "\n".join([*lines, ""])

    async def stack_text(self, job_id: str) -> str | None:
        """Return the stacks of the units of a job as a text; None if the job does not run."""
        stacks = await self.stacks(job_id)
        return stacks if stacks is None else shown(stack_text(stacks))

    def _events(self, job_id: str) -> EventLog | None:
        """Return the kept events of a running or ended job; None if none are kept."""
        record = self._jobs.records.get(job_id)
        return record.events if record else self._jobs.history.events(job_id)

    def live(self) -> Iterable[tuple[Mapping[str, Any], Activity]]:
        """Return the facts and the activity of each job that has not ended."""
        return [(record.facts().to_dict(), record.activity) for record in self._jobs.records.values()]


def processes_of(record: JobRecord, scheduler: Scheduler) -> list[dict[str, Any]]:
    """Describe the processes of a job: units, Dask worker, and progress.

    Returns
    -------
    list of dict
        For each process: its ``units``; its ``incarnation``; the ``steps`` of its worker groups; and ``waits``, for
        each unit that waits for long, a description of the wait and its duration in seconds. Of its Dask worker:
        ``address``, ``name`` and ``host``; ``cpu`` in percent of a core, ``memory`` and ``memory_limit`` in bytes, each
        None if unknown.
    """
    state = record.state
    processes = []
    for process, facts in enumerate(state.roster.describe()):
        known = scheduler.workers.get(facts["address"])
        hosted = known.metrics.get(SITE, {}).get(record.spec.job_id, ()) if known else ()
        incarnation = state.roster.incarnations[process]
        current = [each for each in hosted if (each["process"], each["incarnation"]) == (process, incarnation)]
        mine: Mapping[str, Any] = current[0] if current else {}
        where: dict[str, Any] = {"name": "", "host": "", "cpu": None, "memory": None, "memory_limit": None}
        if known:
            where = {"name": str(known.name), "host": known.host, "memory_limit": known.memory_limit or None}
            where |= {key: known.metrics.get(key) for key in ("cpu", "memory")}
        more = {"incarnation": incarnation, "steps": mine.get("steps", {}), "waits": mine.get("waits", {})}
        processes.append({**facts, **where, **more})
    return processes


def _cut(text: str) -> str:
    """Return a text, shortened to its first words if it is long."""
    return text if len(text) <= LONG else f"{text[:LONG].rpartition(' ')[0] or text[:LONG]} …"


def _short(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _cut(value) if isinstance(value, str) and key != "id" else value for key, value in facts.items()}


def _line_of(event: Mapping[str, Any]) -> dict[str, Any]:
    text = _cut(redact(event_text(event)))
    return {"time": event["time"], "event": event["event"], "level": event.get("level", ""), "text": text}
