"""Jobs that are stopped while they wait for Dask workers."""

from __future__ import annotations

import pytest

from singa_dask.runtime.job.state import events as ev
from tests.runtime.job.simulated_cluster import Node
from tests.runtime.job.test_job_state import world_of


@pytest.mark.parametrize("phase", ["ending", "placing"])
@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_job_ends_at_once_where_it_has_nothing_to_save(phase: str, has_snapshot: bool) -> None:
    world = world_of("allreduce", 2, elastic={"min_processes": 2})
    world.is_scheduled = has_snapshot
    world.run(7.0)
    assert bool(world.snapshots) == has_snapshot
    world.kill(world.nodes["w1"])
    while world.state.phase != phase:
        world.run(0.01)
    world.deliver(ev.Signal("SIGTERM"))
    incarnation = world.state.incarnation
    if has_snapshot:
        world.run(5.0)
        assert world.over is None
        world.join(Node("w2", "host1", 4))
    what = world.run_until_over(30.0 if has_snapshot else 6.0)
    assert (what["signal"], what["failure"]) == ("SIGTERM", None)
    assert world.state.incarnation == incarnation + has_snapshot
