"""A number of records for each worker: the same as one worker with the sum of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.runtime.job.checks.job import check_job
from tests.runtime.end_to_end.test_clipping import updater
from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, SANDBLASTER_1, SANDBLASTER_2, Outcome, dense, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
THREE = {"nworkers_per_group": 3, "nservers_per_group": 3}
FIVE = {"nworkers_per_group": 5, "nservers_per_group": 5, "nworkers_per_procs": 5, "nservers_per_procs": 5}
CASES: dict[str, tuple[list[int], dict[str, Any]]] = {
    "allreduce": ([16, 32], ALLREDUCE),
    "sandblaster": ([40, 8], SANDBLASTER_1),
    "several servers": ([7, 41], SANDBLASTER_2),
    "three workers": ([8, 24, 16], THREE),
    "one number for five workers, in nearly equal parts": ([48], FIVE),
    "three workers in one process": ([1, 30, 17], {**THREE, "nworkers_per_procs": 3, "nservers_per_procs": 3}),
}
TEST = {"test_freq": 5, "test_steps": 2}


def job(sizes: list[int], test: list[int] | None = None, shuffle: str = "block", **changes: Any) -> JobConf:
    """Return a job with augmentation of a kind, so that random numbers follow the rows too."""
    conf = mlp().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    store = {**conf[0]["store_conf"], "shuffle": shuffle}
    conf[0] = {**conf[0], "include": ["train"], "store_conf": {**store, "batchsize": sizes}}
    conf.insert(1, {**conf[0], "include": ["test"], "store_conf": {**store, "batchsize": test or sizes}})
    return mlp(**{"neuralnet": {"layer": conf}, "precision": "float64", **changes})


@pytest.mark.parametrize("shuffle", circles(["block", "none", "full"]))
@pytest.mark.parametrize("case", circles(CASES, long=4))
def test_workers_agree_with_one(run_job: Run, run_once: Run, case: str, shuffle: str) -> None:
    sizes, cluster = CASES[case]
    one = run_once(job([48], shuffle=shuffle, **TEST))
    other = run_job(job(sizes, shuffle=shuffle, cluster=cluster, **TEST))
    agree(one, other)
    assert sum(report["samples"] for report in other.reports.values() if "samples" in report) == pytest.approx(480)


def agree(one: Outcome, other: Outcome) -> None:
    assert {report["state"] for report in other.reports.values()} == {"done"}, other.reports
    wanted, got = one.params(), other.params()
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=0, atol=1e-12 * np.abs(values).max())
    for phase in ("train", "test"):
        for figure in ("loss", "accuracy"):
            assert other.metric(figure, phase) == pytest.approx(one.metric(figure, phase), rel=1e-9)


@pytest.mark.long
def test_tests_share_their_batches_otherwise(run_job: Run) -> None:
    one = run_job(job([48], [30], **TEST))
    agree(one, run_job(job([16, 32], [10, 20], cluster=ALLREDUCE, **TEST)))
    agree(one, run_job(job([16, 32], [30], cluster=ALLREDUCE, **TEST)))
    agree(one, run_job(job([24, 24], [25, 5], cluster=ALLREDUCE, **TEST)))


def test_with_clipped_gradients(run_job: Run) -> None:
    one, two = (
        run_job(job(sizes, updater=updater(), cluster=cluster)) for sizes, cluster in (([48], {}), ([8, 40], ALLREDUCE))
    )
    for name, values in one.params().items():
        np.testing.assert_allclose(two.params()[name], values, rtol=0, atol=1e-12 * np.abs(values).max())


def test_groups_that_do_not_wait_for_each_other(run_job: Run) -> None:
    outcome = run_job(job([16, 32], cluster=FRAMEWORKS["hybrid"]))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports


def test_a_resumed_run_may_share_otherwise(run_job: Run) -> None:
    whole = run_job(job([16, 32], cluster=ALLREDUCE))
    half = run_job(job([16, 32], cluster=ALLREDUCE, train_steps=5))
    rest = run_job(job([40, 8], cluster=ALLREDUCE), resume=f"{half.url}/checkpoint/step-5")
    for name, values in whole.params().items():
        np.testing.assert_allclose(rest.params()[name], values, rtol=0, atol=1e-12)


ZERO = {"type": "Constant", "value": 0}
RBM: list[dict[str, Any]] = [
    {
        "name": "vis", "type": "RBMVis", "srclayers": ["data", "hid"], "rbm_conf": {"hdim": 12},
        "param": [{"name": "w", "init": {"type": "Gaussian", "std": 0.05}}, {"name": "b1", "init": ZERO}],
    },
    {
        "name": "hid", "type": "RBMHid", "srclayers": ["vis"], "rbm_conf": {"hdim": 12},
        "param": [{"name": "w_", "share_from": "w"}, {"name": "b2", "init": ZERO}],
    },
]  # fmt: skip


def test_contrastive_divergence(run_job: Run) -> None:
    def rbm(sizes: list[int], **changes: Any) -> JobConf:
        layers = job(sizes).model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"][:1]
        return mlp(neuralnet={"layer": [*layers, *RBM]}, train_one_batch={"alg": "CD"}, precision="float64", **changes)

    one, two = run_job(rbm([48])), run_job(rbm([12, 36], cluster=ALLREDUCE))
    for name, values in one.params().items():
        np.testing.assert_allclose(two.params()[name], values, rtol=0, atol=1e-12)
    assert two.metric("squared_error") == pytest.approx(one.metric("squared_error"), rel=1e-9)


def test_running_statistics_are_weighted(run_job: Run) -> None:
    def norm(sizes: list[int], **changes: Any) -> JobConf:
        layers = job(sizes).model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"][:1]
        layers += [dense("fc1", "data", 8), {"name": "bn", "type": "BatchNorm", "srclayers": ["fc1"]}]
        layers += [dense("fc2", "bn", 10), {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc2", "data"]}]
        return mlp(neuralnet={"layer": layers}, precision="float64", train_steps=1, **changes)

    one, two = run_job(norm([48])), run_job(norm([12, 36], cluster=ALLREDUCE))
    np.testing.assert_allclose(two.params()["bn.mean"], one.params()["bn.mean"], rtol=0, atol=1e-12)


def test_where_it_makes_no_sense_it_is_told() -> None:
    text = {"name": "more", "type": "Dummy", "dummy_conf": {"input": True, "shape": [48, 3]}}
    conf = job([16, 32], cluster=ALLREDUCE).model_dump(mode="json", exclude_unset=True)
    conf["neuralnet"]["layer"].append(text)
    with pytest.raises(ConfigError, match="this type gives all workers equal numbers of records"):
        check_job(JobConf.model_validate(conf))
    conf["neuralnet"]["layer"][0]["store_conf"]["batchsize"] = 47
    with pytest.raises(ConfigError, match=r"expected a multiple of the 2 workers of a group, got 47. Set 48"):
        check_job(JobConf.model_validate(conf))
    net = conf_of([16, 32])
    with pytest.raises(
        ConfigError, match=r"expected one number, for this layer has no partition_dim: 0, got \[16, 32\]"
    ):
        check_job(job([16, 32], cluster=ALLREDUCE, neuralnet={**net, "partition_dim": 1}))
    net["layer"][-2]["partition_dim"] = 1
    with pytest.raises(
        ConfigError, match=r"batchsize: a batchsize for each worker needs partition_dim: 0 in all layers"
    ):
        check_job(job([16, 32], cluster=ALLREDUCE, neuralnet=net))
    with pytest.raises(ConfigError, match=r"in the proportions 1 : 2, got \[24, 24\]"):
        check_job(job([16, 32], cluster=ALLREDUCE, neuralnet=two_readers([16, 32], [24, 24])))
    with pytest.raises(ValueError, match="expected one number, or one for each of 2 workers of a group, got 3"):
        job([16, 16, 16], cluster=ALLREDUCE)


def conf_of(sizes: list[int]) -> dict[str, Any]:
    made: dict[str, Any] = job(sizes).model_dump(mode="json", exclude_unset=True)["neuralnet"]
    return made


def two_readers(first: list[int], second: list[int]) -> dict[str, Any]:
    net = conf_of(first)
    other = {**net["layer"][0], "name": "other"}
    other["store_conf"] = {**other["store_conf"], "batchsize": second}
    return {**net, "layer": [*net["layer"], other]}
