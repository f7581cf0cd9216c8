"""Statistics that run along with training: kept by servers, averaged over workers, resumed, used by test nets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.stores import open_store
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.contracts.records import written
from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, SANDBLASTER_1, SINGLE, Outcome, dense, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
N_ROWS, N_STEPS = 48, 6
STORE = {
    "path": "data/digits/test.arrow",
    "backend": "arrow",
    "shape": [28, 28],
    "batchsize": N_ROWS,
    "std_value": 255,
}
# A statistic is not trained: nothing of this may touch it.
UPDATER = {
    "type": "SGD", "momentum": 0.9, "weight_decay": 0.5, "clip_low": -1e-3, "clip_high": 1e-3,
    "learning_rate": {"type": "Fixed", "base_lr": 0.0},
}  # fmt: skip
FIRST = {"bn.scale": 1, "bn.shift": 0, "bn.mean": 0, "bn.variance": 1}


def net(store: dict[str, Any] | None = None, **changes: Any) -> JobConf:
    """Return a job whose weights stay as they are, unless it gets another updater."""
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": {**STORE, **(store or {})}},
        dense("fc1", "data", 8),
        {"name": "bn", "type": "BatchNorm", "srclayers": ["fc1"]},
        {"name": "act", "type": "STanh", "srclayers": ["bn"]},
        dense("fc2", "act", 10),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc2", "data"]},
    ]
    return mlp(**{"neuralnet": {"layer": layers}, "train_steps": N_STEPS, "updater": UPDATER, **changes})


def records() -> tuple[Any, Any]:
    """Return the rows and labels of the first batches, (steps, rows of a batch, ...)."""
    with open_store(STORE["path"], "arrow") as store:
        blocks = [store.read_block(block.id) for block in store.blocks]
    rows = np.concatenate([block.get("pixel", block.get("data")) for block in blocks])[: N_ROWS * N_STEPS]
    labels = np.concatenate([block["label"] for block in blocks])[: N_ROWS * N_STEPS]
    return rows.reshape(N_STEPS, N_ROWS, -1) / 255.0, labels.reshape(N_STEPS, N_ROWS)


def hidden(params: dict[str, Any], rows: Any) -> Any:
    return rows @ params["fc1.w"].astype(np.float64).T + params["fc1.b"]


@pytest.mark.parametrize(
    ("cluster", "n_workers"),
    circles([(ALLREDUCE, 2), (SANDBLASTER_1, 2), (SINGLE, 1)], long=2),
    ids=["allreduce", "sandblaster", "single"],
)
def test_the_workers_of_a_group_keep_the_average_of_their_batches(
    run_job: Run, cluster: dict[str, Any], n_workers: int
) -> None:
    outcome = run_job(net(cluster=cluster, checkpoint_freq=1))
    params = outcome.params()
    assert {name: params[name].shape for name in FIRST} == dict.fromkeys(FIRST, (8,))
    mean, variance = np.zeros(8), np.ones(8)
    for rows in records()[0]:
        parts = hidden(params, rows).reshape(n_workers, -1, 8)
        mean = 0.9 * mean + 0.1 * parts.mean(axis=1).mean(axis=0)
        variance = 0.9 * variance + 0.1 * parts.var(axis=1).mean(axis=0)
    np.testing.assert_allclose(params["bn.mean"], mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(params["bn.variance"], variance, rtol=1e-5)
    for name in ("bn.scale", "bn.shift"):
        np.testing.assert_array_equal(params[name], np.full(8, FIRST[name]))


def test_first_values_without_an_init(run_job: Run) -> None:
    outcome = run_job(net(train_steps=0))
    for name, value in FIRST.items():
        np.testing.assert_array_equal(outcome.params()[name], np.full(8, value, np.float32))


def test_test_nets_use_them(run_job: Run) -> None:
    outcome = run_job(net(test_freq=100, test_after=100, test_steps=N_STEPS))  # only at the end
    params, (rows, labels) = outcome.params(), records()
    x = (hidden(params, rows) - params["bn.mean"]) / np.sqrt(params["bn.variance"] + 1e-5)
    scores = 1.7159047 * np.tanh(0.66666667 * x) @ params["fc2.w"].T + params["fc2.b"]
    chosen = np.take_along_axis(scores, labels[..., None], axis=2)[..., 0]
    loss = (np.log(np.exp(scores).sum(axis=2)) - chosen).mean()
    assert outcome.losses("test")[N_STEPS] == pytest.approx(loss, rel=1e-5)


ADAM = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.01}}


@pytest.mark.parametrize("cluster", circles([ALLREDUCE, SINGLE]), ids=["allreduce", "single"])
def test_a_resumed_run_has_the_same_bits(run_job: Run, cluster: dict[str, Any]) -> None:
    whole = run_job(net(cluster=cluster, updater=ADAM))
    half = run_job(net(cluster=cluster, updater=ADAM, train_steps=N_STEPS // 2))
    rest = run_job(net(cluster=cluster, updater=ADAM), resume=f"{half.url}/checkpoint/step-{N_STEPS // 2}")
    wanted = whole.params()
    assert {name: values.tobytes() for name, values in rest.params().items()} == {
        name: values.tobytes() for name, values in wanted.items()
    }
    assert not np.array_equal(half.params()["bn.mean"], wanted["bn.mean"])
    assert {**half.losses(), **rest.losses()} == whole.losses()


def test_another_job_starts_from_them(run_job: Run) -> None:
    first = run_job(net())
    url = f"{first.url}/checkpoint/step-{N_STEPS}"
    second = run_job(net(train_steps=0), init_from=[url])
    for name, stored in load_values(url).items():
        np.testing.assert_array_equal(second.params()[name], stored.values)


@pytest.mark.long
@pytest.mark.parametrize("framework", circles(["downpour", "hogwild"]))
def test_groups_that_do_not_wait_for_each_other(run_job: Run, framework: str, tmp_path: Path) -> None:
    rows = records()[0][0]
    pixels = np.concatenate(2 * [np.rint(rows * 255).astype(np.uint8).reshape(-1, 28, 28)])
    url = written(tmp_path, "arrow", {"pixel": pixels, "label": np.zeros(len(pixels), np.int32)})
    outcome = run_job(net({"path": url}, cluster=FRAMEWORKS[framework], train_steps=100))
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    params = outcome.params()
    parts = hidden(params, rows)
    # each batch is all records, so every order of updates leads there, each update a tenth of the way
    np.testing.assert_allclose(params["bn.mean"], parts.mean(axis=0), rtol=0, atol=1e-3 * parts.std())
    np.testing.assert_allclose(params["bn.variance"], parts.var(axis=0), rtol=1e-3)
