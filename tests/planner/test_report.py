"""Plans as values, as job files and as pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from singa_dask.api import REGISTRIES
from singa_dask.conf import ClusterConf, loads
from singa_dask.errors import ConfigError
from singa_dask.planner.report import Plan
from singa_dask.planner.search import search
from singa_dask.runtime.planning.layout import plan_processes
from tests.cli.conftest import TINY
from tests.planner.fakes import FakeCosts, hosts, simulate


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Plans for two hosts, of which each costs 3.6 an hour."""
    file = loads(TINY, "tiny.yaml", registries=REGISTRIES)
    costs = FakeCosts(1e-7)
    candidates = search(file.job, hosts(2), lambda job: costs, simulate=simulate)
    return Plan(file, candidates, "2 hosts with 4 cores", 3.6)


@pytest.mark.long
def test_each_plan_can_be_written_as_a_job(plan: Plan) -> None:
    for each in plan.candidates:
        job = loads(plan.to_yaml(each), "planned.yaml", registries=REGISTRIES).job
        assert job.cluster == each.job.cluster
        assert job.threads == each.job.threads
        assert [layer.partition_dim for layer in job.neuralnet.layer] == [
            layer.partition_dim for layer in each.job.neuralnet.layer
        ]
        unchanged = {"cluster": plan.file.job.cluster, "threads": 0}
        assert job.model_copy(update=unchanged).model_dump() == plan.file.job.model_dump()


def test_values_have_the_cost_of_a_million_samples(plan: Plan) -> None:
    for values, each in zip(plan.values(), plan.candidates, strict=True):
        hours = 1e6 / each.prediction.samples_per_s / 3600
        assert values["cost"] == pytest.approx(3.6 * values["hosts"] * hours)
        assert values["processes"] == len(each.layout.processes)
    frame = plan.to_frame()
    assert list(frame["step_ms"]) == [1e3 * each.prediction.step_s for each in plan.candidates]


def test_tables_have_ten_of_each_kind(plan: Plan) -> None:
    assert len(plan.rows("synchronous")) == min(10, sum(each.is_synchronous for each in plan.candidates))
    assert plan.rows("asynchronous", 1)[0]["topology"].startswith(("2 x", "4 x"))
    assert plan.rows("synchronous")[0]["topology"] == plan.best.topology
    assert plan.best.topology in plan.reason()


@pytest.mark.long
def test_a_page_stands_alone(plan: Plan) -> None:
    page = plan.page()
    assert page.count("<table>") == 2
    assert "<svg" in page
    assert "src=" not in page
    for title in ("Synchronous", "Asynchronous", "cost", "2 hosts with 4 cores"):
        assert title in page


def test_a_trace_that_was_not_asked_for_is_told(plan: Plan) -> None:
    with pytest.raises(ConfigError, match="not requested"):
        plan.trace()
    many = loads(TINY, "tiny.yaml", registries=REGISTRIES).job
    many = many.model_copy(update={"cluster": ClusterConf(nworkers_per_group=65)})
    best = replace(plan.best, layout=plan_processes(many.cluster))
    with pytest.raises(ConfigError, match="it has 65 processes, and only steps of at most 64"):
        replace(plan, candidates=[best]).trace()
