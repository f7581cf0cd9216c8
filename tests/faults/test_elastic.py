"""Jobs on fewer and on more processes than before, in the middle of a run: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster

from tests.faults.jobs import job, units_by_process
from tests.faults.machines import BARE, Machines, machines
from tests.faults.runs import Event, Run, after, at_step, check_params, check_same, end_job, killed

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_from_two_processes_to_one_and_back(bare: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("allreduce", 1_000_000)
    script = [
        (at_step(20), killed(units_by_process(made)[1][0])),
        (placed_on(1), lambda run: bare.grow(1)),
        (placed_on(2), lambda run: None),
        (after(20), end_job),
    ]
    run = Run(made, bare, tmp_path / "runs", *script)
    assert run.result.state == "stopped", run.result
    sizes = [n_processes(event) for event in run.named("placed")]
    assert (sizes[0], min(sizes), sizes[-1]) == (2, 1, 2)
    check_params(run.url, calm(job("allreduce", run.result.steps)))


@pytest.fixture
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("eight"), *BARE, n=8) as made:
        yield made


def n_processes(event: Event) -> int:
    return len(event["processes"])


def placed_on(n: int) -> Any:
    """Return the moment when the units are placed in so many processes."""
    return lambda run, event: event["event"] == "placed" and n_processes(event) == n


@pytest.mark.soak
def test_from_eight_processes_to_three_and_back(eight: Machines, tmp_path: Path, calm: Any) -> None:
    made = job("eight", 1_000_000)
    five = [units[0] for units in units_by_process(made)[3:]]
    script = [
        (at_step(20), killed(*five)),
        (placed_on(3), lambda run: eight.grow(5)),
        (placed_on(8), lambda run: None),
        (after(20), end_job),
    ]
    run = Run(made, eight, tmp_path / "runs", *script, limit_s=240)
    assert run.result.state == "stopped", run.result
    sizes = [n_processes(event) for event in run.named("placed")]
    assert (sizes[0], min(sizes), sizes[-1]) == (8, 3, 8)
    check_params(run.url, calm(job("eight", run.result.steps)))


@pytest.mark.soak
def test_a_cluster_that_adapts(tmp_path: Path, calm: Any) -> None:
    """Dask takes no worker away that has units."""
    made = job("allreduce", 1500, {"elastic": {"min_processes": 1, "max_processes": 2}})
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster:
        cluster.adapt(minimum=1, maximum=3, interval="500ms", wait_count=2)
        with Client(cluster, set_as_default=False) as client:
            there: Any = SimpleNamespace(client=client, kill_all=cluster.close)
            run = Run(made, there, tmp_path / "runs")
    check_same(run, calm(made), restarts=0)
