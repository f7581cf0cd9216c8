"""Clipped gradients: a synchronous job gives the same params for any number of workers, servers and partitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from tests.runtime.harness import ALLREDUCE, SANDBLASTER_1, SANDBLASTER_2, SINGLE, Outcome, dense, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
BOUND = 2e-3
WITHIN = {"float32": 1e-6, "float64": 1e-12}
TOGETHER = {"nworkers_per_procs": 3, "nservers_per_procs": 4}
CLUSTERS: dict[str, dict[str, Any]] = {
    "allreduce": ALLREDUCE,
    "sandblaster": SANDBLASTER_1,
    "several servers": SANDBLASTER_2,
    "three workers": {"nworkers_per_group": 3, "nservers_per_group": 3},
    "three workers in one process": {"nworkers_per_group": 3, "nservers_per_group": 4, **TOGETHER},
}
PLACES: dict[str, dict[str, Any]] = {
    "features": {"partition_dim": 1},
    "whole": {"partition_dim": -1},
    "location": {"location": 1},
}


def updater(bound: float = BOUND, **more: Any) -> dict[str, Any]:
    """Return SGD with a bound that most gradients of the first steps are beyond."""
    rate = {"type": "Fixed", "base_lr": 0.5}
    return {
        "type": "SGD", "momentum": 0.5, "weight_decay": 1e-3, "learning_rate": rate,
        "clip_low": -bound, "clip_high": bound, **more,
    }  # fmt: skip


def job(places: dict[str, dict[str, Any]] | None = None, **changes: Any) -> JobConf:
    """Return a perceptron; ``places`` adds to its layers."""
    layers: list[dict[str, Any]] = [
        {
            "name": "data",
            "type": "RecordInput",
            "store_conf": {"path": "data/digits/test.arrow", "shape": [784], "batchsize": 48, "std_value": 255},
        },
        dense("fc1", "data", 12),
        {"name": "act", "type": "STanh", "srclayers": ["fc1"]},
        dense("fc2", "act", 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc2", "data"]},
    ]
    layers = [{**layer, **(places or {}).get(layer["name"], {})} for layer in layers]
    return mlp(**{"neuralnet": {"layer": layers}, "train_steps": 20, "updater": updater(), **changes})


def tied(summed: bool, **changes: Any) -> JobConf:
    """Return an auto-encoder whose two weights are one."""
    layers = job().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"][:3]
    layers += [
        dense("fc2", "act", 784),
        {"name": "loss", "type": "EuclideanLoss", "srclayers": ["fc2", "data"]},
    ]
    layers[3]["innerproduct_conf"]["transpose"] = True
    layers[3]["param"][0] = {"name": "fc2.w", "share_from": "fc1.w", "share_gradient": "sum" if summed else "average"}
    slow = updater(learning_rate={"type": "Fixed", "base_lr": 0.1})
    return job(neuralnet={"layer": layers}, updater=slow, **changes)


def agree(one: Outcome, other: Outcome, within: float) -> None:
    assert {report["state"] for report in other.reports.values()} == {"done"}, other.reports
    wanted, got = one.params(), other.params()
    assert wanted.keys() == got.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=0, atol=within * max(np.abs(values).max(), 1), err_msg=name)


def test_the_bounds_matter(run_once: Run) -> None:
    clipped, free = (run_once(job(updater=updater(bound))).params() for bound in (BOUND, 0.0))
    assert np.abs(clipped["fc1.w"] - free["fc1.w"]).max() > 0.01


AGREEING = [
    ("allreduce", "float64"), ("several servers", "float32"), ("three workers", "float64"),
    ("three workers in one process", "float64"), ("sandblaster", "float32"),
]  # fmt: skip
REST = [each for each in itertools.product(CLUSTERS, WITHIN) if each not in AGREEING]


@pytest.mark.parametrize(("cluster", "precision"), circles([*AGREEING, *REST], long=4))
def test_workers_agree_with_one(run_job: Run, run_once: Run, cluster: str, precision: str) -> None:
    one = run_once(job(cluster=SINGLE, precision=precision))
    agree(one, run_job(job(cluster=CLUSTERS[cluster], precision=precision)), WITHIN[precision])


@pytest.mark.parametrize("summed", circles([True, False], long=1), ids=["sum", "average"])
@pytest.mark.parametrize("cluster", circles(["allreduce", "several servers", "three workers"]))
def test_tied_params(run_job: Run, run_once: Run, cluster: str, summed: bool) -> None:
    one = run_once(tied(summed, precision="float64"))
    agree(one, run_job(tied(summed, precision="float64", cluster=CLUSTERS[cluster])), WITHIN["float64"])


@pytest.mark.parametrize("place", circles(PLACES, long=2))
@pytest.mark.parametrize("cluster", circles(["allreduce", "several servers"]))
def test_partitioned_nets(run_job: Run, run_once: Run, cluster: str, place: str) -> None:
    one = run_once(job(cluster=SINGLE, precision="float64"))
    parts = job({"fc1": PLACES[place]}, cluster=CLUSTERS[cluster], precision="float64")
    agree(one, run_job(parts), WITHIN["float64"])


def test_a_user_may_say_another_rule(run_job: Run, run_once: Run) -> None:
    rule = updater(type="RMSProp", rmsprop_conf={"rho": 0.9}, delta=1e-4, learning_rate={"type": "Fixed"})
    one = run_once(job(updater=rule, precision="float64"))
    agree(one, run_job(job(updater=rule, precision="float64", cluster=ALLREDUCE)), WITHIN["float64"])
