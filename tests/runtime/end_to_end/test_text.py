"""Nets of text in whole jobs: worker groups, and runs in two parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.lookup import find
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, FRAMEWORKS, Outcome, dense, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
UNIFORM = {"type": "Uniform", "low": -0.3, "high": 0.3}


def job(cluster: Any = None, carry_state: bool = False, **changes: Any) -> JobConf:
    text = {
        "path": "tests/gold/data/small_text.txt",
        "vocab_path": "tests/gold/data/small_vocab.txt",
        "batchsize": 8,
        "unroll_len": 5,
    }
    every_step = {"srclayers": ["data"], "unroll_conn_type": ["OneToAll"]}
    hidden = {"dim_hidden": 12, "carry_state": carry_state}
    layers = [
        {"name": "data", "type": "CharRNN", "unroll_len": 1, "char_rnn_conf": text},
        {"name": "in", "type": "OneHot", "onehot_conf": {"vocab_size": 27}, **every_step},
        {"name": "label", "type": "RNNLabel", **every_step},
        {"name": "gru", "type": "GRU", "srclayers": ["in"], "gru_conf": hidden, "param": [{"init": UNIFORM}] * 9},
        dense("ip", "gru", 27),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["ip", "label"]},
    ]
    net = {"layer": layers, "unroll_len": 5}
    made = {"neuralnet": net, "train_one_batch": {"alg": "BPTT"}, "train_steps": 8, "cluster": cluster or {}}
    return mlp(**{**made, **changes})


@pytest.mark.parametrize("carry_state", circles([True, False], long=1))
def test_workers_of_a_group_read_what_one_worker_reads(run_job: Run, carry_state: bool) -> None:
    alone = run_job(job(carry_state=carry_state))
    shared = run_job(job(ALLREDUCE, carry_state))
    np.testing.assert_allclose(list(shared.losses().values()), list(alone.losses().values()), rtol=1e-5)
    for name, values in alone.params().items():
        np.testing.assert_allclose(shared.params()[name], values, atol=1e-5)


def placed(places: dict[str, dict[str, int]], cluster: Any = None, carry_state: bool = False, **more: Any) -> JobConf:
    """Return the job in float64, some of its layers partitioned, the others by features."""
    given = job(cluster, carry_state, precision="float64", **more).model_dump(exclude_unset=True)
    net = given["neuralnet"]
    net["layer"] = [{**layer, **places.get(layer["name"], {})} for layer in net["layer"]]
    return JobConf.model_validate({**given, "neuralnet": {**net, "partition_dim": 1}})


PLACES: dict[str, dict[str, dict[str, int]]] = {
    "features": {},
    "reader": {"data": {"location": 1}},
    "hybrid": {"data": {"partition_dim": -1}, "in": {"location": 1}, "ip": {"partition_dim": 0}},
}


@pytest.mark.parametrize("name", circles(["hybrid", "reader", "features"], long=2))
def test_a_partitioned_net_of_text_is_the_same_run(run_job: Run, run_once: Run, name: str) -> None:
    tests: dict[str, Any] = {"test_freq": 4, "test_steps": 2, "metrics": ["perplexity"]}
    alone = run_once(placed({}, **tests))
    shared = run_job(placed(PLACES[name], ALLREDUCE, **tests))
    # of all time steps of all records
    means = alone.losses("test")
    assert alone.metric("perplexity", "test") == pytest.approx({step: np.exp(means[step]) for step in means}, rel=1e-9)
    assert shared.metric("perplexity", "test") == pytest.approx(alone.metric("perplexity", "test"), rel=1e-9)
    for phase in ("train", "test"):
        assert shared.losses(phase) == pytest.approx(alone.losses(phase), rel=1e-9)
    for key, values in alone.params().items():
        np.testing.assert_allclose(shared.params()[key], values, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_a_partitioned_net_drops_states_where_another_worker_starts_the_text_anew(run_job: Run) -> None:
    places = {"data": {"location": 1}, "gru": {"partition_dim": 0}}
    alone = run_job(placed(places | {"data": {}}, carry_state=True, train_steps=160))
    shared = run_job(placed(places, ALLREDUCE, carry_state=True, train_steps=160))
    assert shared.losses() == pytest.approx(alone.losses(), rel=1e-8)


def test_a_run_in_two_parts_is_one_run(run_job: Run) -> None:
    whole = run_job(job())
    half = run_job(job(train_steps=3))
    rest = run_job(job(), resume=find(half.url))
    assert {**half.losses(), **rest.losses()} == whole.losses()
    for name, values in whole.params().items():
        np.testing.assert_array_equal(rest.params()[name], values)


def test_groups_go_on_where_they_stood(run_job: Run) -> None:
    half = run_job(job(DOWNPOUR, train_steps=3))
    rest = run_job(job(DOWNPOUR), resume=find(half.url))
    assert max(rest.losses(group=1)) == 7


@pytest.mark.parametrize(
    "name",
    circles(["sandblaster-2", "hybrid", "downpour", "single", "allreduce", "sandblaster-1", "hogwild"], long=2),
)
def test_text_is_learnt_in_every_framework(run_job: Run, name: str) -> None:
    outcome = run_job(job(FRAMEWORKS[name], train_steps=12))
    losses = list(outcome.losses().values())
    assert losses[-1] < losses[0]


def test_tests_read_on(run_job: Run) -> None:
    outcome = run_job(job(test_freq=4, test_steps=2))
    assert sorted(outcome.losses("test")) == [0, 4, 8]
