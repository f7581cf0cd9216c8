"""Partitioned nets through workers, servers and sockets: the same run as the whole net's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find
from tests.runtime.harness import Outcome, mlp
from tests.selection import circles

RunJob = Callable[..., Outcome]

PLACES: dict[str, list[dict[str, Any]]] = {
    "features": [{"partition_dim": 1}] * 6,
    "hybrid": [{}, {"partition_dim": 1}, {"partition_dim": 1}, {"partition_dim": 1}, {}, {}],
    "whole": [{"partition_dim": -1}] * 6,
    "pipeline": [{"location": 0}, {"location": 0}, {"location": 0}, {"location": 1}, {"location": 1}, {"location": 1}],
    "elsewhere": [{"location": 1}, {}, {"partition_dim": 1}, {}, {"location": 1}, {"location": 0}],
}
ONE = {"nworkers_per_group": 1, "nservers_per_group": 1}


def placed(places: list[dict[str, Any]], cluster: dict[str, Any], **changes: Any) -> JobConf:
    job = mlp(precision="float64", cluster=cluster, **changes).model_dump(exclude_unset=True)
    layers = [{**layer, **where} for layer, where in zip(job["neuralnet"]["layer"], places, strict=True)]
    return JobConf.model_validate({**job, "neuralnet": {"layer": layers}})


def same(one: Outcome, other: Outcome) -> None:
    assert other.losses() == pytest.approx(one.losses(), rel=1e-9)
    params, wanted = other.params(), one.params()
    assert params.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(params[name], values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "processes"),
    circles(
        [
            ("elsewhere", 2), ("features", 1), ("hybrid", 2), ("pipeline", 2), ("whole", 1),
            ("elsewhere", 1), ("features", 2), ("hybrid", 1), ("pipeline", 1), ("whole", 2),
        ],
        long=4,
    ),
)  # fmt: skip
def test_a_partitioned_job_is_the_same_run(run_job: RunJob, run_once: RunJob, name: str, processes: int) -> None:
    cluster = {"nworkers_per_group": 2, "nservers_per_group": 2}
    cluster |= {"nworkers_per_procs": 2 // processes, "nservers_per_procs": 2 // processes}
    tests = {"test_freq": 5, "test_steps": 2}
    one = run_once(placed([{}] * 6, ONE, **tests))
    other = run_job(placed(PLACES[name], cluster, **tests))
    same(one, other)
    assert other.losses("test") == pytest.approx(one.losses("test"), rel=1e-9)


@pytest.mark.parametrize("n_workers", circles([3, 4], long=1))
def test_uneven_parts(run_job: RunJob, run_once: RunJob, n_workers: int) -> None:
    cluster = {"nworkers_per_group": n_workers, "nworkers_per_procs": 2 if n_workers == 4 else 3}
    same(run_once(placed([{}] * 6, ONE)), run_job(placed(PLACES["features"], cluster)))


@pytest.mark.parametrize(
    ("before", "after"), circles([("elsewhere", "features"), ("features", "whole"), ("", "elsewhere")], long=2)
)
def test_a_run_goes_on_with_another_partition(run_job: RunJob, run_once: RunJob, before: str, after: str) -> None:
    two = {"nworkers_per_group": 2, "nworkers_per_procs": 2}
    first = (PLACES[before], two) if before else ([{}] * 6, ONE)
    whole = run_once(placed([{}] * 6, ONE))
    half = run_job(placed(*first, train_steps=6))
    step = Checkpoint(find(half.url))
    assert set(step.params()) == set(whole.params())
    rest = run_job(placed(PLACES[after], two), resume=find(half.url))
    assert rest.losses() == pytest.approx({s: loss for s, loss in whole.losses().items() if s >= 6}, rel=1e-9)
    for name, values in whole.params().items():
        np.testing.assert_allclose(rest.params()[name], values, rtol=1e-9, atol=1e-12)


def test_values_of_a_checkpoint_are_the_same_bits_for_any_partition(run_job: RunJob) -> None:
    two = {"nworkers_per_group": 2, "nworkers_per_procs": 2}
    half = run_job(placed(PLACES["features"], two, train_steps=3))
    other = run_job(placed([{}] * 6, ONE, train_steps=0), init_from=[half.url])
    back = run_job(placed(PLACES["features"], two, train_steps=0), init_from=[other.url])
    for name, values in half.params().items():
        np.testing.assert_array_equal(other.params()[name], values)
        np.testing.assert_array_equal(back.params()[name], values)


@pytest.mark.long
def test_partitioned_groups_train_beside_each_other(run_job: RunJob) -> None:
    cluster = {"nworker_groups": 2, "nworkers_per_group": 2, "nworkers_per_procs": 2, "nservers_per_group": 2}
    found = run_job(placed(PLACES["hybrid"], {**cluster, "nservers_per_procs": 1}, train_steps=30))
    assert all(report["state"] == "done" for report in found.reports.values())
    losses = found.losses()
    assert losses[29] < losses[0]
