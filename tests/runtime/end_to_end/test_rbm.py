"""RBMs and tied weights in whole jobs: workers of a group, layers that do not learn, averages and sums of gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.runtime.job.checks.job import check_job
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.training import BP
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, FRAMEWORKS, HOGWILD, HYBRID, SINGLE, Outcome, dense, mlp
from tests.selection import circles

HERE = {"nworkers_per_group": 2, "nworkers_per_procs": 2}
THREE = {"nworkers_per_group": 3, "nservers_per_group": 3}
GAUSSIAN = {"type": "Gaussian", "std": 0.05}
ZERO = {"type": "Constant", "value": 0}
Run = Callable[..., Outcome]


def records(**more: Any) -> dict[str, Any]:
    conf = {"path": "data/digits/test.arrow", "backend": "arrow", "shape": [28, 28], "batchsize": 48, "std_value": 255}
    return {"name": "data", "type": "RecordInput", "store_conf": {**conf, "shuffle": "block"}, **more}


def rbm(n: int, source: str, hdim: int, **hidden: Any) -> list[dict[str, Any]]:
    """Describe the layers of the n-th RBM of a stack, its params named as in SINGA's examples."""
    visible = [{"name": f"w{n}", "init": GAUSSIAN}, {"name": f"b{n}1", "init": ZERO}]
    shared = [{"name": f"w{n}_", "share_from": f"w{n}", **hidden.pop("weight", {})}, {"name": f"b{n}2", "init": ZERO}]
    vis, hid = f"vis{n}", f"hid{n}"
    return [
        {"name": vis, "type": "RBMVis", "srclayers": [source, hid], "rbm_conf": {"hdim": hdim}, "param": visible},
        {"name": hid, "type": "RBMHid", "srclayers": [vis], "rbm_conf": {"hdim": hdim, **hidden}, "param": shared},
    ]


def frozen(n: int, source: str, hdim: int) -> list[dict[str, Any]]:
    """Describe what the n-th RBM has become in those after it."""
    made = dense(f"fc{n}", source, hdim)
    made["param"] = [{"name": f"w{n}"}, {"name": f"b{n}2"}]
    return [made, {"name": f"sigmoid{n}", "type": "Sigmoid", "srclayers": [f"fc{n}"]}]


def sgd(rate: float, momentum: float = 0.0) -> dict[str, Any]:
    return {"type": "SGD", "momentum": momentum, "learning_rate": {"type": "Fixed", "base_lr": rate}}


def job(layers: list[dict[str, Any]], cd: dict[str, Any] | None = None, **changes: Any) -> JobConf:
    made = {"neuralnet": {"layer": layers}, "train_one_batch": {"alg": "CD", "cd_conf": cd or {}}}
    return mlp(**{**made, "updater": sgd(0.002, 0.8), **changes})


def tied(gradient: str, **changes: Any) -> JobConf:
    """Return an auto-encoder whose decoder uses the encoder's weights, in float64."""
    decoder = dense("decoder", "code", 784)
    decoder["innerproduct_conf"]["transpose"] = True
    decoder["param"][0] = {"name": "tied", "share_from": "encoder.w", "share_gradient": gradient}
    layers = [
        records(),
        dense("encoder", "data", 8),
        {"name": "code", "type": "Sigmoid", "srclayers": ["encoder"]},
        decoder,
        {"name": "loss", "type": "EuclideanLoss", "srclayers": ["decoder", "data"]},
    ]
    made = {"neuralnet": {"layer": layers}, "updater": sgd(0.01), "precision": "float64", "train_steps": 1}
    return mlp(**{**made, **changes})


def close(one: Outcome, other: Outcome, within: float = 1e-6) -> None:
    first, second = one.params(), other.params()
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_allclose(second[name], values, rtol=0, atol=within, err_msg=name)


CDS: list[dict[str, Any]] = [{"persistent": True}, {"cd_k": 3}, {}]
TRAINED = [*zip(CDS, (ALLREDUCE, HERE, THREE), strict=True)]
REST = [each for each in itertools.product(CDS, (ALLREDUCE, HERE, THREE)) if each not in TRAINED]


@pytest.mark.parametrize(("cd", "cluster"), circles([*TRAINED, *REST], long=2))
def test_workers_of_a_group_train_as_one(
    run_job: Run, run_once: Run, cd: dict[str, Any], cluster: dict[str, Any]
) -> None:
    layers = [records(), *rbm(1, "data", 20, gaussian=cd == {})]
    one = run_once(job(layers, cd, precision="float64"))
    several = run_job(job(layers, cd, precision="float64", cluster=cluster))
    assert {report["state"] for report in several.reports.values()} == {"done"}
    close(one, several, 1e-9)
    assert several.metric("squared_error") == pytest.approx(one.metric("squared_error"))


@pytest.mark.parametrize("cluster", circles([SINGLE, HYBRID, ALLREDUCE, DOWNPOUR, HOGWILD], long=2))
def test_an_rbm_on_features_that_do_not_learn(run_job: Run, run_once: Run, cluster: dict[str, Any]) -> None:
    first = run_once(job([records(), *rbm(1, "data", 20)]))
    layers = [records(), *frozen(1, "data", 20), *rbm(2, "sigmoid1", 10, gaussian=True)]
    second = run_job(job(layers, cluster=cluster), init_from=[first.url])
    assert {report["state"] for report in second.reports.values()} == {"done"}, second.reports
    before, after = first.params(), second.params()
    assert set(after) == {"w1", "b12", "w2", "b21", "b22"}
    for name in ("w1", "b12"):
        np.testing.assert_array_equal(after[name], before[name])
    assert after["w2"].std() != pytest.approx(0.05, rel=1e-3)
    again = run_job(job(layers, cluster=cluster, train_steps=12), resume=f"{second.url}/checkpoint/step-10")
    assert {report["state"] for report in again.reports.values()} == {"done"}, again.reports
    np.testing.assert_array_equal(again.params()["w1"], before["w1"])


def test_what_an_algorithm_cannot_train_is_told_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"these layers learn without a loss: vis1, hid1\. Set alg: CD\."):
        check_job(job([records(), *rbm(1, "data", 20)], train_one_batch={"alg": "BP"}))
    with pytest.raises(ConfigError, match="CD trains RBMVis and RBMHid"):
        check_job(mlp(train_one_batch={"alg": "CD"}))


def test_a_run_in_two_parts_is_one_run(run_job: Run, run_once: Run) -> None:
    layers = [records(), *rbm(1, "data", 20)]
    whole, half = run_once(job(layers)), run_job(job(layers, train_steps=5))
    rest = run_job(job(layers), resume=f"{half.url}/checkpoint/step-5")
    close(whole, rest, 0)


@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1))
def test_tests_tell_the_error(run_job: Run, cluster: dict[str, Any]) -> None:
    layers = [records(include=["train"]), records(include=["test", "val"]), *rbm(1, "data", 20)]
    changes = {"test_freq": 5, "test_steps": 2, "validate_freq": 5, "validate_steps": 1}
    outcome = run_job(job(layers, cluster=cluster, train_steps=30, updater=sgd(0.1, 0.5), **changes))
    for phase in ("train", "test", "validation"):
        errors = outcome.metric("squared_error", phase)
        assert errors[30 if phase == "test" else 25] < 0.7 * errors[0], phase


def test_weights_learn_from_half_their_gradient_unless_it_is_summed(run_job: Run) -> None:
    start = run_job(job([records(), *rbm(1, "data", 20)], train_steps=0)).params()["w1"]
    changes = []
    for weight in ({}, {"share_gradient": "sum"}):
        layers = [records(), *rbm(1, "data", 20, weight=weight)]
        changes.append(run_job(job(layers, train_steps=1, updater=sgd(0.1))).params()["w1"] - start)
    np.testing.assert_allclose(changes[1], 2 * changes[0], atol=1e-7)
    assert np.abs(changes[0]).max() > 1e-3


@pytest.mark.parametrize("where", ["owner", "sharer"])
def test_either_side_may_ask_for_the_sum(where: str) -> None:
    given = tied("sum").model_dump(mode="json", exclude_none=True)
    if where == "owner":
        encoder, decoder = given["neuralnet"]["layer"][1], given["neuralnet"]["layer"][3]
        encoder["param"][0]["share_gradient"] = decoder["param"][0].pop("share_gradient")
    plan = JobPlan.make(JobConf.model_validate({**given, "cluster": ALLREDUCE}))
    assert dict(zip(plan.names, plan.n_sharers, strict=True))["encoder.w"] == 4
    # the sum over the sharers, the mean over the two workers
    assert plan.gradient_divisors == (2, 2, 2)


def slopes(conf: JobConf, places: list[tuple[int, int]]) -> tuple[list[float], np.ndarray]:
    """Return the derivatives of half the first loss by some of the encoder's weights, and those weights."""
    net = build_nets(conf)[Phase.TRAIN]
    net.allocate()
    net.allocate_params()
    start = InitialState(conf)
    for owner in net.owners:
        owner.data[...] = start.values(owner)[0]
    weights, found = net.param("encoder.w").data, []
    try:
        BP(net).forward(Phase.TRAIN | Phase.FORWARD, lambda param: None)
        for place in places:
            kept, sides = weights[place], []
            for epsilon in (1e-4, -1e-4):
                weights[place] = kept + epsilon
                net.take_metrics()
                for layer in net.layers[1:]:  # on the same records
                    layer.forward(Phase.TRAIN | Phase.FORWARD)
                sides.append(net.take_metrics()["loss"][0] / 2)
            weights[place] = kept
            found.append((sides[0] - sides[1]) / 2e-4)
    finally:
        net.close()
    return found, weights.copy()


@pytest.mark.parametrize(
    ("gradient", "part", "cluster"),
    circles(
        [
            ("sum", 1.0, ALLREDUCE), ("average", 0.5, HERE), ("sum", 1.0, SINGLE),
            ("average", 0.5, ALLREDUCE), ("sum", 1.0, HERE), ("average", 0.5, SINGLE),
        ],
        long=2,
    ),
)  # fmt: skip
def test_tied_weights_by_central_differences(run_job: Run, gradient: str, part: float, cluster: dict[str, Any]) -> None:
    places = [(unit, pixel) for unit in (0, 3, 7) for pixel in (0, 210, 350, 437, 600)]
    wanted, before = slopes(tied(gradient), places)
    after = run_job(tied(gradient, cluster=cluster)).params()["encoder.w"]
    changed = [(before[place] - after[place]) / 0.01 for place in places]
    assert changed == pytest.approx([part * slope for slope in wanted], abs=1e-6)
    assert max(map(abs, wanted)) > 1e-2


@pytest.mark.parametrize(
    "name",
    circles(["allreduce", "hybrid", "sandblaster-2", "single", "sandblaster-1", "downpour", "hogwild"], long=2),
)
def test_tied_weights_learn_in_every_framework(run_job: Run, run_once: Run, name: str) -> None:
    outcome = run_job(tied("sum", cluster=FRAMEWORKS[name], train_steps=20))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}
    losses = outcome.losses()
    assert losses[19] < 0.8 * losses[0]
    if FRAMEWORKS[name].get("nworker_groups", 1) == 1:
        close(run_once(tied("sum", train_steps=20)), outcome, 1e-9)


def test_a_sum_changes_nothing_where_nothing_is_tied(run_job: Run) -> None:
    found = []
    for gradient in ("average", "sum"):
        layers = mlp().model_dump(mode="json", exclude_none=True)["neuralnet"]["layer"]
        for each in layers:
            for param in each["param"]:
                param["share_gradient"] = gradient
        found.append(run_job(mlp(neuralnet={"layer": layers}, cluster=ALLREDUCE)))
    close(*found, 0)
