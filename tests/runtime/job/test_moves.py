"""Moves of units to other Dask workers, and of snapshots to other holders; all of it is simulated."""

from __future__ import annotations

import pytest

from singa_dask.comm.message import Address
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev
from tests.runtime.job.simulated_cluster import Node
from tests.runtime.job.test_job_state import running, world_of
from tests.runtime.job.world import World


def test_a_move_to_more_dask_workers_waits_for_a_snapshot_or_a_checkpoint() -> None:
    world = world_of("allreduce", 1, nthreads=4, n_steps=100_000)
    world.snapshot = lambda: None  # type: ignore[method-assign]  # it takes long
    world.run(7.0)
    assert len(set(world.state.workers)) == 1
    world.join(Node("more", "host-of-more", 4))
    world.run(30.0)
    assert world.state.incarnation == 0, "it would start from the beginning"
    assert world.asked_for_checkpoints
    step = world.position[0]
    world.deliver(ev.Saved(0, step, f"step-{step}"))
    world.run(2.0)
    assert (world.state.incarnation, len(set(world.state.workers))) == (1, 2)
    assert world.position[0] >= step


def test_a_checkpoint_from_before_a_move_was_due_does_not_begin_it() -> None:
    world = world_of("allreduce", 1, nthreads=4, n_steps=100_000)
    world.snapshot = lambda: None  # type: ignore[method-assign]
    world.run(7.0)
    world.join(Node("more", "host-of-more", 4))
    world.run(20.0)
    assert world.asked_for_checkpoints
    world.deliver(ev.Saved(0, 1, "step-1"))  # it was begun long before, and its storage was slow
    world.run(2.0)
    assert world.state.incarnation == 0, "all steps since would be lost"
    step = world.position[0]
    world.deliver(ev.Saved(0, step, f"step-{step}"))
    world.run(2.0)
    assert world.state.incarnation == 1


def test_what_was_saved_for_a_move_counts_after_it_is_announced_again() -> None:
    """A Dask worker is retired, and then closes; it announces both."""
    world = running("allreduce", 3, n_steps=100_000)
    world.snapshot = lambda: None  # type: ignore[method-assign]
    world.deliver(ev.Leaving("w1"))
    step = world.position[0]
    world.run(2.0)
    world.deliver(ev.Leaving("w1"))
    assert world.state.reached > step
    world.deliver(ev.Saved(0, step, f"step-{step}"))
    world.run(0.5)
    assert world.state.phase in ("ending", "placing") or world.state.incarnation == 1


def test_a_job_that_is_to_move_can_be_stopped() -> None:
    world = world_of("allreduce", 1, nthreads=4, n_steps=100_000)
    world.snapshot = lambda: None  # type: ignore[method-assign]
    world.run(7.0)
    world.join(Node("more", "host-of-more", 4))
    world.run(4.0)
    world.deliver(ev.Signal("SIGTERM"))
    assert world.run_until_over(10.0)["failure"] is None


@pytest.mark.parametrize("name", ["single"])
def test_a_lost_holder_of_snapshots_is_replaced_at_once(name: str) -> None:
    world = running(name, 4, n_steps=100_000)
    holders = {each.buddy for each in world.done_actions if isinstance(each, act.Host)}
    spare = next(address for address in sorted(holders) if address not in world.state.workers)
    world.is_scheduled = False  # only those that are asked for are taken
    world.kill(world.nodes[spare])
    check_goes_on_elsewhere(world)


@pytest.mark.parametrize("has_other", [True, False])
def test_so_is_one_that_is_lost_before_the_units_run(has_other: bool) -> None:
    world = world_of("single", 3 if has_other else 2, n_steps=100_000)
    (buddy,) = [each.buddy for each in world.done_actions if isinstance(each, act.Host)]
    del world.nodes[buddy]
    world.deliver(ev.Gone(buddy, "it is gone"))
    world.run(7.0)
    if not has_other:
        world.join(Node("more", "host-of-more", 4))
    check_goes_on_elsewhere(world)


def check_goes_on_elsewhere(world: World) -> None:
    """Check that snapshots are kept elsewhere, too: lose all Dask workers of the job."""
    world.run(1.0)
    world.is_scheduled = False  # only those that are asked for are taken
    for address in set(world.state.workers):
        world.kill(world.nodes[address])
    world.run(10.0)
    assert [each["step"] > 0 for each in world.told if each["event"] == "restart"] == [True]


def test_nobody_waits_for_workers_that_were_done_on_a_dask_worker_that_is_gone() -> None:
    world = running("four-groups", 5, n_steps=100_000)
    done = (Address.worker(3, 0), Address.worker(3, 1))
    for worker in done:
        world.deliver(ev.Reported(0, worker, {"state": "done", "step": 100_000}))
    deliver, late = world.deliver, list[ev.Joined]()

    def deliver_later(event: object) -> None:
        if isinstance(event, ev.Joined) and event.process == 1:
            late.append(event)
        else:
            deliver(event)

    world.deliver = deliver_later  # type: ignore[method-assign]
    world.kill(world.nodes["w3"])
    world.run(3.0)
    assert len(world.state.restarts) == 0
    told = [each for each in world.done_actions if isinstance(each, act.Join)]
    assert [(each.process, each.left, each.endpoints) for each in told] == [(p, done, {}) for p in range(3)]
    deliver(ev.Gone("w3", "it is gone"))
    assert told == [each for each in world.done_actions if isinstance(each, act.Join)]
    failed = late[0]._replace(error="w1 does not answer: TimeoutError().")
    deliver(failed)
    world.run(3.0)
    again = [each for each in world.done_actions if isinstance(each, act.Join)]
    assert again == [*told, told[1]._replace(request=again[-1].request)]
    deliver(failed)  # an answer to the first request, though the second has none yet
    world.run(3.0)
    assert again == [each for each in world.done_actions if isinstance(each, act.Join)]
