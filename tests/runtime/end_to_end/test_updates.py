"""Gradients that are clipped by their norm, or added up over batches: the same on any synchronous topology."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.comm import stub
from singa_dask.comm.backlog import Backlog
from singa_dask.conf import JobConf
from singa_dask.errors import CheckpointError, ConfigError
from singa_dask.exports.exporting import export_job
from singa_dask.runtime.checkpoints import initial_values, lookup
from singa_dask.runtime.planning.job_plan import JobPlan
from tests.runtime.end_to_end.test_clipping import CLUSTERS, PLACES, agree, job
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, SINGLE, Outcome
from tests.selection import circles

Run = Callable[..., Outcome]
NORM = 0.05
RATE = {"type": "Fixed", "base_lr": 0.5}
ALL = {**CLUSTERS, "tree": {"nworkers_per_group": 6, "nservers_per_group": 2}}


def updater(**more: Any) -> dict[str, Any]:
    return {"type": "SGD", "momentum": 0.5, "weight_decay": 1e-3, "learning_rate": RATE, **more}


def exact(places: dict[str, dict[str, Any]] | None = None, **more: Any) -> JobConf:
    return job(places, precision="float64", **more)


def test_the_norm_is_that_of_all_params(run_once: Run) -> None:
    plain = {"type": "SGD", "learning_rate": RATE}
    ends = [run_once(exact(train_steps=n, updater=plain)).params() for n in (0, 1)]
    (clipped,) = [run_once(exact(train_steps=1, updater={**plain, "clip_norm": NORM})).params()]
    gradients = {name: (ends[0][name] - ends[1][name]) / 0.5 for name in clipped}
    norm = np.sqrt(sum(np.sum(each**2) for each in gradients.values()))
    assert norm > 2 * NORM
    for name, gradient in gradients.items():
        wanted = ends[0][name] - 0.5 * gradient * NORM / (norm + 1e-6)
        np.testing.assert_allclose(clipped[name], wanted, rtol=0, atol=1e-12)


NORMED = [("three workers", 1), ("several servers", 4), ("tree", 1), ("tree", 4), ("allreduce", 4), ("sandblaster", 1)]
REST = [each for each in itertools.product(ALL, (1, 4)) if each not in NORMED]


@pytest.mark.parametrize(("cluster", "n_batches"), circles([*NORMED, *REST], long=5))
def test_clipped_by_the_norm(run_job: Run, run_once: Run, cluster: str, n_batches: int) -> None:
    rule = updater(clip_norm=NORM, accumulate=n_batches)
    agree(run_once(exact(updater=rule)), run_job(exact(updater=rule, cluster=ALL[cluster])), 1e-11)


@pytest.mark.parametrize("place", circles(PLACES, long=2))
def test_clipped_by_the_norm_in_partitioned_nets(run_job: Run, run_once: Run, place: str) -> None:
    rule = updater(clip_norm=NORM)
    parts = exact({"fc1": PLACES[place]}, updater=rule, cluster=CLUSTERS["several servers"])
    agree(run_once(exact(updater=rule)), run_job(parts), 1e-11)


def test_each_of_several_worker_groups_is_clipped(run_job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # a server waits for the last gradient of a step, whatever memory the first ones take
    monkeypatch.setattr(stub, "Backlog", partial(Backlog, limit=1))
    outcome = run_job(exact(updater=updater(clip_norm=NORM), cluster=DOWNPOUR))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports


def batched(size: int, **more: Any) -> JobConf:
    """Return a job with another batch size."""
    layers = exact().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    layers[0]["store_conf"]["batchsize"] = size
    return exact(neuralnet={"layer": layers}, **more)


@pytest.mark.parametrize(
    ("kind", "cluster"), circles([("SGD", ALLREDUCE), ("Adam", SINGLE), ("Adam", ALLREDUCE), ("SGD", SINGLE)], long=1)
)
def test_accumulated_batches_are_one_large_batch(
    run_job: Run, run_once: Run, kind: str, cluster: dict[str, Any]
) -> None:
    rule = {"type": kind, "learning_rate": {"type": "Fixed", "base_lr": 0.01}}
    large = run_once(batched(96, updater=rule, train_steps=5))
    small = batched(24, updater={**rule, "accumulate": 4}, train_steps=21, cluster=cluster)
    agree(large, run_job(small), 1e-10)


def test_accumulation_goes_on_from_a_checkpoint(run_job: Run) -> None:
    rule = updater(clip_norm=NORM, accumulate=4)
    whole = run_job(exact(updater=rule, train_steps=10))
    begun = run_job(exact(updater=rule, train_steps=6))
    rest = run_job(exact(updater=rule, train_steps=10), resume=lookup.find(begun.url))
    for name, values in whole.params().items():
        np.testing.assert_array_equal(rest.params()[name], values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updater": updater(accumulate=2), "cluster": DOWNPOUR}, r"(?s)updater.accumulate\s+the gradients of 2"),
        (
            {"updater": updater(clip_norm=1.0), "cluster": {**DOWNPOUR, "nservers_per_group": 2}},
            r"(?s)updater.clip_norm\s+with 2 worker groups, one server",
        ),
        (
            {"updater": updater(clip_norm=1.0), "train_one_batch": {"alg": "CD"}},
            r"(?s)updater.clip_norm\s+CD may not compute the gradients",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exact(**changes)


def test_factors_of_params_by_pattern(run_job: Run, run_once: Run) -> None:
    scales = [{"param": "*.b", "lr_scale": 0.25, "wd_scale": 0.0}, {"param": "fc1.*", "lr_scale": 2.0}]
    layers = exact().model_dump(mode="json", exclude_unset=True)["neuralnet"]["layer"]
    for layer in layers:
        for param in layer.get("param", []):
            param["lr_scale"] = (0.25 if param["name"].endswith("b") else 1) * (2 if layer["name"] == "fc1" else 1)
            param["wd_scale"] = 0.0 if param["name"].endswith("b") else 1.0
    one = run_once(exact(updater=updater(), neuralnet={"layer": layers}))
    agree(one, run_job(exact(updater=updater(scales=scales), cluster=ALLREDUCE)), 1e-12)


def test_a_pattern_that_fits_no_param() -> None:
    conf = exact(updater=updater(scales=[{"param": "*.bias", "wd_scale": 0.0}]))
    with pytest.raises(
        ConfigError, match=r"updater.scales\[0\].param: no trained param matches '\*.bias'. Params: fc1.w"
    ):
        JobPlan.make(conf)


@pytest.mark.parametrize("cluster", circles([SINGLE, *CLUSTERS.values()], long=3))
def test_moving_averages(run_job: Run, cluster: dict[str, Any]) -> None:
    rule = updater(ema_decay=0.75)
    outcome = run_job(exact(updater=rule, train_steps=6, cluster=cluster, checkpoint_freq=1))
    steps = lookup.find_steps(outcome.url)
    values = {step: lookup.load_values(url) for step, url in steps.items()}
    wanted = {name: stored.values for name, stored in values[1].items()}
    known = lookup.load_values(steps[1], averaged=True)
    first = {name: (known[name].values - 0.25 * each) / 0.75 for name, each in wanted.items()}
    assert all(np.abs(first[f"{name}.b"]).max() < 1e-15 for name in ("fc1", "fc2"))  # the initial values
    for step in range(2, 7):
        known = lookup.load_values(steps[step], averaged=True)
        before = lookup.load_values(steps[step - 1], averaged=True)
        for name, stored in values[step].items():
            average = 0.75 * before[name].values + 0.25 * stored.values
            np.testing.assert_allclose(known[name].values, average, rtol=0, atol=1e-15)
            assert known[name].version == step


def test_moving_averages_go_on_from_a_checkpoint(run_job: Run) -> None:
    rule = updater(ema_decay=0.75, accumulate=2)
    whole = run_job(exact(updater=rule, train_steps=9))
    begun = run_job(exact(updater=rule, train_steps=5))
    rest = run_job(exact(updater=rule, train_steps=9), resume=lookup.find(begun.url))
    wanted, got = (lookup.load_values(each.url, averaged=True) for each in (whole, rest))
    assert np.abs(wanted["fc1.w"].values - whole.params()["fc1.w"]).max() > 1e-4
    for name, stored in wanted.items():
        np.testing.assert_array_equal(got[name].values, stored.values)


def test_inference_takes_the_averages(run_job: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = exact(updater=updater(ema_decay=0.75), train_steps=3)
    url = run_job(conf).url
    averages, values = lookup.load_values(url, averaged=True), lookup.load_values(url)
    weights = str(tmp_path / "weights.npz")
    export_job(conf, url, weights)
    x = np.random.default_rng(0).uniform(size=(5, 784)).astype(np.float32)
    with np.load(weights) as exported:
        hidden = 1.7159047 * np.tanh(0.66666667 * (x @ exported["fc1.w"].T + exported["fc1.b"]))
        scores = hidden @ exported["fc2.w"].T + exported["fc2.b"]
        assert exported["fc1.w"].tobytes() == averages["fc1.w"].values.tobytes()
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    job_file = tmp_path / "job.yaml"
    job_file.write_text(conf.model_dump_json(exclude_unset=True))  # JSON is YAML
    found = sd.load_model(url, job=job_file).predict_proba(255 * x)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    initial = initial_values.InitialValues(conf, [url], averaged=True)
    for name, stored in averages.items():
        np.testing.assert_array_equal(initial.get(name, stored.values.shape)[0], stored.values)
    plain = initial_values.InitialValues(exact(updater=updater()), [url], averaged=True)
    np.testing.assert_array_equal(plain.get("fc1.w", values["fc1.w"].values.shape)[0], values["fc1.w"].values)
    assert [each for each in caplog.messages if each.startswith(url) and "not their moving averages" in each]
    other = run_job(exact(updater=updater(), train_steps=1)).url
    with pytest.raises(CheckpointError, match="no moving averages of params"):
        lookup.load_values(other, averaged=True)
