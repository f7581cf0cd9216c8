"""Which server has what: parts of params that one worker alone has never leave its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.layout import pack
from tests.runtime.end_to_end.test_partition import PLACES, placed
from tests.runtime.harness import HOGWILD, Outcome
from tests.selection import mostly_long

RunJob = Callable[..., Outcome]
TWO: dict[str, Any] = {"nworkers_per_group": 2, "nservers_per_group": 2}


def plan(places: str, cluster: dict[str, Any]) -> JobPlan:
    return JobPlan.make(placed(PLACES[places] if places else [{}] * 6, cluster))


def servers(made: JobPlan) -> dict[str, set[int]]:
    """Return the servers of each param or part."""
    found: dict[str, set[int]] = {name: set() for name in made.names}
    for piece in made.slices:
        found[made.names[piece.param]].add(piece.server)
    return found


@pytest.mark.parametrize("more", [{}, {"nworker_groups": 2, "nserver_groups": 2}], ids=["one group", "two groups"])
def test_parts_are_at_the_server_beside_their_worker(more: dict[str, Any]) -> None:
    made = plan("features", {**TWO, **more})
    parts = {name: box.part for name, box in zip(made.names, made.shards, strict=True) if box}
    assert len(parts) == 8
    assert servers(made) == {name: {part} for name, part in parts.items()}


def test_layers_are_at_the_server_beside_their_worker() -> None:
    assert servers(plan("pipeline", TWO)) == {"fc1.w": {0}, "fc1.b": {0}, "fc2.w": {1}, "fc2.b": {1}}


@pytest.mark.parametrize(
    "cluster",
    [
        {**TWO, "nworkers_per_procs": 2, "nservers_per_procs": 2},
        {**TWO, "server_worker_separate": True},
        {**TWO, "nworker_groups": 2},
        {"nworkers_per_group": 2, "nworkers_per_procs": 1},
    ],
    ids=["one process", "separate", "downpour", "one server"],
)
def test_where_none_is_nearer_they_are_dealt_by_load(cluster: dict[str, Any]) -> None:
    made = plan("pipeline", cluster)
    n = made.layout.cluster.nservers_per_group
    load = [sum(piece.size for piece in made.slices if piece.server == server) for server in range(n)]
    assert min(load) > 0.4 * sum(load) / n


def test_only_the_processes_of_units_depend_on_the_layout() -> None:
    job = placed(PLACES["pipeline"], TWO)
    planned = JobPlan.make(job)
    packed = JobPlan.make(job, layout=pack(planned.layout, 1))
    assert set(packed.layout.process_of.values()) == {0}
    assert replace(packed, layout=planned.layout) == planned


@pytest.mark.parametrize("cluster", [TWO, HOGWILD])
def test_what_all_workers_have_is_dealt_by_load(cluster: dict[str, Any]) -> None:
    made = plan("", cluster)
    n = made.layout.cluster.nservers_per_group
    load = [sum(piece.size for piece in made.slices if piece.server == server) for server in range(n)]
    assert min(load) > 0.4 * sum(load) / n


@pytest.mark.parametrize(
    ("places", "n_values"),
    mostly_long(
        [
            # each gradient to the one server that sums it, unless it is made beside it, and the value back
            ([{}] * 6, 2 * (785 * 32 + 33 * 10)),
            # what fc2 reads of fc1's 32 features, for all records, and a gradient for it; half of fc2's for the loss
            (PLACES["features"], 2 * (48 * 32 + 48 * 10 // 2)),
            # drop1's output and its gradient
            (PLACES["pipeline"], 2 * 48 * 32),
        ],
        3,
    ),
    ids=["records", "features", "pipeline"],
)
def test_two_processes_send_the_least(run_job: RunJob, places: list[dict[str, Any]], n_values: int) -> None:
    def sent(steps: int) -> int:
        reports = run_job(placed(places, TWO, train_steps=steps)).reports.values()
        assert {report["state"] for report in reports} == {"done"}
        # a process tells the same by each of its units, at its end
        return sum(max(r["bytes"]["sent"] for r in reports if r["unit"].endswith(f"-{i}")) for i in range(2))

    labels = 48 * 4 if places is PLACES["pipeline"] else 0
    assert sent(9) - sent(4) == 5 * (8 * n_values + labels)
