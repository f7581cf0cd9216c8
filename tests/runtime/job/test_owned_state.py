"""What a scheduler keeps of detached jobs: the newest scheduler owns it, and no write that is late changes it."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from tornado.ioloop import IOLoop

from singa_dask import fs
from singa_dask.runtime.job.scheduler.saved_jobs import SavedJobs
from tests.runtime.job.test_saved_jobs import run_of


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "state") if request.param == "local" else f"memory://{uuid.uuid4().hex}/state"


class Jobs(dict[str, Any]):
    """The jobs of a scheduler, and what it keeps of them."""

    def __init__(self, url: str, **incarnations: int) -> None:
        super().__init__(incarnations)
        self.kept = SavedJobs(SimpleNamespace(loop=IOLoop.current()), url, self._facts)  # type: ignore[arg-type]

    def _facts(self, job_id: str) -> dict[str, Any] | None:
        incarnation = self.get(job_id)
        return (
            None
            if incarnation is None
            else {"run": run_of(job_id), "host": "", "number": 1, "incarnation": incarnation, "place": 0}
        )


def run(what: Callable[[], Awaitable[None]]) -> None:
    async def live() -> None:
        await asyncio.wait_for(what(), 60)

    asyncio.run(live())


def incarnations(url: str) -> dict[str, int]:
    """Return the jobs that a scheduler would take up that is started now."""
    names = [name for name in fs.ls(url) if name.endswith(".job.json")]
    return {name.partition(".")[0]: json.loads(fs.read_bytes(fs.join(url, name)))["incarnation"] for name in names}


def test_the_newest_scheduler_owns_the_directory(url: str) -> None:
    async def replace() -> None:
        older = Jobs(url, ran=0, ended=0)
        assert await older.kept.load() == ([], {})
        for job_id in older:
            assert await older.kept.save(job_id) == ""
        newer = Jobs(url, ran=1, ended=0, new=0)
        assert [each["incarnation"] for each in (await newer.kept.load()).jobs] == [0, 0]
        assert (older.kept.taken_over, newer.kept.taken_over) == ("", "")
        for job_id in newer:
            assert await newer.kept.save(job_id) == ""
        older["ran"], older["another"] = 5, 0
        del older["ended"]
        for job_id in ("ran", "ended", "another"):
            why = await older.kept.save(job_id)
            assert "another process writes there now" in why
            assert "rolling update of Kubernetes" in why
        assert older.kept.taken_over == why
        assert newer.kept.taken_over == ""
        assert await newer.kept.save("new") == ""

    run(replace)
    assert incarnations(url) == {"ran": 1, "ended": 0, "new": 0}


def test_a_write_that_is_late_does_not_bring_back_the_job(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep, awake, written, deleted = (threading.Event() for _ in range(4))
    write, remove = fs.write_atomic, fs.remove_tree

    def sleep(file: str, *given: Any, **more: Any) -> None:
        if file.endswith("/job.job.json"):
            asleep.set()
            assert awake.wait(60)
        write(file, *given, **more)
        if file.endswith("/job.job.json"):
            written.set()

    def note(file: str) -> None:
        remove(file)
        deleted.set()

    monkeypatch.setattr(fs, "write_atomic", sleep)
    monkeypatch.setattr(fs, "remove_tree", note)

    async def end() -> None:
        jobs = Jobs(url, job=0, other=0)
        await jobs.kept.load()
        with dask.config.set({"distributed.singa-dask.answer": "1ms"}):
            assert "cannot be saved" in await jobs.kept.save("job")
            await asyncio.to_thread(asleep.wait, 60)
            del jobs["job"]
            await jobs.kept.save("job")  # it has ended
        assert await jobs.kept.save("other") == ""  # which waits for nobody
        awake.set()
        for event in (written, deleted):
            assert await asyncio.to_thread(event.wait, 60)

    run(end)
    assert incarnations(url) == {"other": 0}


@pytest.mark.parametrize("answer", ["60s", "1ms"])
def test_a_scheduler_that_falls_asleep_in_a_write_changes_nothing(
    answer: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns of the newer one also if the write ends after its timeout."""

    async def replace() -> None:
        older, newer = Jobs(url, job=0), Jobs(url, job=1)
        await older.kept.load()
        check = older.kept._owner.check
        asleep, awake = threading.Event(), threading.Event()

        def sleep() -> None:
            asleep.set()
            assert awake.wait(60)
            check()

        monkeypatch.setattr(older.kept._owner, "check", sleep)
        with dask.config.set({"distributed.singa-dask.answer": answer}):
            late = asyncio.ensure_future(older.kept.save("job"))
            await asyncio.to_thread(asleep.wait, 60)
            if answer == "1ms":
                assert "cannot be saved" in await late
        await newer.kept.load()
        assert await newer.kept.save("job") == ""
        awake.set()
        while not older.kept.taken_over:
            await asyncio.sleep(0)
        assert "A newer scheduler has taken over" in older.kept.taken_over
        assert await late

    run(replace)
    assert incarnations(url) == {"job": 1}
