"""What a job decides when Dask workers are lost, come, go and answer late; all of it is simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from singa_dask.runtime.job.state.job_state import JobState
from tests.runtime.job.simulated_cluster import Node
from tests.runtime.job.world import World
from tests.selection import few_examples

CONFIGS = Path(__file__).parents[3] / "configs" / "cluster"
CLUSTERS: dict[str, dict[str, Any]] = {path.stem: yaml.safe_load(path.read_text()) for path in CONFIGS.glob("*.yaml")}
CLUSTERS |= {
    "eight": {"nworkers_per_group": 8, "nservers_per_group": 8},
    "four-groups": {"nworker_groups": 4, "nworkers_per_group": 2, "nworkers_per_procs": 2, "nservers_per_group": 2},
    "separate": {
        "nworker_groups": 4,
        "nworkers_per_group": 2,
        "nworkers_per_procs": 2,
        "nserver_groups": 2,
        "nservers_per_group": 2,
        "nservers_per_procs": 2,
        "server_worker_separate": True,
    },
}


def world_of(
    name: str, n_nodes: int, seed: int = 0, nthreads: int = 4, nanny: bool = False, n_steps: int = 40, **more: Any
) -> World:
    """Return a job on a simulated cluster of two Dask workers per host."""
    cluster = ClusterConf.model_validate({**CLUSTERS[name], **more}).model_dump_json()
    nodes = [Node(f"w{i}", f"host{i // 2}", nthreads, nanny) for i in range(n_nodes)]
    return World(cluster, nodes, seed, n_steps)


FAULTS = st.tuples(
    st.sampled_from(
        "kill kill kill kill-same freeze-2 freeze-7 freeze-20 freeze-90 part-20 part-200 join join leave leave signal "
        "client-gone host-error host-lasting host-final retry final abort busy drop-ended drop-snapshot snapshot stop "
        "checkpoint".split()
    ),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.02, 0.1, 0.3, 1.0, 3.0, 7.0, 12.0]),
)


def inflict(world: World, fault: str, index: int) -> None:
    """Let something go wrong."""
    node = list(world.nodes.values())[index % len(world.nodes)] if world.nodes else None
    if fault == "join":
        world.join(Node(f"new{len(world.log)}", f"host{index}", 4))
    elif fault == "signal":
        world.deliver(ev.Signal("SIGINT"))
    elif fault == "stop":
        world.deliver(ev.Signal("SIGKILL" if index < 2 else "SIGTERM", "anna@host"))
    elif fault == "checkpoint":
        world.deliver(ev.CheckpointAsked())
    elif fault == "client-gone" and index < 3:
        world.deliver(ev.ClientGone())
    elif fault == "retry":
        world.fail_unit(True, 7)
    elif fault == "final" and index < 3:
        world.fail_unit(False, 9)
    elif fault == "abort":
        world.abort_process(index)
    elif fault == "snapshot":
        world.snapshot()
    elif fault == "drop-ended":
        world.drops.append(ev.Ended)
    elif node is not None and fault.startswith("kill"):
        world.kill(node, same_address=fault == "kill-same")
    elif len(world.nodes) > 1 and fault.startswith("part"):
        first, *others = world.nodes
        world.part(first, others[index % len(others)], float(fault.partition("-")[2]))
    elif node is not None and fault.startswith("freeze"):
        world.freeze(node, float(fault.partition("-")[2]))
    elif node is not None and fault == "leave":
        world.leave(node)
    elif node is not None and fault.startswith("host"):
        node.host_error = fault.partition("-")[2]
    elif node is not None and fault == "busy":
        node.busy = index % 4


@few_examples(50)
@given(
    name=st.sampled_from(sorted(CLUSTERS)),
    spare=st.integers(0, 2),
    nthreads=st.sampled_from([2, 3, 4, 8]),
    nanny=st.booleans(),
    seed=st.integers(0, 10**6),
    more=st.sampled_from([{}, {}, {"max_restarts": 0}, {"max_restarts": 2}, {"elastic": {"min_processes": 2}}]),
    faults=st.lists(FAULTS, max_size=12),
)
@pytest.mark.long
def test_a_job_always_comes_to_an_end(
    name: str, spare: int, nthreads: int, nanny: bool, seed: int, more: dict[str, Any], faults: list[Any]
) -> None:
    if name == "single" and "elastic" in more:
        more = {}
    n = len(World.layout_of(ClusterConf.model_validate(CLUSTERS[name]).model_dump_json()).processes)
    world = world_of(name, n + spare, seed, nthreads, nanny, **more)
    for fault, index, pause in faults:
        inflict(world, fault, index)
        world.run(pause)
    what = world.run_until_over(3600.0)
    world.check_end(what, more.get("max_restarts", 10))


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_without_faults_nothing_starts_again(name: str) -> None:
    world = world_of(name, 8)
    what = world.run_until_over(60.0)
    assert what["failure"] is None
    assert what["restarts"] == 0
    assert {each["state"] for each in what["reports"].values()} == {"done"}
    assert set(world.state.last_steps()) == {str(group) for group in world.groups}


def running(name: str, n_nodes: int, **given: Any) -> World:
    """Return a job that has trained for some seconds, and has snapshots."""
    world = world_of(name, n_nodes, **given)
    world.run(7.0)
    assert world.state.phase == "running"
    assert world.snapshots
    return world


def test_only_the_lost_group_starts_again() -> None:
    world = running("four-groups", 5)
    world.kill(world.nodes["w2"])
    what = world.run_until_over(60.0)
    assert what["failure"] is None
    assert what["restarts"] == 1
    assert world.incarnations == {0: 0, 1: 0, 2: 1, 3: 0}
    assert world.hosts[0].buddy == "w2"  # at first
    joins = [each for each in world.done_actions if isinstance(each, act.Join)]
    assert {each.process: each.buddy for each in joins}[0] != "w2"


def test_lost_seconds_count_until_the_step_of_the_loss_is_reached_again() -> None:
    world = world_of("allreduce", 3)
    world.is_scheduled = False  # all steps are computed again
    world.run(7.0)
    lost_at, step = world.now, world.state.steps["0"]
    assert step > 10
    world.kill(world.nodes["w1"])
    while not world.state.restarts.lost_s:
        assert world.state.incarnation == 0 or world.state.steps.get("0", 0) <= step + 3
        world.run(0.5)
    assert world.state.steps["0"] >= step
    assert world.state.restarts.lost_s == pytest.approx(world.now - lost_at, abs=1.5)
    assert world.state.restarts.lost_s > 0.25 * step  # what the steps take
    what = world.run_until_over(60.0)
    assert what["lost_s"] == round(world.state.restarts.lost_s, 3)


def test_lost_seconds_count_also_where_the_job_ends_before_it_is_as_far_again() -> None:
    world = world_of("allreduce", 3)
    world.is_scheduled = False
    world.run(7.0)
    world.kill(world.nodes["w1"])
    world.run(5.0)
    world.deliver(ev.Signal("SIGKILL"))
    what = world.run_until_over(60.0)
    assert what["lost_s"] == pytest.approx(5.0, abs=1.0)  # the loss is noticed a moment later


def test_an_incarnation_that_ends_while_others_are_replaced_is_not_held_up() -> None:
    world = running("four-groups", 5)
    world.kill(world.nodes["w2"])
    world.run(1.01)
    world.deliver(ev.Reported(0, Address.worker(0, 0), {"state": "failed", "reason": "no.", "retry": True, "step": 5}))
    assert world.state.phase == "ending"
    incarnation = world.state.incarnation
    world.run(3.0)
    assert world.state.incarnation == incarnation + 1
    assert world.run_until_over(60.0)["failure"] is None


def test_events_of_a_process_that_was_replaced_change_nothing() -> None:
    world = running("four-groups", 5)
    world.kill(world.nodes["w2"])
    world.run(5.0)
    assert world.incarnations[2] == 1
    old = ev.Reported(0, Address.worker(2, 0), {"state": "failed", "reason": "an old one.", "exit_code": 9, "step": 5})
    for event in (
        old,
        ev.Ended(0, "w2", {}, 2),
        ev.Cut(0, 2, 1, error="old"),
        ev.Joined(0, 2, 1, "old"),
        ev.Hosted(0, 2),
    ):
        assert world.state.handle(event, world.now, world.facts()) == []
    assert world.run_until_over(60.0)["failure"] is None


def test_a_move_does_not_wait_for_ever_for_a_snapshot() -> None:
    # the Dask worker announces that it leaves before all units have begun, and no snapshot comes
    world = world_of("allreduce", 3)
    world.nodes["w1"].is_leaving = True
    world.deliver(ev.Leaving("w1"))
    world.trains = lambda group, where: False  # type: ignore[method-assign]
    world.run(7.0)
    assert world.state.incarnation == 1
    assert "w1" not in world.state.workers


def test_no_part_is_read_from_a_silent_dask_worker() -> None:
    world = running("allreduce", 2)
    world.freeze(world.nodes["w0"], 60.0)
    world.run(10.0)
    start = world.hosts[0].start["manifest"]
    assert {holder for part in start["parts"] for holder in part["holders"]} == {"w1"}


def test_a_group_does_not_start_again_without_its_servers() -> None:
    world = running("four-groups", 5)
    for unit in world.layout.units:
        if unit != Address.worker(3, 1):
            world.deliver(ev.Reported(0, unit, {"state": "done", "step": 40}))
    world.kill(world.nodes["w3"])
    world.run(1.0)
    assert world.state.phase != "running" or world.state.roster.full_incarnation == 1
    assert world.run_until_over(60.0)["failure"] is None


def test_a_finished_process_that_leaves_is_no_loss() -> None:
    world = running("sandblaster", 2)
    for worker in (Address.worker(0, 0), Address.worker(0, 1)):
        world.deliver(ev.Reported(0, worker, {"state": "done", "step": 40}))
    world.kill(world.nodes["w0"])
    world.run(1.0)
    assert world.state.phase == "running"
    for server in (Address.server(0, 0), Address.server(0, 1)):
        world.deliver(ev.Reported(0, server, {"state": "done", "step": 40}))
    what = world.run_until_over(20.0)
    assert what["failure"] is None
    assert what["restarts"] == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_second_signal_ends_a_job_at_once_unless_it_is_done(late: bool) -> None:
    world = running("hogwild", 2)
    if late:
        for unit in world.layout.units:
            world.deliver(ev.Reported(0, unit, {"state": "done", "step": 40}))
    world.deliver(ev.Signal("SIGINT"))
    world.deliver(ev.Signal("SIGINT"))
    assert world.state.phase == "ending"
    failure = world.run_until_over(10.0)["failure"]
    assert late == (failure is None)
    assert late or failure["exit_code"] == 130


def test_notices_of_a_batch_system_stop_a_job_once_and_never_abort_it() -> None:
    """A soft limit of CPU time sends SIGXCPU every second."""
    world = running("hogwild", 2)
    for name in ("SIGXCPU", "SIGXCPU", "SIGUSR1", "SIGTERM"):
        world.deliver(ev.Signal(name))
    notices = [each["message"] for each in world.told if each["event"] == "notice"]
    assert notices == [
        "SIGXCPU: stopping with a checkpoint.",
        "SIGTERM: stopping with a checkpoint. Send SIGTERM again to abort.",
    ]
    what = world.run_until_over(10.0)
    assert (what["failure"], what["signal"]) == (None, "SIGXCPU")


def test_a_job_that_somebody_else_stops_is_not_ended_at_once_by_its_client() -> None:
    world = running("hogwild", 2)
    for by in ("anna@host", "bob@host"):
        world.deliver(ev.Signal("SIGTERM", by))
    world.deliver(ev.Signal("SIGINT"))
    assert world.state.phase == "running"
    notices = [each["message"] for each in world.told if each["event"] == "notice"]
    assert notices == [
        "anna@host: stopping with a checkpoint.",
        "SIGINT: stopping with a checkpoint. Send SIGINT again to abort.",
    ]
    world.deliver(ev.Signal("SIGINT"))
    what = world.run_until_over(10.0)
    assert (what["signal"], what["by"]) == ("SIGTERM", "anna@host")
    assert what["failure"]["exit_code"] == 130


@pytest.mark.parametrize("phase", ["new", "starting", "running", "ending", "placing"])
def test_a_job_is_killed_in_any_phase(phase: str) -> None:
    if phase == "running":
        world = running("hogwild", 2)
    else:
        world = world_of("allreduce", 2, elastic={"min_processes": 2})
    if phase == "new":
        world.state = JobState(world.state.spec)
    elif phase in ("ending", "placing"):
        world.run(7.0)
        world.kill(world.nodes["w1"])
        for _ in range(10_000):
            if world.state.phase != phase:
                world.run(0.01)
    assert world.state.phase == phase
    world.deliver(ev.Signal("SIGKILL", "anna@host"))
    if phase == "new":
        world.state.begin(world.now, world.facts())
        assert world.state.phase == "over"
        return
    failure = world.run_until_over(9.0)["failure"]
    assert (failure["reason"], failure["exit_code"]) == ("killed by anna@host", 137)


def test_a_checkpoint_that_is_asked_for_is_asked_for_again_after_a_loss() -> None:
    world = running("hogwild", 2)
    world.deliver(ev.CheckpointAsked())
    assert len(world.asked_for_checkpoints) == 1
    world.deliver(ev.Began(0, "worker-0-0"))
    assert len(world.asked_for_checkpoints) == 2
    world.deliver(ev.Saved(0, 30, "file:///run/step-30"))
    world.deliver(ev.Began(0, "worker-0-0"))
    assert len(world.asked_for_checkpoints) == 2


def test_a_checkpoint_of_an_earlier_step_is_not_the_one_that_was_asked_for() -> None:
    """It was taken after a restart, and somebody waits for the step that the job had reached."""
    world = running("hogwild", 2)
    reached = world.state.reached
    assert reached > 1
    world.deliver(ev.CheckpointAsked())
    world.deliver(ev.Saved(0, reached - 1, f"file:///run/step-{reached - 1}"))
    for step, n_asked in ((reached - 1, 1), (reached, 2), (reached + 1, 2)):
        world.deliver(ev.Stepped(0, dict.fromkeys(world.state.steps, step)))
        assert len(world.asked_for_checkpoints) == n_asked
    world.deliver(ev.Saved(0, reached + 1, f"file:///run/step-{reached + 1}"))
    world.deliver(ev.Began(0, "worker-0-0"))
    assert len(world.asked_for_checkpoints) == 2


def test_the_first_failure_is_told() -> None:
    world = running("hogwild", 2)
    for code in (9, 7):
        report = {"state": "failed", "reason": f"code {code}.", "exit_code": code, "step": 5}
        world.deliver(ev.Reported(0, Address.worker(0, 0), report))
    failure = world.run_until_over(10.0)["failure"]
    assert (failure["exit_code"], failure["reason"]) == (9, "code 9.")


@pytest.mark.parametrize(("n", "code"), [(0, 4), (3, 4)])
def test_max_restarts_is_kept(n: int, code: int) -> None:
    world = running("allreduce", 8, max_restarts=n)
    while world.over is None:
        incarnation = world.state.incarnation
        world.kill(world.nodes[world.state.roster.workers[0]])
        while world.over is None and world.state.incarnation == incarnation:
            world.run(0.1)  # the next loss comes before its first step
    assert world.over.end.restarts == n
    assert world.over.end.failure is not None
    assert world.over.end.failure.exit_code == code
    assert "max_restarts" in world.over.end.reason


def test_restarts_with_steps_between_them_do_not_count() -> None:
    world = running("allreduce", 8, max_restarts=2, n_steps=400)
    for n in range(1, 6):
        world.kill(world.nodes[world.state.roster.workers[0]])
        world.run(12.0)
        assert world.over is None, world.over
        assert len(world.state.restarts) == n


@pytest.mark.parametrize("name", ["allreduce", "sandblaster", "four-groups"])
def test_units_that_nobody_has_ended_start_again(name: str) -> None:
    world = running(name, 5)
    world.abort_process(1)
    world.run(4.0)
    assert world.state.incarnation == 0  # that its Dask worker leaves may be told yet
    what = world.run_until_over(60.0)
    assert what["failure"] is None
    assert what["restarts"] == 1
    restarts = [each["reason"] for each in world.told if each["event"] == "restart"]
    assert len(restarts) == 1
    assert "ended before the job was done" in restarts[0]


def test_an_aborted_unit_whose_dask_worker_leaves_counts_as_one_loss() -> None:
    world = running("four-groups", 5)
    world.abort_process(2)
    world.kill(world.nodes["w2"])
    what = world.run_until_over(60.0)
    assert what["restarts"] == 1
    assert world.incarnations == {0: 0, 1: 0, 2: 1, 3: 0}


def test_units_that_share_a_dask_worker_spread_out_when_there_is_room() -> None:
    world = running("hogwild", 2, nthreads=8, n_steps=200)
    world.kill(world.nodes["w1"])
    world.run(8.0)
    assert set(world.state.roster.workers) == {"w0"}
    world.join(Node("w2", "host2", 8))
    world.run(10.0)
    assert set(world.state.roster.workers) == {"w0", "w2"}
    lost, moved, *_ = (event["reason"] for event in world.told if event["event"] == "restart")
    assert "Lost: worker-1-0, server-1-0" in lost
    assert "room for 2 processes" in moved
    assert world.run_until_over(120.0)["failure"] is None


def test_a_later_incarnation_that_does_not_start_in_time_is_tried_again() -> None:
    world = running("allreduce", 3)
    world.drops.append(ev.Hosted)  # an answer is lost
    world.kill(world.nodes["w1"])
    what = world.run_until_over(500.0)
    assert what["failure"] is None
    assert what["restarts"] == 2


def until_cut_off(world: World, address: str) -> None:
    """Lose a Dask worker; let time pass until others are asked to cut it off."""
    world.kill(world.nodes[address])
    while not any(isinstance(each, act.CutOff) for each in world.done_actions):
        world.run(0.01)


def test_late_answers_of_other_incarnations_do_not_count_while_processes_are_replaced() -> None:
    world = running("four-groups", 5)
    until_cut_off(world, "w2")
    for late in (ev.Cut(7, 0, 1, {2: 0}, "late"), ev.Ended(7, "w2", {}, 2), ev.Joined(7, 0, 1, "late")):
        world.deliver(late)
    what = world.run_until_over(60.0)
    assert what["restarts"] == 1
    assert world.incarnations == {0: 0, 1: 0, 2: 1, 3: 0}


def test_a_process_that_is_being_replaced_parts_no_dask_workers() -> None:
    world = running("four-groups", 6)
    until_cut_off(world, "w2")
    report = {"state": "failed", "reason": "it cannot be reached.", "exit_code": 4, "retry": True, "step": 5}
    world.deliver(ev.Reported(0, Address.worker(0, 0), {**report, "unreachable": 2}))
    assert not world.state._placer.suspects._failures


def test_a_second_loss_while_processes_are_replaced_restarts_the_job() -> None:
    world = running("four-groups", 6)
    until_cut_off(world, "w2")
    world.kill(world.nodes["w3"])
    what = world.run_until_over(30.0)
    assert what["failure"] is None
    assert what["restarts"] == 2


def test_a_loss_counts_once_where_a_group_cannot_start_again_alone() -> None:
    # no thread is left on the other Dask worker: the whole job is packed there
    world = running("hogwild", 2, nthreads=2, max_restarts=1)
    world.kill(world.nodes["w1"])
    what = world.run_until_over(30.0)
    assert what["failure"] is None
    assert what["restarts"] == 1


def test_a_snapshot_that_nobody_has_any_more_is_not_tried_again() -> None:
    world = running("allreduce", 2)
    newest = world.snapshots[-1]
    for node in world.nodes.values():
        node.parts = {file: what for file, what in node.parts.items() if what[0] != newest.step}
    report = {"state": "failed", "reason": "nobody has it any more.", "exit_code": 4, "retry": True, "step": -1}
    report["unreadable"] = f"the snapshot of step {newest.step}"
    world.deliver(ev.Reported(0, Address.worker(0, 0), report))
    world.run(3.0)
    assert world.hosts[0].incarnation == 1
    assert world.hosts[0].start["manifest"]["step"] < newest.step
