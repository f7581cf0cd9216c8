"""What a job decides while nobody dies: silent networks, cut links, late answers, errors that may pass; simulated."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.state import events as ev
from tests.runtime.job.test_job_state import CLUSTERS, FAULTS, inflict, running, world_of
from tests.runtime.job.world import World
from tests.selection import few_examples

PASSING = FAULTS.filter(lambda fault: fault[0].startswith(("freeze", "part", "host-error", "drop-ended")))


@few_examples(25)
@given(
    name=st.sampled_from(sorted(CLUSTERS)),
    spare=st.integers(0, 2),
    nthreads=st.sampled_from([4, 8]),
    seed=st.integers(0, 10**6),
    faults=st.lists(PASSING, max_size=5),
)
def test_a_job_of_which_nobody_dies_is_done(name: str, spare: int, nthreads: int, seed: int, faults: list[Any]) -> None:
    n = len(World.layout_of(ClusterConf.model_validate(CLUSTERS[name]).model_dump_json()).processes)
    world = world_of(name, n + spare, seed, nthreads, max_restarts=50)
    for fault, index, pause in faults:
        inflict(world, fault, index)
        world.run(pause)
    assert world.run_until_over(3600.0)["failure"] is None, world.history()


@pytest.mark.parametrize("seconds", [45.0, 540.0])
def test_a_network_that_is_silent_for_minutes_ends_no_job(seconds: float) -> None:
    world = running("allreduce", 2)
    for node in list(world.nodes.values()):
        world.freeze(node, seconds)
    what = world.run_until_over(seconds + 60.0)
    assert what["failure"] is None
    assert what["restarts"] == 1
    said = [each["message"] for each in world.told if "the job waits for Dask workers" in each.get("message", "")]
    assert said == [
        "the job waits for Dask workers, 10 minutes at most: the job does not fit: it needs 2 Dask workers with 2 free "
        "threads each; 0 are ready (free threads: none). Start more workers (dask-worker ADDRESS --nthreads 2), or "
        "change the job's cluster block. Not used: w0 (nothing is heard), w1 (nothing is heard)."
    ]


def test_units_are_not_started_on_a_spare_dask_worker_that_falls_silent_a_moment_later() -> None:
    world = running("allreduce", 3)
    for node in sorted(world.nodes.values(), key=lambda node: node.address not in world.state.workers):
        world.freeze(node, 45.0)
        world.run(0.3)
    what = world.run_until_over(120.0)
    assert (what["failure"], what["restarts"]) == (None, 1), world.history()


def test_a_job_waits_for_dask_workers_as_long_as_it_says() -> None:
    world = running("allreduce", 2, wait_for_workers_minutes=1.5)
    began = world.now
    for node in list(world.nodes.values()):
        world.freeze(node, 3600.0)
    failure = world.run_until_over(120.0)["failure"]
    assert failure["exit_code"] == 4
    assert "Waited 90 s for Dask workers" in failure["reason"]
    assert world.now - began > 90.0


@pytest.mark.parametrize("name", ["allreduce", "hogwild", "sandblaster"])
def test_units_go_to_one_side_of_a_cut_and_come_back_when_it_is_mended(name: str) -> None:
    world = running(name, 2, nthreads=8, n_steps=800)
    world.part("w0", "w1", 60.0)
    world.run(40.0)
    assert world.state.phase == "running"
    assert len(set(world.state.roster.workers)) == 1
    said = [each.get("message", "") for each in world.told]
    assert any("do not reach each other. Only one of them is used for 60 s." in each for each in said), said
    world.run(80.0)
    assert set(world.state.roster.workers) == {"w0", "w1"}
    what = world.run_until_over(300.0)
    assert what["failure"] is None
    assert what["restarts"] <= 3


def test_nobody_reaches_another() -> None:
    world = running("allreduce", 3, nthreads=8, n_steps=400)
    for pair in combinations(list(world.nodes), 2):
        world.part(*pair, 1e6)
    world.run(70.0)
    assert world.state.phase == "running"
    assert len(set(world.state.roster.workers)) == 1
    what = world.run_until_over(300.0)
    assert what["failure"] is None
    assert what["restarts"] <= 6


def test_a_link_that_stays_cut_takes_few_restarts() -> None:
    world = running("allreduce", 3, nthreads=8, n_steps=2000)
    world.part("w0", "w1", 1e6)
    world.part("w0", "w2", 1e6)
    what = world.run_until_over(3000.0)
    assert what["failure"] is None
    assert what["restarts"] <= 6


def test_a_survivor_that_ends_its_units_late_is_used() -> None:
    world = running("allreduce", 2)
    world.drops.append(ev.Ended)
    world.kill(world.nodes["w1"])
    what = world.run_until_over(60.0)
    assert what["failure"] is None
    assert what["restarts"] == 1


def test_a_survivor_that_ends_its_units_late_is_used_from_then_on() -> None:
    world = running("allreduce", 2)
    world.drops.append(ev.Ended)
    world.kill(world.nodes["w1"])
    for _ in range(500):
        world.run(0.05)
        if world.state.phase == "placing":
            break
    world.deliver(ev.Ended(0, "w0", {}))
    world.run(1.0)
    assert world.state.workers == ("w0",)


def test_a_survivor_with_an_error_that_may_pass_is_tried_again() -> None:
    world = running("allreduce", 2)
    world.nodes["w0"].host_error = "OSError: no answer"
    world.kill(world.nodes["w1"])
    what = world.run_until_over(60.0)
    assert what["failure"] is None
    assert what["restarts"] == 2


def test_one_without_the_package_is_not_waited_for_long() -> None:
    world = running("allreduce", 2)
    world.nodes["w0"].host_error = "lasting"
    world.kill(world.nodes["w1"])
    failure = world.run_until_over(60.0)["failure"]
    assert failure["exit_code"] == 4
    assert "Waited 30 s" in failure["reason"]
    assert "Not used: w0 (it has failed, or does not reach other Dask workers)." in failure["reason"]


def test_units_that_do_not_start_are_not_put_down_to_tasks_that_are_not_there() -> None:
    world = world_of("allreduce", 2)
    world.drops += [ev.Hosted]
    reason = world.run_until_over(400.0)["failure"]["reason"]
    assert "No answer yet from w" in reason
    assert "Other tasks" not in reason


def test_an_error_that_may_pass_is_tried_again_as_often_as_the_job_says() -> None:
    world = running("allreduce", 2, max_restarts=4, n_steps=400)
    for incarnation in range(5):
        while world.state.incarnation != incarnation or world.state.phase != "running":
            world.run(0.1)  # it fails again before its first step
        report = {"state": "failed", "reason": "no answer.", "exit_code": 7, "retry": True, "step": 35}
        world.deliver(ev.Reported(incarnation, Address.worker(0, 0), report))
    failure = world.run_until_over(20.0)["failure"]
    assert failure["exit_code"] == 7
    assert "restarted 4 times without a later step" in failure["reason"]
