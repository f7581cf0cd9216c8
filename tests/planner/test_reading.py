"""Records that are read beside the steps: what they cost, and when steps wait for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from singa_dask.conf import JobConf
from singa_dask.planner import reading
from singa_dask.planner.many import Many
from singa_dask.planner.model import Cluster, Machine, Prediction
from singa_dask.planner.reading import measure_reading
from singa_dask.planner.simulation import simulate
from singa_dask.planner.what_if import imagined_cluster, read_what_if
from singa_dask.runtime.planning.job_plan import JobPlan
from tests.planner.clusters import FREE, INSTANT, FixedCosts, cluster_of
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, mlp
from tests.selection import mostly_long

LAYERS_S = 11e-3  # of a step of `mlp`: 6 layers forward, 5 backward
N_ROWS = 48


def predict(job: JobConf, cluster: Cluster, costs: FixedCosts) -> Prediction:
    return simulate(job, JobPlan.make(job), cluster, costs, threads=1)


def test_a_step_hides_what_is_read_in_less_time() -> None:
    costs = replace(FREE, a_layer_s=1e-3, record_s=10e-3 / N_ROWS)
    found = predict(mlp(), cluster_of(1, link=INSTANT), costs)
    assert found.step_s == pytest.approx(LAYERS_S)
    assert found.waits["records"] == pytest.approx(0, abs=1e-9)
    assert found.busy["reading"] == pytest.approx(10 / 11, rel=0.1)


def test_a_step_takes_as_long_as_the_reading_of_its_records() -> None:
    costs = replace(FREE, a_layer_s=1e-3, record_s=30e-3 / N_ROWS)
    found = predict(mlp(), cluster_of(1, link=INSTANT), costs)
    assert found.step_s == pytest.approx(30e-3)
    assert found.waits["records"] == pytest.approx(30e-3 - LAYERS_S)
    assert found.busy["reading"] == pytest.approx(1)


def test_readers_take_cores_from_workers() -> None:
    costs = replace(FREE, a_layer_s=1e-3, record_s=10e-3 / N_ROWS)
    found = predict(mlp(), cluster_of(1, n_cores=1, link=INSTANT), costs)
    assert found.step_s == pytest.approx(LAYERS_S + 10e-3)


@pytest.mark.parametrize(("n_hosts", "steps_of_bytes"), [(1, 2), (2, 1)])
def test_workers_of_a_host_share_what_it_reads(n_hosts: int, steps_of_bytes: int) -> None:
    hosts = tuple(Machine(str(i), 8) for i in range(n_hosts))
    cluster = Cluster(hosts, (0, n_hosts - 1, 0), INSTANT, INSTANT, read_bytes_per_s=1e6)
    costs = replace(FREE, a_layer_s=1e-3, record_bytes=1000)
    found = predict(mlp(cluster=DOWNPOUR), cluster, costs)
    assert found.step_s == pytest.approx(steps_of_bytes * N_ROWS * 1000 / 1e6)


@pytest.mark.parametrize("record_s", mostly_long([1e-2, 1e-5], 2))
def test_all_processes_at_once_read_as_one_by_one(record_s: float) -> None:
    job, costs = mlp(cluster={**ALLREDUCE, "nworkers_per_group": 12, "nservers_per_group": 12}), FixedCosts()
    costs = replace(costs, record_s=record_s, record_bytes=1000)
    cluster = replace(cluster_of(12), read_bytes_per_s=1e6)
    at_once = Many(job, JobPlan.make(job), cluster, costs, threads=1).run(8)
    one_by_one = predict(job, cluster, costs)
    assert at_once.step_s == pytest.approx(one_by_one.step_s, rel=0.1)
    assert at_once.waits["records"] == pytest.approx(one_by_one.waits["records"], rel=0.2, abs=1e-3)


def job_of(path: Path, memory_mb: int, **keys: object) -> JobConf:
    """Return a job on lines of 16 numbers and a label."""
    raw = mlp().model_dump(mode="json", exclude_unset=True)
    store = {"path": str(path), "batchsize": 48, "shape": 16, "memory_mb": memory_mb, **keys}
    raw["neuralnet"]["layer"][0] = {"name": "data", "type": "CSVInput", "store_conf": store}
    return JobConf.model_validate(raw)


@pytest.mark.long
def test_records_are_read_again_if_memory_has_no_room_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WARM_UP_S", 600.0)  # a whole pass, on a slow machine too
    path, line = tmp_path / "records.csv", "7" + 16 * ",123" + "\n"
    path.write_text(300_000 * line)
    assert measure_reading(job_of(path, 64))[1] == 0
    cpu_s, n_bytes = measure_reading(job_of(path, 12))
    assert cpu_s > 0
    assert len(line) / 2 < n_bytes < 1.5 * len(line)


def test_records_that_are_standardised_cost_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their mean and deviation are known only when the job trains."""
    monkeypatch.setattr(reading, "WARM_UP_S", 0.0)
    monkeypatch.setattr(reading, "SECONDS", 0.01)
    path = tmp_path / "records.csv"
    path.write_text(500 * ("7" + 16 * ",123" + "\n"))
    assert measure_reading(job_of(path, 64, standardise=True))[0] > 0


def test_records_that_are_not_here_count_as_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert measure_reading(job_of(tmp_path / "absent.csv", 64)) == (0, 0)
    assert measure_reading(job_of(tmp_path / "absent.csv", 64), warns=False) == (0, 0)
    assert caplog.text.count("the plan does not count reading its records") == 1


def test_what_a_cluster_that_might_be_reads_and_how_long_its_processes_live() -> None:
    values = read_what_if("hosts=2,cores=1,link=10Gbit,read=200MB,life=10000h")
    assert values["life"] == 10_000 * 3600
    assert imagined_cluster(values, INSTANT, INSTANT).read_bytes_per_s == 200e6
    assert imagined_cluster(read_what_if(""), INSTANT, INSTANT).read_bytes_per_s == 0
