"""Sites by themselves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tornado.ioloop import IOLoop

from singa_dask.errors import LostUnitError
from singa_dask.runtime.job.dask_worker import units_task as module
from singa_dask.runtime.job.dask_worker.site import Site
from singa_dask.runtime.job.dask_worker.snapshot_exchange import SnapshotExchange
from singa_dask.runtime.job.dask_worker.units_task import UnitsTask
from singa_dask.runtime.job.limits import LIMITS, Limit
from singa_dask.runtime.job.names import SITE
from singa_dask.runtime.job.state.submission import JobSpec
from singa_dask.runtime.units.unit_errors import may_succeed_again


def test_a_part_of_a_snapshot_that_nobody_has_any_more_is_no_error_of_the_job() -> None:
    here: Any = None
    snapshots = SnapshotExchange(here)
    snapshots.store.put("job", "step-4/part-0-of-1.safetensors", 4, b"content", 0)
    assert snapshots._read("job", "step-4/part-0-of-1.safetensors", {"holders": []}) == b"content"
    with pytest.raises(LostUnitError, match="no Dask worker has it any more") as error:
        snapshots._read("job", "step-2/part-0-of-1.safetensors", {"holders": []})
    assert may_succeed_again(error.value)


def test_a_process_of_an_incarnation_that_is_over_is_not_hosted() -> None:
    site = Site()
    site.hostings, site._oldest = {}, {}

    async def late() -> None:
        await site._end("job", 3, "the job continues elsewhere", process=0)
        assert await site._host("job", 3, 0, "", "token", "{}") == {"error": "incarnation 3 of the job is over"}

    asyncio.run(late())


@pytest.mark.parametrize("when", ["it is built", "the clock is measured", "the clock cannot be measured"])
def test_a_process_whose_job_ends_while_it_starts_does_not_stay(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site, ended = Site(), []
    spec = JobSpec(job_id="job", job="{}", workers=[], assignments={}, client="")
    told = {
        "spec": asdict(spec),
        "processes": [],
        "workers": [],
        "full_incarnation": 0,
        "threads": None,
        "silent_s": 1.0,
    }
    here: Any = None
    site.snapshots, site.hostings, site._oldest = SnapshotExchange(here), {}, {}

    async def in_thread(do: Callable[..., Any], *given: Any) -> Any:
        if do == site._build:
            if when == "it is built":
                await site._end("job", 0, "the job was killed", forget=True)
            return SimpleNamespace(end="the end", trace=None if when == "it is built" else "a trace")
        ended.append(do)

    async def clock() -> float:
        if when == "the clock cannot be measured":
            raise OSError("the scheduler is gone")
        await site._end("job", 0, "the job was killed", forget=True)
        return 0.0

    site.worker = cast("Any", SimpleNamespace(scheduler=SimpleNamespace(singa_dask_clock=clock)))
    monkeypatch.setattr(site, "_in_thread", in_thread)
    placement = json.dumps({**told, "start": {}, "rejoin": None})
    answer: Any = {"error": "incarnation 0 of the job is over"}
    try:
        answer = asyncio.run(site._host("job", 0, 0, "", "token", placement))
    except OSError:
        assert when == "the clock cannot be measured"
    assert answer == {"error": "incarnation 0 of the job is over"}
    assert (ended, site.hostings) == (["the end"], {})


def test_a_late_request_changes_nothing_after_a_later_one() -> None:
    """It was sent before, and delayed by a network; or it was meant for an earlier incarnation."""
    site, requested = Site(), []
    hosting: Any = SimpleNamespace(incarnation=4, job_id="job", last_request=0, buddy="first", request=requested.append)
    hosting.router = SimpleNamespace(join=lambda endpoints, left: None)
    site.hostings, site.worker = {("job", 0): hosting}, cast("Any", SimpleNamespace(address="here"))
    asked: dict[str, Any] = {"job_id": "job", "incarnation": 4, "process": 0, "endpoints": {}, "left": []}
    assert site._join(**asked, request=7, buddy="newest") == {}
    assert "later request" in site._join(**asked, request=6, buddy="lost")["error"]
    assert hosting.buddy == "newest"
    site._request("job", 3, "stop")
    assert requested == []
    site._request("job", 5, "checkpoint")  # other processes of the job were replaced
    assert requested == ["checkpoint"]


def test_a_task_of_an_incarnation_that_is_over_runs_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.hostings = {("job", 0): cast("Any", SimpleNamespace(incarnation=4))}
    monkeypatch.setattr(module, "get_worker", lambda: SimpleNamespace(plugins={SITE: site}))
    task = UnitsTask("job", 3, 0, [("worker", 0, 0), ("server", 0, 0)], "[]")
    assert task() == [{"state": "aborted", "step": -1}] * 2


async def never(**facts: Any) -> None:
    await asyncio.Event().wait()


async def refused(**facts: Any) -> None:
    raise OSError("nobody listens")


@pytest.mark.parametrize(
    ("ask", "said"),
    [(never, "does not answer"), (refused, "cannot be reached: OSError: nobody listens")],
    ids=["late", "gone"],
)
def test_a_dask_worker_that_closes_says_whether_the_scheduler_is_late_or_gone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, ask: Any, said: str
) -> None:
    monkeypatch.setitem(LIMITS, "leaving", Limit("the scheduler has heard of it", "50ms"))
    monkeypatch.setitem(LIMITS, "has-ended", Limit("it has answered", "50ms"))
    asked: list[str] = []
    hosting: Any = SimpleNamespace(wait=lambda timeout_s: True, end=lambda reason: True, key=("job", 0))
    hosting.job_id, hosting.request = "job", asked.append

    async def close() -> None:
        site, scheduler = Site(), SimpleNamespace(singa_dask_leaving=ask, singa_dask_left=ask)
        worker: Any = SimpleNamespace(
            address="tcp://127.0.0.1:1", scheduler=scheduler, metrics={}, handlers={}, periodic_callbacks={},
            loop=IOLoop.current(), local_directory="/tmp/none",
        )  # fmt: skip
        site.setup(worker)
        site.hostings[hosting.key] = hosting
        await site.teardown(worker)

    asyncio.run(close())
    assert asked == ["stop"]
    (line,) = (each for each in caplog.messages if "scheduler" in each)
    assert line == f"this Dask worker closes, and the scheduler {said}: units stop with a checkpoint"


def test_a_process_that_is_built_while_its_dask_worker_closes_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), []

    def build(placement: Any) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return SimpleNamespace(trace=None, end=ended.append)

    spec = JobSpec(job_id="job", job="{}", workers=[], assignments={}, client="")
    facts = {"spec": asdict(spec), "processes": [], "workers": [], "full_incarnation": 0, "threads": None}
    placement = json.dumps({**facts, "silent_s": 1.0, "start": {}, "rejoin": None})

    async def close() -> Any:
        site = Site()
        worker: Any = SimpleNamespace(
            address="tcp://127.0.0.1:1", scheduler=None, metrics={}, handlers={}, periodic_callbacks={},
            loop=IOLoop.current(), local_directory="/tmp/none",
        )  # fmt: skip
        site.setup(worker)
        monkeypatch.setattr(site, "_build", build)
        hosted = asyncio.create_task(site._host("job", 0, 0, "", "token", placement))
        await asyncio.to_thread(begun.wait, 60)
        await site.teardown(worker)
        goes_on.set()
        return await hosted, site.hostings

    assert asyncio.run(close()) == ({"error": "incarnation 0 of the job is over"}, {})
    assert ended == ["this incarnation is over"]
