"""What a scheduler keeps of detached jobs, and takes up when it is started again; mostly without a cluster."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from distributed import Scheduler

from singa_dask.errors import ClusterError, DataError
from singa_dask.runtime import detach, local_cluster
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import JOBS, Op
from singa_dask.runtime.job.scheduler.jobs import dask_setup
from singa_dask.runtime.job.scheduler.saved_jobs import SavedJobs
from singa_dask.runtime.job.scheduler.views import Views
from singa_dask.runtime.job.state.job_facts import JobFacts
from tests.runtime.job.test_detached_jobs import World
from tests.runtime.processes import digits


@pytest.fixture
def state(tmp_path: Path) -> Any:
    """Keep detached jobs in a directory."""
    with dask.config.set({"distributed.singa-dask.state": str(tmp_path / "state")}):
        yield tmp_path / "state"


def run_of(job_id: str) -> dict[str, Any]:
    """Return the fields of a queued run."""
    recording = {"owner": "me@here", "text": "", "steps": {0: 5}, "command": {}}
    job = digits("single")
    return asdict(JobRun.of(job, job_id=job_id, run_url="/run", owner="me@here", recording=recording, queue=True))


def keep(state: Path, *job_ids: str) -> dict[str, Path]:
    """Let a scheduler keep some queued jobs; return their files."""
    world = World()

    async def go() -> None:
        await world.detached.restore()
        for job_id in job_ids:
            assert world.detached.detach(run_of(job_id)) == ""
            assert await world.detached.save(job_id) == ""

    asyncio.run(go())
    return {job_id: state / f"{job_id}.job.json" for job_id in job_ids}


def restarted() -> World:
    """Return a world with a scheduler that has taken up what there is, and takes other jobs, too."""
    world = World("h/a")

    async def go() -> None:
        await world.detached.restore()
        await asyncio.wait_for(world.detached.restored.wait(), 60)

    asyncio.run(go())
    return world


def rows(world: World) -> dict[str, dict[str, Any]]:
    """Return what ``singa-dask list`` shows, by job."""
    jobs: Any = SimpleNamespace(records={}, queue=world.waiting, history=world.history)
    return {row["id"]: row for row in Views(jobs).list()}


def of_another_version(text: str) -> str:
    facts = json.loads(text)
    job = json.loads(facts["run"]["job"])
    job["cluster"]["gossip"] = True
    facts["run"]["job"] = json.dumps(job)
    return json.dumps(facts)


def with_a_strange_field(text: str) -> str:
    facts = json.loads(text)
    facts["run"]["colour"] = "red"
    return json.dumps(facts)


def without_an_incarnation(text: str) -> str:
    facts = json.loads(text)
    facts["incarnation"] = None
    return json.dumps(facts)


DAMAGE = {
    "cluster.gossip: unknown key": of_another_version,
    "unexpected keyword argument 'colour'": with_a_strange_field,
    "TypeError": without_an_incarnation,
    "'int' object is not subscriptable": lambda text: json.dumps({**json.loads(text), "run": 3}),
    "JSONDecodeError": lambda text: text[:100],
    "the file is of job first": lambda text: text.replace('"job_id": "odd"', '"job_id": "first"'),
}


@pytest.mark.parametrize("why", DAMAGE)
def test_a_kept_job_that_cannot_be_used_is_put_aside_and_all_others_go_on(state: Path, why: str) -> None:
    odd = keep(state, "first", "odd", "last")["odd"]
    text = DAMAGE[why](odd.read_text())
    odd.write_text(text)
    for _ in range(2):  # a scheduler that is started once more says the same
        world = restarted()
        assert list(world.waiting.facts()) == ["first", "last"]
        row = rows(world)["odd"]
        assert (row["state"], row["exit_code"]) == ("failed", 3)
        assert row["reason"].startswith("put aside: it is damaged or of another version of singa-dask: ")
        assert why in row["reason"] and str(state / "odd.aside.json") in row["reason"]
        assert "\n" not in row["reason"]
    assert (state / "odd.aside.json").read_text() == text
    assert sorted(path.name for path in state.iterdir()) == [
        "first.job.json",
        "last.job.json",
        "odd.aside.json",
        "owner.json",
    ]
    world = restarted()
    assert world.detached.detach(run_of("new")) == ""
    assert list(world.waiting.facts()) == ["first", "last", "new"]


def test_what_people_know_a_job_by_is_shown_of_one_that_was_put_aside(state: Path) -> None:
    odd = keep(state, "odd")["odd"]
    odd.write_text(of_another_version(odd.read_text()))
    row = rows(restarted())["odd"]
    assert (row["name"], row["owner"], row["run_url"]) == (digits("single").name, "me@here", "/run")


@pytest.mark.parametrize("text", ["{", "[]", '{"run": {}}'])
def test_a_damaged_file_of_a_job_that_was_put_aside_stops_no_other(state: Path, text: str) -> None:
    keep(state, "sound")
    (state / "odd.aside.json").write_text(text)
    world = restarted()
    assert list(world.waiting.facts()) == ["sound"]
    reason = rows(world)["odd"]["reason"]
    assert reason.startswith("put aside: it is damaged") and str(state / "odd.aside.json") in reason


def test_a_job_that_another_version_has_put_aside_stays_there(state: Path) -> None:
    """Somebody may have gone on with its run directory meanwhile."""
    kept = keep(state, "job")["job"]
    text = kept.read_text()
    aside = kept.rename(state / "job.aside.json")
    world = restarted()
    assert not world.waiting.facts()
    assert rows(world)["job"]["reason"].startswith("put aside: another version of singa-dask could not use it. ")
    assert aside.read_text() == text


@pytest.mark.parametrize("suffix", ["job", "aside"])
def test_a_kept_file_that_cannot_be_read_stops_no_other_job(state: Path, suffix: str) -> None:
    keep(state, "first", "last")
    file = state / f"odd.{suffix}.json"
    file.symlink_to(file)  # a loop: the system refuses to open it, even for root
    world = restarted()
    assert list(world.waiting.facts()) == ["first", "last"]
    row = rows(world)["odd"]
    assert (row["state"], row["exit_code"]) == ("failed", 3)
    assert row["reason"].startswith(f"skipped: {file}: ") and "symbolic links" in row["reason"]
    assert file.is_symlink(), "the next scheduler reads it again"
    assert world.detached.detach(run_of("new")) == ""


def test_a_job_that_was_put_aside_is_taken_up_when_its_file_is_there_again(state: Path) -> None:
    kept = keep(state, "job")["job"]
    text = kept.read_text()
    kept.write_text(of_another_version(text))
    assert rows(restarted())["job"]["state"] == "failed"
    kept.write_text(text)  # the other file is left
    assert [(row["id"], row["state"]) for row in rows(restarted()).values()] == [("job", "queued")]


def test_steps_of_a_run_are_numbered_by_group_again(state: Path) -> None:
    keep(state, "job")
    assert restarted().detached._detached["job"].run["recording"]["steps"] == {0: 5}


def test_processes_that_begin_together_save_their_job_once(state: Path) -> None:
    world = World()

    async def go() -> None:
        await world.detached.restore()
        assert world.detached.detach(run_of("job")) == ""
        kept, written = world.detached._saved, list[int]()
        write = kept._write
        kept._write = lambda name, text: (
            written.append(json.loads(text or "{}").get("incarnation")),
            write(name, text),
        )  # type: ignore[assignment]
        for incarnation in (0, 1):
            await asyncio.gather(*(world.detached.save("job", incarnation) for _ in range(3)))
        world.detached.stop("job", "SIGTERM")
        await world.detached.save("job")
        assert written == [0, 1, None]
        assert (list(state.glob("job.*")), kept._saved) == ([], {})

    asyncio.run(go())


def test_nobody_waits_for_a_state_that_cannot_be_read(state: Path) -> None:
    state.write_text("a file in place of the directory")
    refused = restarted().detached.detach(run_of("job"))
    assert f"{state}: the state of an earlier scheduler cannot be read" in refused


def test_a_stop_that_is_lost_with_the_state_is_told(state: Path) -> None:
    state.write_text("a file in place of the directory")
    world = World("h/a")
    assert world.detached.stop("job", "SIGTERM", "me")
    asyncio.run(world.detached.restore())
    row = rows(world)["job"]
    assert (row["state"], row["exit_code"]) == ("failed", 3)
    assert row["reason"].startswith(f"not stopped: {state}: the state of an earlier scheduler cannot be read: ")
    assert row["reason"].endswith("it continues when the scheduler is started again. Stop it then.")


def test_jobs_do_not_wait_for_a_state_whose_storage_hangs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(state, "kept")
    answers, read = threading.Event(), SavedJobs._read
    monkeypatch.setattr(SavedJobs, "_read", lambda saved: answers.wait(60) and read(saved))
    facts = JobFacts.of_run({**run_of("attached"), "queue": False}).to_dict()

    async def go() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
            await dask_setup(scheduler)
            jobs = scheduler.plugins[JOBS]
            with dask.config.set({"distributed.singa-dask.answer": "0s"}):
                assert f"{state}: the scheduler has not yet read" in await jobs._detach(run_of("new"), "me")
                assert (await jobs._turn(facts=facts, client="me"))["ahead"] == []
            answers.set()
            while not jobs.queue.has("kept"):
                await asyncio.sleep(0)
            assert (await jobs._turn(facts=facts, client="me"))["ahead"] == ["kept"]
            assert await jobs._detach(run_of("new"), "me") == ""

    try:
        asyncio.run(asyncio.wait_for(go(), 60))
    finally:
        answers.set()


def test_nobody_is_told_that_there_are_no_jobs_while_they_are_read(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is stopped meanwhile does not start."""
    keep(state, "kept", "stopped")
    answers, read = threading.Event(), SavedJobs._read
    monkeypatch.setattr(SavedJobs, "_read", lambda saved: answers.wait(60) and read(saved))

    async def go() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
            await dask_setup(scheduler)
            jobs, ask = scheduler.plugins[JOBS], scheduler.handlers
            with dask.config.set({"distributed.singa-dask.answer": "0s"}):
                assert f"{state}: the scheduler has not yet read" in await ask[Op.UNREAD]()
                assert await ask[Op.SIGNAL](job_id="stopped", name="SIGTERM", by="me")
            waiting = [ask[Op.UNREAD](), ask[Op.RUNS](run_url="/run"), ask[Op.EVENTS](job_id="kept")]
            waits = [asyncio.ensure_future(each) for each in waiting]
            answers.set()
            assert await asyncio.gather(*waits) == ["", {"kept": True, "stopped": False}, []]
            assert list(jobs.queue.facts()) == ["kept"]
            assert jobs.history.facts["stopped"].reason == "stopped by me while it was queued"
            assert await ask[Op.SIGNAL](job_id="another", name="SIGTERM") is None
            while (state / "stopped.job.json").exists():
                await asyncio.sleep(0)

    try:
        asyncio.run(asyncio.wait_for(go(), 60))
    finally:
        answers.set()


def test_a_scheduler_with_jobs_from_a_preload_module_takes_them_up_once(state: Path) -> None:
    keep(state, "a")
    restored = list[str]()

    async def go() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
            await dask_setup(scheduler)
            jobs = scheduler.plugins[JOBS]
            await jobs.detached.restored.wait()
            restored.extend(each.run["job_id"] for each in jobs.detached._detached.values())
            drivers = jobs.detached
            # as Dask does with all plug-ins when it has run the preload modules
            await jobs.start(scheduler)
            assert jobs.detached is drivers

    asyncio.run(go())
    assert restored == ["a"]


@pytest.mark.cluster
def test_a_client_waits_until_its_detached_job_is_saved(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_late(*given: Any) -> None:
        threading.Event().wait(1.2 * limit("question"))
        raise DataError("the disk is full")

    monkeypatch.setattr(SavedJobs, "_write", fail_late)
    run = JobRun.of(digits("single"), job_id="job", run_url=str(state / "run"), owner="me@here")
    with dask.config.set({"distributed.singa-dask.answer": "3s"}), local_cluster(1, processes=False) as client:
        with pytest.raises(ClusterError, match="cannot be saved for a restarted scheduler: the disk is full"):
            detach(client, run)
