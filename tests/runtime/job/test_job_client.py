"""What a job decides when its client is gone; all of it is simulated."""

from __future__ import annotations

import pytest

from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.job_state import JobState
from tests.runtime.job.test_job_state import running


def test_a_job_whose_client_is_gone_stops_with_a_checkpoint() -> None:
    world = running("allreduce", 2, n_steps=100_000)
    world.deliver(ev.ClientGone())
    what = world.run_until_over(30.0)
    assert (what["failure"], what["signal"], what["by"]) == (None, "SIGHUP", "the loss of its client")


def test_a_job_whose_client_is_gone_ends_if_it_does_not_stop() -> None:
    state = running("allreduce", 2, n_steps=100_000).state
    stops = state.handle(ev.ClientGone(), 100.0, {})
    assert {each.what for each in stops} == {"stop"}
    assert state.handle(ev.Tick(), 159.0, {}) == []
    state.handle(ev.Tick(), 160.0, {})
    assert state.phase in ("ending", "over")


def test_a_job_that_is_ended_before_it_begins_does_not_begin() -> None:
    world = running("hogwild", 2)
    state = JobState(world.state.spec)
    assert state.handle(ev.ClientGone(), 0.0, world.facts()) == []
    (over,) = state.begin(1.0, world.facts())
    assert isinstance(over, act.Over)
    assert over.end.reason == "the client that ran the job is gone"
    assert state.phase == "over"


@pytest.mark.parametrize(
    ("name", "lost", "phase"),
    [
        ("allreduce", "w1", "ending"),
        ("allreduce", "w1", "starting"),
        ("hogwild", "w1", "starting"),
        ("four-groups", "w1", "placing"),
        ("four-groups", "w2", "replacing"),
    ],
)
def test_a_job_whose_client_is_gone_during_a_recovery_stops_with_a_checkpoint(name: str, lost: str, phase: str) -> None:
    world = running(name, 4, n_steps=100_000, nanny=True)
    world.kill(world.nodes[lost])
    for _ in range(500):
        world.run(0.01)
        if phase == ("replacing" if world.state._replacement else world.state.phase):
            break
    else:
        pytest.fail(f"the job was never {phase}")
    world.deliver(ev.ClientGone())
    what = world.run_until_over(60.0)
    assert (what["failure"], what["signal"]) == (None, "SIGHUP")
    assert {report["state"] for report in what["reports"].values()} == {"done"}
