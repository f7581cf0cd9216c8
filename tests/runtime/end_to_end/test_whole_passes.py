"""Tests without a number of batches: every record of the store once, on any number of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError
from singa_dask.layers.softmax_loss import SoftmaxLoss
from singa_dask.runtime.job.checks.job import check_job
from tests.runtime.end_to_end.test_partition import PLACES
from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, SANDBLASTER_1, Outcome, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
THREE = {"nworkers_per_group": 3, "nservers_per_group": 3}
TEST = {"test_freq": 5}
RNG = np.random.default_rng(7)
PIXELS = RNG.integers(0, 256, (160, 28, 28), np.uint8)
LABELS = RNG.integers(0, 10, 160).astype(np.int32)


def job(
    folder: Path, n: int, batch: int | list[int] = 48, places: list[dict[str, Any]] | None = None, **changes: Any
) -> JobConf:
    """Return a job that tests on ``n`` records, of which the last is unlike the others."""
    url = str(folder / f"{n}.arrow")
    if not Path(url).exists():
        STORES.find("arrow").write(url, {"pixel": PIXELS[:n], "label": LABELS[:n]})
    layers = mlp().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    layers = [{**layer, **where} for layer, where in zip(layers, places or [{}] * len(layers), strict=True)]
    other = {**layers[0]["store_conf"], "path": url, "batchsize": batch, "random_skip": 90, "last_batch": "pad"}
    layers[:1] = [{**layers[0], "include": ["train"]}, {**layers[0], "include": ["test"], "store_conf": other}]
    return mlp(**{"neuralnet": {"layer": layers}, "precision": "float64", **TEST, **changes})


def measured(params: dict[str, np.ndarray], n: int) -> dict[str, float]:
    """Compute what the net of `job` has to measure of the first ``n`` records."""
    x = PIXELS[:n].reshape(n, -1) / 255.0
    x = 1.7159047 * np.tanh(0.66666667 * (x @ params["fc1.w"].reshape(32, -1).T + params["fc1.b"]))
    scores = x @ params["fc2.w"].reshape(10, -1).T + params["fc2.b"]
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return {"loss": -np.log(p[np.arange(n), LABELS[:n]]).mean(), "accuracy": (p.argmax(1) == LABELS[:n]).mean()}


def agrees(outcome: Outcome, n: int) -> None:
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    for name, value in measured(outcome.params(), n).items():
        assert outcome.metric(name, "test")[10] == pytest.approx(value, rel=1e-6)
    assert list(outcome.metric("loss", "test")) == [0, 5, 10]


@pytest.mark.parametrize(
    ("n", "batch", "cluster"),
    circles(
        [
            (143, 48, {}),
            (145, 48, ALLREDUCE),
            (143, 48, ALLREDUCE),
            (143, [16, 32], SANDBLASTER_1),
            (146, 48, THREE),
            (3, 48, THREE),
            (143, 48, FRAMEWORKS["hybrid"]),
            (144, 48, {}),
            (20, 48, {}),
        ],
        plain=2,
        long=7,
    ),
)
def test_each_record_counts_once(run_job: Run, tmp_path: Path, n: int, batch: Any, cluster: dict[str, Any]) -> None:
    agrees(run_job(job(tmp_path, n, batch, cluster=cluster)), n)


@pytest.mark.parametrize(
    ("cluster", "n"),
    circles([(THREE, 145), (ALLREDUCE, 143), ({}, 145), (THREE, 143), (ALLREDUCE, 145), ({}, 143)], long=2),
)
def test_what_a_layer_counts_itself_is_not_weighted(
    run_job: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any], n: int
) -> None:
    forward = SoftmaxLoss.forward

    def count(self: SoftmaxLoss, phase: Phase) -> None:
        forward(self, phase)
        odd = self.labels(1)[self.labels(1) % 2 == 1]
        if len(odd):
            self.add_metric("odd", float(odd.sum()), float(len(odd)))
        self.add_metric("mean", float(self.labels(1).mean()))

    monkeypatch.setattr(SoftmaxLoss, "forward", count)
    outcome = run_job(job(tmp_path, n, cluster=cluster))
    labels = LABELS[:n]
    assert outcome.metric("odd", "test")[10] == pytest.approx(labels[labels % 2 == 1].mean(), rel=1e-12)
    assert outcome.metric("mean", "test")[10] == pytest.approx(labels.mean(), rel=1e-12)


@pytest.mark.parametrize("n", circles([145, 143]))
@pytest.mark.parametrize("name", circles(["elsewhere", "features", "hybrid", "pipeline", "whole"], long=4))
def test_each_record_counts_once_in_a_partitioned_net(run_job: Run, tmp_path: Path, name: str, n: int) -> None:
    cluster = {"nworkers_per_group": 2, "nworkers_per_procs": 1 + (n == 143)}
    agrees(run_job(job(tmp_path, n, places=PLACES[name], cluster=cluster)), n)


@pytest.mark.parametrize(
    ("cluster", "steps"), circles([(ALLREDUCE, None), ({}, 2), ({}, None), (ALLREDUCE, 2)], long=1)
)
def test_each_pass_of_a_resumed_run_begins_at_the_first_record(
    run_job: Run, tmp_path: Path, cluster: dict[str, Any], steps: int | None
) -> None:
    half = job(tmp_path, 145, cluster=cluster, train_steps=7, test_steps=steps)
    resumed = run_job(job(tmp_path, 145, cluster=cluster), resume=f"{run_job(half).url}/checkpoint/step-7")
    for name, value in measured(resumed.params(), 145).items():
        assert resumed.metric(name, "test")[10] == pytest.approx(value, rel=1e-6)


def test_whoever_stops_follows_and_profiles_tests_sees_all_records(run_job: Run, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "cluster": ALLREDUCE,
        "debug": True,
        "profile": {"first_step": 3, "steps": 4},
        "early_stopping": {"metric": "test.loss", "patience": 1, "min_delta": 100.0},
        "checkpoint_freq": 5,
        "keep_checkpoints": {"best": 1, "metric": "test.accuracy"},
    }
    outcome = run_job(job(tmp_path, 145, **given))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    first = outcome.metric("loss", "test")[0]
    assert outcome.reports["worker-0-0"]["ended"].endswith(f"Best: {first:.6g} at step 0.")
    assert outcome.metric("loss", "test")[5] == pytest.approx(measured(outcome.params(), 145)["loss"], rel=1e-6)


def with_layer(made: JobConf, **layer: Any) -> JobConf:
    conf = made.model_dump(mode="json", exclude_unset=True)
    conf["neuralnet"]["layer"].append({"include": ["test"], **layer})
    return JobConf.model_validate(conf)


@pytest.mark.parametrize(
    ("n", "layer", "message"),
    [
        (1, {}, "1 record is too few for 2 workers of a group: each needs at least one"),
        (
            143,
            {"name": "more", "type": "Dummy", "dummy_conf": {"input": True, "shape": [48, 3]}},
            "layer 'more' reads no store",
        ),
        (
            143,
            {"name": "out", "type": "Sampling", "srclayers": ["fc2"]},
            "layer 'out' needs all batches in order and in one size",
        ),
        (
            143,
            {"name": "more", "type": "RecordInput", "store_conf": {"path": "144", "batchsize": 48, "shape": [28, 28]}},
            "different numbers of records: data 143, more 144",
        ),
        (
            143,
            {"name": "more", "type": "RecordInput", "store_conf": {"path": "144", "batchsize": 24, "shape": [28, 28]}},
            "batches of several sizes, data 48, more 24",
        ),
    ],
)
def test_what_needs_a_number_of_batches_is_refused(tmp_path: Path, n: int, layer: dict[str, Any], message: str) -> None:
    job(tmp_path, 144)
    made = job(tmp_path, n, cluster=ALLREDUCE)
    if "store_conf" in layer:
        store = layer["store_conf"]
        layer = {**layer, "store_conf": {**store, "path": str(tmp_path / f"{store['path']}.arrow")}}
    with pytest.raises(ConfigError, match=f"test_freq: .*{message}.*[Ss]et test_steps"):
        check_job(with_layer(made, **layer) if layer else made)
