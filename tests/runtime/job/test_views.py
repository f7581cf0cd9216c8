"""What the scheduler answers about a job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask.runtime.job.scheduler.views import Views, _line_of
from singa_dask.runtime.job.state.job_facts import JobFacts
from tests.runtime.job.test_detached_jobs import World

HERE, THERE = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


class Sites:
    """Dask workers of which each has units of a job."""

    async def ask_all(self, workers: Sequence[str], timeout_s: float, op: str, job_id: str) -> dict[str, Any]:
        """Return the stacks of units, or why a Dask worker does not answer."""
        units = ("worker-0-0", "worker-0-1", "server-0-0")
        stacks: dict[str, Any] = {
            HERE: {unit: {"stack": [unit], "wait": None} for unit in units},
            THERE: OSError("gone"),
        }
        return {worker: stacks[worker] for worker in workers}


def test_stacks_of_all_processes_on_a_dask_worker() -> None:
    processes = [
        {"address": HERE, "units": ["worker-0-0", "server-0-0"]},
        {"address": THERE, "units": ["worker-0-2"]},
        {"address": HERE, "units": ["worker-0-1"]},
    ]
    record: Any = SimpleNamespace(state=SimpleNamespace(roster=SimpleNamespace(describe=lambda: processes)))
    jobs: Any = SimpleNamespace(records={"job": record}, sites=Sites())
    views = Views(jobs)
    found = asyncio.run(views.stacks("job"))
    assert found is not None
    assert found.pop("worker-0-2")["error"].startswith("the Dask worker does not answer: OSError")
    assert found == {
        unit: {"address": HERE, "stack": [unit], "wait": None} for unit in ("worker-0-0", "worker-0-1", "server-0-0")
    }
    alone = asyncio.run(views.stacks("job", "worker-0-1"))
    assert list(alone or ()) == ["worker-0-1"]


EVENTS = [
    ({"event": "log", "unit": "worker-0-1", "message": "the disk is full"}, "worker-0-1: the disk is full"),
    ({"event": "log", "unit": "driver", "message": "no step for 60 s"}, "no step for 60 s"),
    ({"event": "checkpoint", "unit": "worker-0-0", "step": 7, "url": "/r"}, "worker-0-0: checkpoint of step 7: /r"),
    (
        {"event": "placed", "unit": "driver", "incarnation": 2, "processes": [{}] * 3},
        "start 2: units placed in 3 processes",
    ),
    ({"event": "metrics", "unit": "driver"}, "metrics"),
    (
        {"event": "bad_record", "unit": "worker-0-0", "reason": "a.csv, line 3: no number"},
        "worker-0-0: bad record: a.csv, line 3: no number",
    ),
]


@pytest.mark.parametrize(("event", "text"), EVENTS)
def test_what_an_event_says_on_the_page(event: dict[str, Any], text: str) -> None:
    assert _line_of({"time": 1.0, **event})["text"] == text


@pytest.mark.parametrize(
    ("state", "exit_code", "standing"),
    [("failed", 1, "failed"), ("failed", 137, "killed"), ("failed", 130, "killed"), ("stopped", 143, "stopped")],
)
def test_a_job_that_somebody_has_killed_has_not_failed(state: str, exit_code: int, standing: str) -> None:
    assert JobFacts(id="one", state=state, exit_code=exit_code).row()["standing"] == standing


def test_a_signal_reaches_a_job_wherever_it_is() -> None:
    """It runs, or has a driver that is about to start it, or is queued; nobody else is stopped."""
    asked: list[str] = []

    def only(known: str) -> Any:
        def stop(job_id: str, *signal: Any) -> bool:
            asked.append(f"{known} for {job_id}")
            return job_id == known

        return stop

    drivers, waiting = SimpleNamespace(stop=only("driven")), SimpleNamespace(stop=only("in line"))
    jobs: Any = SimpleNamespace(records={"runs": None}, handle=only("runs"), detached=drivers, queue=waiting)
    answers = [Views(jobs).signal(job_id, "SIGTERM") for job_id in ("runs", "driven", "in line", "gone")]
    assert answers == [True, True, True, None]
    assert asked[:2] == ["runs for runs", "driven for driven"]


def test_part_files_of_jobs_that_are_queued_are_in_use() -> None:
    """Otherwise the next dataset that is written on a host would delete them."""
    world = World("h/a")
    for job_id in ("queued", "ended"):
        world.queue(job_id, datasets=[["data", f"token-of-{job_id}", []]])
    world.detached.end_driver("ended", 0, {})
    jobs: Any = SimpleNamespace(records={}, detached=world.detached)
    assert Views(jobs).tokens() == ["token-of-queued"]


def test_which_jobs_of_a_run_directory_have_not_ended() -> None:
    """A job whose client was killed is not among them: it is about to end, and its directory is free."""

    def record(job_id: str, client: str, driver: int = 0, url: str = "/run") -> Any:
        return SimpleNamespace(spec=SimpleNamespace(job_id=job_id, client=client, driver=driver, run_url=url))

    records = [record("attached", "here"), record("killed", "gone"), record("detached", "gone", 2)]
    records.append(record("other", "here", url="/other"))
    jobs: Any = SimpleNamespace(
        scheduler=SimpleNamespace(clients={"here": None}),
        records={each.spec.job_id: each for each in records},
        history=SimpleNamespace(facts={name: JobFacts(id=name, run_url="/run") for name in ("ended", "summed up")}),
        queue=SimpleNamespace(facts=lambda: {"queued": JobFacts(id="queued", run_url="/run")}),
        detached=SimpleNamespace(run_urls=lambda: [(name, "/run") for name in ("begins", "summed up", "detached")]),
    )
    live = {"attached": True, "detached": True, "queued": True, "begins": True}
    assert Views(jobs).runs_in("/run") == {**live, "ended": False, "summed up": False}
