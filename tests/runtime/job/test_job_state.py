"""What a job decides when Dask workers are lost, come, go and answer late; all of it is simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from singa_dask.conf import ClusterConf
from singa_dask.runtime.job import events as ev
from tests.runtime.job.simulated_cluster import Node
from tests.runtime.job.world import World

CONFIGS = Path(__file__).parents[3] / "configs" / "cluster"
CLUSTERS: dict[str, dict[str, Any]] = {path.stem: yaml.safe_load(path.read_text()) for path in CONFIGS.glob("*.yaml")}
CLUSTERS |= {
    "eight": {"nworkers_per_group": 8, "nservers_per_group": 8},
    "four-groups": {"nworker_groups": 4, "nworkers_per_group": 2, "nworkers_per_procs": 2, "nservers_per_group": 4},
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


def world_of(name: str, n_nodes: int, seed: int = 0, nthreads: int = 4, nanny: bool = False, **more: Any) -> World:
    """Return a job on a simulated cluster of two Dask workers per host."""
    cluster = ClusterConf.model_validate({**CLUSTERS[name], **more}).model_dump_json()
    nodes = [Node(f"w{i}", f"host{i // 2}", nthreads, nanny) for i in range(n_nodes)]
    return World(cluster, nodes, seed)


FAULTS = st.tuples(
    st.sampled_from(
        "kill kill kill kill-same freeze-2 freeze-7 freeze-20 join join leave leave signal client-gone host-error "
        "host-final retry final busy drop-ended drop-snapshot snapshot".split()
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
    elif fault == "client-gone" and index < 3:
        world.deliver(ev.ClientGone())
    elif fault == "retry":
        world.fail_unit(True, 7)
    elif fault == "final" and index < 3:
        world.fail_unit(False, 9)
    elif fault == "snapshot":
        world.snapshot()
    elif fault == "drop-ended":
        world.drops.append(ev.Ended)
    elif node is not None and fault.startswith("kill"):
        world.kill(node, same_address=fault == "kill-same")
    elif node is not None and fault.startswith("freeze"):
        world.freeze(node, float(fault.partition("-")[2]))
    elif node is not None and fault == "leave":
        world.leave(node)
    elif node is not None and fault.startswith("host"):
        node.host_error = fault.partition("-")[2]
    elif node is not None and fault == "busy":
        node.busy = index % 4


@settings(max_examples=400)
@given(
    name=st.sampled_from(sorted(CLUSTERS)),
    spare=st.integers(0, 2),
    nthreads=st.sampled_from([2, 3, 4, 8]),
    nanny=st.booleans(),
    seed=st.integers(0, 10**6),
    more=st.sampled_from([{}, {}, {"max_restarts": 0}, {"max_restarts": 2}, {"elastic": {"min_processes": 2}}]),
    faults=st.lists(FAULTS, max_size=12),
)
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
    what = world.run_until_over(600.0)
    world.check_end(what, more.get("max_restarts", 10))


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_without_faults_nothing_starts_again(name: str) -> None:
    world = world_of(name, 8)
    what = world.run_until_over(60.0)
    assert what["failure"] is None
    assert what["restarts"] == 0
    assert {each["state"] for each in what["reports"].values()} == {"done"}
