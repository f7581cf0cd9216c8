"""Schedulers that follow one another with one state: whatever sleeps, jobs are neither lost nor brought back."""

from __future__ import annotations

import asyncio
import random
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.runtime.job.scheduler.saved_jobs import SavedJobs
from tests.runtime.job.test_saved_jobs import run_of
from tests.selection import circles

HISTORIES, EVENTS = 25, 60
GONE = -1


class Threads:
    """An event loop's threads, which do nothing until they are told to."""

    def __init__(self) -> None:
        self.asleep: list[tuple[asyncio.Future[Any], Any, tuple[Any, ...]]] = []

    def run_in_executor(self, executor: None, function: Any, *given: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asleep.append((future, function, given))
        return future

    def wake(self, i: int) -> None:
        """Let one of them do what it was given."""
        future, function, given = self.asleep.pop(i)
        try:
            future.set_result(function(*given))
        except Exception as error:
            future.set_exception(error)


class Scheduler:
    """One scheduler: the incarnations of its detached jobs, and what it writes of them."""

    run = run_of("any")

    def __init__(self, url: str) -> None:
        self.threads, self.incarnations = Threads(), dict[str, int]()
        self.kept = SavedJobs(SimpleNamespace(loop=self.threads), url, self._facts)  # type: ignore[arg-type]
        self.saves: list[tuple[str, asyncio.Task[str]]] = []
        self.sure: dict[str, int] = {}  # what it was told is written
        self.maybe: dict[str, set[int]] = {}  # by job, what may be written since then

    def _facts(self, job_id: str) -> dict[str, Any] | None:
        incarnation = self.incarnations.get(job_id)
        run = {**self.run, "job_id": job_id}
        return (
            None
            if incarnation is None
            else {"run": run, "host": "", "number": 1, "incarnation": incarnation, "place": 0}
        )

    async def start(self) -> None:
        loading = asyncio.ensure_future(self.kept.load())
        await turn()
        self.threads.wake(0)
        self.incarnations = {each["run"]["job_id"]: each["incarnation"] for each in (await loading).jobs}
        self.sure = dict(self.incarnations)

    def change(self, job_id: str, incarnation: int) -> None:
        """Begin an incarnation of a job, or end it."""
        if incarnation == GONE:
            self.incarnations.pop(job_id, None)
        else:
            self.incarnations[job_id] = incarnation
        self.maybe.setdefault(job_id, set()).add(incarnation)
        self.saves.append((job_id, asyncio.ensure_future(self.kept.save(job_id))))

    async def settle(self) -> None:
        """Take note of what was written, or refused."""
        await turn()
        for job_id, save in [each for each in self.saves if each[1].done()]:
            self.saves.remove((job_id, save))
            if save.result() == "" and not any(other == job_id for other, _ in self.saves):
                self.sure[job_id] = self.incarnations.get(job_id, GONE)
                self.maybe.pop(job_id, None)


async def turn() -> None:
    """Let tasks go on until all of them wait for threads."""
    for _ in range(20):
        await asyncio.sleep(0)


def check(newer: Scheduler, older: Scheduler) -> None:
    """Check that a scheduler has taken up what the one before it has kept."""
    for job_id in {*older.sure, *older.maybe, *newer.incarnations}:
        may_be = older.maybe.get(job_id, set()) | {older.sure.get(job_id, GONE)}
        assert newer.incarnations.get(job_id, GONE) in may_be, job_id


async def live(seed: int) -> int:
    """Live through one history; return how many writes were refused."""
    draw, url = random.Random(seed), f"memory://{uuid.uuid4().hex}/state"
    schedulers = [Scheduler(url)]
    await schedulers[0].start()
    refused = n_jobs = 0
    for _ in range(EVENTS):
        current, any_one = schedulers[-1], draw.choice(schedulers)
        what = draw.random()
        if what < 0.25:
            n_jobs += 1
            any_one.change(f"job-{n_jobs}", 0)
        elif what < 0.6 and any_one.incarnations:
            job_id = draw.choice(sorted(any_one.incarnations))
            any_one.change(job_id, GONE if draw.random() < 0.4 else any_one.incarnations[job_id] + 1)
        elif what < 0.95 and any_one.threads.asleep:
            any_one.threads.wake(draw.randrange(len(any_one.threads.asleep)))
        elif what > 0.95:
            schedulers.append(Scheduler(url))
            await schedulers[-1].start()
            check(schedulers[-1], current)
        for each in schedulers:
            await each.settle()
    while any(each.threads.asleep for each in schedulers):
        for each in draw.sample(schedulers, len(schedulers)):
            if each.threads.asleep:
                each.threads.wake(0)
            await each.settle()
    assert not any(each.saves for each in schedulers)
    last = Scheduler(url)
    await last.start()
    assert last.incarnations == schedulers[-1].incarnations
    assert not schedulers[-1].kept.taken_over
    for each in schedulers[:-1]:
        refused += bool(each.kept.taken_over)
    return refused


@pytest.mark.parametrize("first", circles(range(0, 1000, HISTORIES), plain=1, long=2))
def test_no_job_is_lost_or_brought_back(first: int) -> None:
    refused = sum(asyncio.run(live(seed)) for seed in range(first, first + HISTORIES))
    assert refused > HISTORIES // 5  # some were asleep when they were replaced
