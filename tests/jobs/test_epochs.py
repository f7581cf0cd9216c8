"""Jobs that say epochs: how many steps these are, by counts of what is read, and who knows it when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.conf import Phase
from singa_dask.data.sampler import Sampler
from singa_dask.jobs.checks import count_steps
from singa_dask.jobs.train import RunOptions
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.client.job_cluster import embedded_cluster
from singa_dask.runtime.planning.nets import build_nets
from tests.jobs.conftest import KEYS

QUIET: RunOptions = {"progress": False}
N = 97


@pytest.fixture
def records(tmp_path: Path) -> str:
    """Write 97 records of four values, in two classes."""
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "records.npz", data=generator.normal(size=(N, 4)).astype("f4"), label=np.arange(N) % 2)
    return str(tmp_path / "records.npz")


def job_on(path: str, more: tuple[dict[str, Any], ...] = (), **keys: Any) -> sd.Job:
    """Return a job with batches of 10 records."""
    store = {"path": path, "shape": [4], "batchsize": 10, "shuffle": "full", **keys.pop("store", {})}
    layers = [
        sd.layer("RecordInput", name="data", store_conf=store),
        sd.layer("InnerProduct", name="fc", num_output=2),
        sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
    ]
    return sd.Job(sd.Net([*layers, *more]), **{**KEYS, **keys})


def steps_of(job: sd.Job) -> int:
    return count_steps(job.file, build_nets(job.conf)).job.train_steps


@pytest.mark.parametrize(
    ("epochs", "last_batch", "steps"),
    [(1, "wrap", 10), (2, "wrap", 20), (0.5, "wrap", 5), (10, "wrap", 97), (1, "drop_last", 9), (3, "pad", 30)],
)
def test_epochs_are_steps(records: str, epochs: float, last_batch: str, steps: int) -> None:
    assert steps_of(job_on(records, epochs=epochs, store={"last_batch": last_batch})) == steps


def test_a_tenth_of_a_thousand_records_is_a_hundred(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", data=np.zeros((1000, 4), "f4"), label=np.zeros(1000, int))
    # as binary numbers, 1.1 * 100 is more than 110
    assert steps_of(job_on(str(tmp_path / "r.npz"), epochs=1.1)) == 110


@pytest.mark.parametrize("n_groups", [1, 2, 3])
def test_the_groups_together_read_each_record_once_an_epoch(records: str, n_groups: int) -> None:
    job = job_on(records, epochs=2, cluster={"nworker_groups": n_groups, "nserver_groups": 1})
    steps, times = steps_of(job), np.zeros(N, int)
    orders = [Sampler([N], 10, "full", group=group, n_groups=n_groups) for group in range(n_groups)]
    for order in orders:
        times += np.bincount(np.concatenate([order.rows(step)[0] for step in range(steps)]), minlength=N)
    assert times.min() == 2
    # no step is too many
    last = [np.concatenate([order.rows(step)[0] for step in range(steps - 1)]) for order in orders]
    assert np.bincount(np.concatenate(last), minlength=N).min() == 1


def test_a_run_of_epochs_knows_its_steps_and_goes_on(records: str, tmp_path: Path) -> None:
    job, url = job_on(records, epochs=1.5, disp_freq=5), str(tmp_path / "run")
    assert "1.5 epochs" in repr(job)
    run = sd.train(job, run_dir=url, **QUIET)
    assert run.summary["steps"] == 15
    stored = yaml.safe_load((tmp_path / "run" / "resolved.yaml").read_text())
    assert (stored["train_steps"], stored.get("epochs")) == (15, None)
    assert "epochs: 1.5" in (tmp_path / "run" / "job.yaml").read_text()
    assert run.history.epoch.iloc[-1] == pytest.approx(150 / N)
    again = sd.train(job.replace({"epochs": 3}), run_dir=url, resume=True, **QUIET)
    assert again.summary["steps"] == 30
    job.save(tmp_path / "job.yaml")
    assert called("validate", tmp_path / "job.yaml").output.startswith("epochs: 1.5, or 15 steps for each")


COSINE: dict[str, Any] = {"type": "Cosine", "base_lr": 0.1}
LINEAR: dict[str, Any] = {"type": "Linear", "base_lr": 0.1, "linear_conf": {"final_lr": 0.0}}


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (COSINE, {**COSINE, "cosine_conf": {"change_freq": 15}}),
        (LINEAR, {**LINEAR, "linear_conf": {"final_lr": 0.0, "change_freq": 15}}),
        (
            {"type": "OneCycle", "base_lr": 0.1},
            {"type": "OneCycle", "base_lr": 0.1, "onecycle_conf": {"change_freq": 15}},
        ),
        (
            {"type": "WarmUp", "warmup_conf": {"n_steps": 4, "schedule": COSINE}},
            {
                "type": "WarmUp",
                "warmup_conf": {"n_steps": 4, "schedule": {**COSINE, "cosine_conf": {"change_freq": 15}}},
            },
        ),
        # what is said is kept
        ({**COSINE, "cosine_conf": {"change_freq": 40}}, {**COSINE, "cosine_conf": {"change_freq": 40}}),
    ],
)
def test_a_learning_rate_ends_with_the_job(records: str, rate: dict[str, Any], said: dict[str, Any]) -> None:
    """By epochs and by steps, the rates are those of a job that says the number of steps in its schedule."""

    def run(rate: dict[str, Any], **length: Any) -> sd.Run:
        updater = {**KEYS["updater"], "learning_rate": rate}
        return sd.train(job_on(records, disp_freq=1, updater=updater, **length), **QUIET)

    wanted, *found = run(said, train_steps=15), run(rate, train_steps=15), run(rate, epochs=1.5)
    for each in found:
        assert each.history.lr.tolist() == wanted.history.lr.tolist()
        assert each.history.loss.tolist() == wanted.history.loss.tolist()


@pytest.mark.long
def test_a_run_goes_on_with_other_batches(records: str, tmp_path: Path) -> None:
    url, size = str(tmp_path / "run"), "neuralnet.layer[data].store_conf.batchsize"
    job = job_on(records, epochs=1.5, disp_freq=5)
    assert sd.train(job, run_dir=url, **QUIET).summary["steps"] == 15
    # of 3 x 97 records 150 were read: 141 are left
    bigger = job.replace({size: 32, "epochs": 3})
    run = sd.train(bigger, run_dir=url, resume=True, **QUIET)
    assert run.summary["steps"] == 15 + 5
    assert run.history.epoch.iloc[-1] == pytest.approx((150 + 5 * 32) / N)
    # of 4 x 97 records 310 were read: 78 are left
    again = sd.train(bigger.replace({"epochs": 4}), run_dir=url, resume=True, **QUIET)
    assert again.summary["steps"] == 20 + 3
    assert yaml.safe_load((tmp_path / "run" / "resolved.yaml").read_text())["train_steps"] == 23


def called(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_dask_workers_count_what_only_they_have(tmp_path: Path) -> None:
    x, y = da.random.random((N, 4), chunks=(40, 4)), da.zeros(N, chunks=40, dtype=int)
    job = job_on("dask://train", epochs=2, disp_freq=1)
    told: list[Any] = []
    kept: RunOptions = {**QUIET, "on_event": told.append, "run_dir": str(tmp_path / "run")}
    with embedded_cluster(plan_processes(job.conf.cluster)) as client:
        run = sd.train(job, data=(x, y), client=client, **kept)
    assert run.summary["steps"] == 20
    assert next(each["train_steps"] for each in told if each["event"] == "started") == 20
    stored = yaml.safe_load((tmp_path / "run" / "resolved.yaml").read_text())
    assert (stored["train_steps"], stored.get("epochs")) == (20, None)


def test_epochs_of_arrays_and_of_text(tmp_path: Path) -> None:
    x, y = np.zeros((N, 4), "f4"), np.zeros(N, int)
    run = sd.train(job_on("dask://train", epochs=1), data=(x, y), run_dir=str(tmp_path / "run"), **QUIET)
    assert run.summary["steps"] == 10
    (tmp_path / "text.txt").write_text("abcdefghij" * 100)
    text = {"path": str(tmp_path / "text.txt"), "batchsize": 4, "unroll_len": 5}
    layers = [
        sd.layer("CharRNN", name="text", char_rnn_conf=text, unroll_len=1),
        sd.layer("OneHot", srclayers="text", onehot_conf={"vocab_size": 10}, unroll_conn_type="OneToAll"),
        sd.layer("RNNLabel", srclayers="text", unroll_conn_type="OneToAll"),
        sd.layer("InnerProduct", srclayers="onehot", num_output=10),
        sd.layer("SoftmaxLoss", srclayers=["innerproduct", "rnnlabel"]),
    ]
    net = sd.Net(layers, unroll_len=5)
    # of four segments of 250 characters, windows of 5
    assert steps_of(sd.Job(net, epochs=2, **{**KEYS, "train_one_batch": {"alg": "BPTT"}})) == 100


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epochs": 2, "train_steps": 5}, "epochs: train_steps is set, too"),
        ({"epochs": 0}, "epochs: expected more than 0.0, got 0"),
        ({}, "train_steps: this required key is missing"),
        ({"train_steps": 5, "num_epochs": 3}, "num_epochs: unknown key. Did you mean 'epochs'?"),
    ],
)
def test_what_is_refused(records: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(sd.ConfigError, match=message.replace("?", r"\?")):
        job_on(records, **keys)


def test_records_that_cannot_be_counted_are_refused(records: str, tmp_path: Path) -> None:
    no_store = [
        sd.layer("RNNDummy", name="data", rnn_dummy_conf={"shape": [10, 4]}),
        sd.layer("InnerProduct", num_output=4),
        sd.layer("EuclideanLoss", srclayers=["innerproduct", "data"]),
    ]
    np.savez(tmp_path / "other.npz", data=np.zeros((50, 4), "f4"))
    store = {"path": str(tmp_path / "other.npz"), "shape": [4], "batchsize": 10, "has_label": False}
    other = (sd.layer("RecordInput", name="other", store_conf=store), sd.layer("Add", srclayers=["other", "data"]))
    for job, message in (
        (
            sd.Job(sd.Net(no_store), epochs=1, **KEYS),
            "no layer of the training net reads records",
        ),
        (job_on(records, other, epochs=1), "different numbers of batches: data in 9.7, other in 5. Set train_steps"),
    ):
        with pytest.raises(sd.ConfigError, match=message):
            steps_of(job)


def test_a_change_of_one_replaces_the_other(records: str) -> None:
    job = job_on(records, epochs=2)
    assert job.replace({"train_steps": 7}).conf.epochs is None
    assert job.replace({"train_steps": 7}).replace({"epochs": 1}).conf.train_steps == 0


def test_the_nets_of_a_job_of_epochs_are_trained(records: str) -> None:
    assert Phase.TRAIN in job_on(records, epochs=1).nets()
