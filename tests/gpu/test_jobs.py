"""Whole jobs on GPUs: as on a CPU in every way that workers and servers can lie, and errors as a user sees them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.unit_host import UnitHost
from tests.backends import backend, need_gpus
from tests.cli.conftest import ROOT, Call, call, job
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, SANDBLASTER_1, SINGLE, Outcome, dense, mlp, run_job
from tests.selection import circles, mostly_long

__all__ = ["call", "job", "run_job"]

Run = Callable[..., Outcome]

DIGITS = ROOT / "data" / "digits" / "test.arrow"
N_STEPS = 20
TOGETHER = {"nworkers_per_procs": 2}
PAIR = {"nworkers_per_group": 2, **TOGETHER}

# the cluster, the GPUs of each process, and where workers then compute
LIES: dict[str, tuple[dict[str, Any], list[int], list[str]]] = {
    "one": (SINGLE, [0], ["cuda:0"]),
    "two workers on one": (PAIR, [0, 0], ["cuda:0", "cuda:0"]),
    "a GPU each": (PAIR, [0, 1], ["cuda:0", "cuda:1"]),
    "a GPU and a CPU": (PAIR, [1], ["cuda:1", "cpu"]),
    "two processes": (ALLREDUCE, [0], ["cuda:0", "cuda:0"]),
    "servers apart": (SANDBLASTER_1, [1, 1], ["cuda:1", "cuda:1"]),
    "memory apart": ({**SINGLE, "share_memory": False}, [0], ["cuda:0"]),
}

IN_PLAIN = {"a GPU and a CPU", "two processes"}


@pytest.fixture(autouse=True)
def gpus_there(request: pytest.FixtureRequest) -> None:
    """Skip a test where a GPU is missing that it names by its parameter ``gpus``, or by a ``name`` in `LIES`."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    named = LIES[params["name"]][1] if params.get("name") in LIES else params.get("gpus", [0])
    need_gpus(1 + max(named))


@pytest.fixture
def two_gpus() -> None:
    """Skip a test where there are fewer than two GPUs."""
    need_gpus(2)


def worker_reports(outcome: Outcome) -> list[dict[str, Any]]:
    """Return what the workers reported, in order; all units are done."""
    assert {report["state"] for report in outcome.reports.values()} == {"done"}, outcome.reports
    return [outcome.reports[unit] for unit in sorted(outcome.reports) if unit.startswith("worker")]


@pytest.mark.parametrize(
    "name", circles(sorted(LIES, key=IN_PLAIN.__contains__, reverse=True), plain=len(IN_PLAIN), long=len(LIES))
)
def test_a_job_trains_as_on_a_cpu(run_job: Run, name: str) -> None:
    cluster, gpus, devices = LIES[name]
    tests = {"test_freq": 8, "test_steps": 2, "validate_freq": 0}
    on_gpus, on_cpu = (
        run_job(mlp(cluster=cluster, train_steps=N_STEPS, **tests, **how)) for how in ({"gpu": gpus}, {"ops": "numpy"})
    )
    assert [report["device"] for report in worker_reports(on_gpus)] == devices
    wanted = on_cpu.params()
    for name, values in on_gpus.params().items():
        np.testing.assert_allclose(values, wanted[name], rtol=0, atol=1e-5 * np.abs(wanted[name]).max())
    for phase in ("train", "test"):
        assert on_gpus.losses(phase) == pytest.approx(on_cpu.losses(phase), rel=1e-4)


@pytest.mark.parametrize("name", mostly_long(["two processes", "one", "memory apart"], 3))
def test_updates_and_rows_that_count_are_as_on_a_cpu(run_job: Run, name: str) -> None:
    cluster, gpus, _ = LIES[name]
    rate = {"type": "Fixed", "base_lr": 0.05}
    more = {"clip_norm": 0.5, "accumulate": 2, "ema_decay": 0.75, "sgd_conf": {"velocity": "gradients"}}
    given = mlp(cluster=cluster, train_steps=9).model_dump(mode="json", exclude_unset=True)
    given["updater"] = {"type": "SGD", "momentum": 0.5, "learning_rate": rate, **more}
    block = {"ignore_index": 3, "class_weights": [1, 2, 0.5, 9, 1, 1, 3, 0, 1, 1], "focal_gamma": 1.5}
    given["neuralnet"]["layer"][-1]["softmaxloss_conf"] = block
    on_gpus, on_cpu = (run_job(JobConf.model_validate({**given, **how})) for how in ({"gpu": gpus}, {"ops": "numpy"}))
    assert len(worker_reports(on_gpus)) == len(worker_reports(on_cpu))
    for averaged in (False, True):
        wanted, got = (lookup.load_values(each.url, averaged) for each in (on_cpu, on_gpus))
        for param, stored in wanted.items():
            within = 1e-5 * np.abs(stored.values).max()
            np.testing.assert_allclose(got[param].values, stored.values, rtol=0, atol=within)
    for metric in ("loss", "accuracy"):
        assert on_gpus.metric(metric) == pytest.approx(on_cpu.metric(metric), rel=1e-4)


@pytest.mark.long
def test_what_is_noted_of_a_training_is_that_of_a_cpu(run_job: Run) -> None:
    tests = {"test_freq": 60, "test_steps": 2, "validate_freq": 0}
    given = mlp(cluster=SINGLE, train_steps=60, **tests).model_dump(exclude_unset=True)
    given["neuralnet"]["layer"][2] = {"name": "act1", "type": "ReLU", "srclayers": ["fc1"]}
    on_gpu, on_cpu = (
        worker_reports(run_job(JobConf.model_validate({**given, **how})))[0]["learning"]
        for how in ({"gpu": [0]}, {"ops": "numpy"})
    )
    assert on_gpu["answers"]["test"] == on_cpu["answers"]["test"] != {}
    assert on_gpu["broken"] == on_cpu["broken"]
    assert on_gpu["changes"] == pytest.approx(on_cpu["changes"], rel=1e-3)
    assert on_gpu["changes"]


@pytest.mark.long
def test_targets_of_a_table(run_job: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,z\n" + "".join(f"{i},{i % 3},{i / 8 - i % 3}\n" for i in range(8)))
    table = {"path": str(tmp_path / "t.csv"), "features": ["x", "y"], "target": ["z"], "shape": [2], "batchsize": 4}
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": table},
        {"name": "z", "type": "TargetInput", "store_conf": table},
        dense("fc", "data", 1),
        {"name": "loss", "type": "EuclideanLoss", "srclayers": ["fc", "z"]},
    ]
    job = mlp(neuralnet={"layer": layers}, updater={"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.1}})
    on_gpu, on_cpu = (run_job(job.model_copy(update=how)) for how in ({"gpu": [0]}, {"ops": "numpy"}))
    assert on_gpu.losses() == pytest.approx(on_cpu.losses(), rel=1e-4)
    first, *_, last = on_cpu.losses().values()
    assert last < first


def test_metrics_of_all_records(run_job: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,a\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(11)))
    table = {"path": str(tmp_path / "t.csv"), "features": ["x", "y"], "label": ["a"], "shape": [2], "batchsize": 4}
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": table},
        dense("fc", "data", 2),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]},
    ]
    job = mlp(neuralnet={"layer": layers}, test_freq=5, metrics=["f1_macro", "roc_auc", "perplexity"])
    on_gpu, on_cpu = (run_job(job.model_copy(update=how)) for how in ({"gpu": [0]}, {"ops": "numpy"}))
    for name in ("loss", "accuracy", *job.metrics):
        assert on_gpu.metric(name, "test") == pytest.approx(on_cpu.metric(name, "test"), rel=1e-4), name


def test_one_of_the_labels_of_a_table(run_job: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,a,b\n" + "".join(f"{i},{i % 3},{i % 2},{i % 3}\n" for i in range(8)))
    table = {"path": str(tmp_path / "t.csv"), "features": ["x", "y"], "label": ["a", "b"], "shape": [2], "batchsize": 4}
    layers = [
        {"name": "data", "type": "RecordInput", "store_conf": table},
        {"name": "b", "type": "LabelInput", "store_conf": table, "label_conf": {"column": "b"}},
        dense("fc", "data", 3),
        {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "b"]},
    ]
    job = mlp(neuralnet={"layer": layers}, updater={"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.1}})
    on_gpu, on_cpu = (run_job(job.model_copy(update=how)) for how in ({"gpu": [0]}, {"ops": "numpy"}))
    assert on_gpu.losses() == pytest.approx(on_cpu.losses(), rel=1e-4)
    first, *_, last = on_cpu.losses().values()
    assert last < first


@pytest.mark.parametrize("name", mostly_long(["one", "servers apart"], 2))
def test_steps_that_are_profiled_run_layer_by_layer(run_job: Run, name: str) -> None:
    cluster, gpus, _ = LIES[name]
    how: dict[str, Any] = {"cluster": cluster, "train_steps": 12, "gpu": gpus}
    profiled, plain = run_job(mlp(**how, profile={"first_step": 5, "steps": 3})), run_job(mlp(**how))
    assert profiled.losses() == plain.losses()
    (report, *_) = worker_reports(profiled)
    assert [*report["layers"]] == ["data", "fc1", "act1", "drop1", "fc2", "loss"]
    assert all(report["layers"]["fc1"].values())


@pytest.mark.parametrize(
    ("cluster", "gpus"),
    [
        ({**DOWNPOUR, **TOGETHER}, [0, 1]),
        pytest.param(DOWNPOUR, [0], marks=pytest.mark.long),
        pytest.param({**DOWNPOUR, **TOGETHER}, [0, 0], marks=pytest.mark.soak),
    ],
)
def test_groups_train_side_by_side(run_job: Run, cluster: dict[str, Any], gpus: list[int]) -> None:
    outcome = run_job(mlp(cluster=cluster, gpu=gpus, train_steps=N_STEPS))
    worker_reports(outcome)
    for group in (0, 1):
        losses = list(outcome.losses(group=group).values())
        assert len(losses) == N_STEPS
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", mostly_long(["a GPU and a CPU", "one", "two processes"], 3))
def test_runs_repeat_and_resume_to_the_bit(run_job: Run, name: str) -> None:
    cluster, gpus, _ = LIES[name]

    def run(n_steps: int, **how: Any) -> tuple[Outcome, dict[str, bytes]]:
        outcome = run_job(mlp(cluster=cluster, gpu=gpus, train_steps=n_steps), **how)
        return outcome, {name: values.tobytes() for name, values in outcome.params().items()}

    (whole, wanted), (half, _) = run(N_STEPS), run(N_STEPS // 2)
    rest, resumed = run(N_STEPS, resume=f"{half.url}/checkpoint/step-{N_STEPS // 2}")
    assert resumed == wanted
    assert {**half.losses(), **rest.losses()} == whole.losses()


@pytest.mark.parametrize(("precision", "rtol"), mostly_long([("bf16", 0.02), ("float64", 1e-4), ("tf32", 1e-3)], 3))
def test_every_precision_trains_alike(run_job: Run, precision: str, rtol: float) -> None:
    backend("onednn", precision if precision == "bf16" else "float32")  # of the worker without a GPU
    exact, other = (
        run_job(mlp(gpu=[0], precision=each, cluster={**PAIR, "nservers_per_group": 2, "nservers_per_procs": 2}))
        for each in ("float32", precision)
    )
    assert other.losses() == pytest.approx(exact.losses(), rel=rtol)
    wanted = np.float64 if precision == "float64" else np.float32
    assert {values.dtype for values in other.params().values()} == {np.dtype(wanted)}


# -- ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one", "a GPU and a CPU", "two processes"])
def test_a_job_that_is_ended_in_the_middle_leaves_nothing(run_job: Run, name: str) -> None:
    def end(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and event["step"] == 3:
            hosts[0].abort({"reason": "enough"})

    cluster, gpus, _ = LIES[name]
    outcome = run_job(mlp(cluster=cluster, gpu=gpus, train_steps=10**6), on_event=end)
    assert {report["state"] for report in outcome.reports.values()} == {"aborted"}


def test_an_error_of_the_sender_ends_the_job_by_its_worker(run_job: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    send = HostMirror.send

    class Broken:
        def synchronize(self) -> None:
            raise RuntimeError("an illegal address was encountered")

    def break_one(self: HostMirror, message: Any, param: Any = None) -> None:
        if message.step == 5:
            self._outgoing.put((Broken(), message))
        else:
            send(self, message, param)

    monkeypatch.setattr(HostMirror, "send", break_one)
    outcome = run_job(mlp(cluster=ALLREDUCE, gpu=[0], train_steps=10**6))
    assert {report["state"] for report in outcome.reports.values()} == {"aborted"}
    reasons = {report["reason"].split(",")[0] for report in outcome.reports.values()}
    assert reasons <= {"worker-0-0", "worker-0-1"}
    assert "an illegal address" in outcome.reports["worker-0-0"]["reason"]


def test_a_loss_that_is_no_number_is_found_before_the_next_checkpoint(run_job: Run) -> None:
    sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 3e38}}
    outcome = run_job(mlp(gpu=[0], updater=sgd, disp_freq=0, checkpoint_freq=8))
    report = outcome.reports["worker-0-0"]
    assert report["state"] == "failed", outcome.reports
    assert report["exit_code"] == 5
    assert "not finite" in report["reason"]
    assert not [event for event in outcome.events if event["event"] == "checkpoint"]


# -- what a user sees ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_not_there(call: Call, job: Path) -> None:
    result = call("run", job, "--set", "gpu=[9]", "--run-dir", job.parent / "run")
    assert result.exit_code == 2
    # a unit that fails may end the job before the other one has failed
    where = r"(worker|server)-0-0( and 1 other)?: gpu: cuda:9: "
    assert re.search(where + "there are 2 GPUs here, cuda:0 to cuda:1. ", result.stderr), result.stderr
    assert "CUDA_VISIBLE_DEVICES" in result.stderr
    assert "Traceback" not in result.stderr
    assert "to go on" not in result.stderr


def test_a_net_that_a_gpu_has_no_memory_for(call: Call, job: Path) -> None:
    batches = "neuralnet.layer[data].store_conf.batchsize=1000000000"
    result = call("run", job, "--set", "gpu=[0]", "--set", batches, "--run-dir", job.parent / "run")
    assert result.exit_code == 1
    assert "worker-0-0: " in result.stderr
    assert "batches of 1000000000" in result.stderr
    assert "Lower batchsize" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.long
def test_processes_that_have_a_gpu_each(call: Call, job: Path, tmp_path: Path) -> None:
    params, losses = [], []
    for how in ("gpu=[0]", "ops=numpy"):
        url = tmp_path / how
        cluster = ("--cluster", ROOT / "configs" / "cluster" / "allreduce.yaml")
        result = call("run", job, "--set", how, *cluster, "--run-dir", url)
        assert result.exit_code == 0, result.output
        summary = json.loads((url / "summary.json").read_text())
        losses.append(summary["train"]["loss"])
        params.append(lookup.load_values(str(url)))
        if how == "gpu=[0]":
            assert summary["devices"] == {f"worker-0-{i}": "cuda:0 (cupy)" for i in range(2)}
            assert summary["bytes"]["sent"] > 0
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for name, stored in params[0].items():
        np.testing.assert_allclose(stored.values, params[1][name].values, atol=1e-5)


NO_CUPY = ("import sys; sys.modules['cupy'] = None; ", "singa-dask[cuda12]")
NO_GPU = ("", "no GPU")


@pytest.mark.parametrize(
    ("without", "words", "verb"),
    [
        (*NO_CUPY, "run"),
        pytest.param(*NO_GPU, "test", marks=pytest.mark.long),
        pytest.param(*NO_CUPY, "test", marks=pytest.mark.soak),
        pytest.param(*NO_GPU, "run", marks=pytest.mark.soak),
    ],
    ids=["run without CuPy", "test without a GPU", "test without CuPy", "run without a GPU"],
)
@pytest.mark.long
def test_a_machine_without(job: Path, tmp_path: Path, without: str, words: str, verb: str) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "", "SIMULATED_DEVICES": "0"}
    checkpoint_file = ROOT / "tests" / "gold" / "end" / "mlp_sgd.bin"
    where = ["--run-dir", str(tmp_path / "run")] if verb == "run" else ["--init-from", str(checkpoint_file)]
    done = subprocess.run(
        [sys.executable, "-c", f"{without}from singa_dask.cli import main; main()", verb, str(job), *where,
         "--set", "ops=cupy"],
        env={**os.environ, **hidden, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.usefixtures("two_gpus")
def test_inference_on_a_gpu(call: Call, job: Path) -> None:
    run = job.parent / "run"
    trained = call("run", job, "--run-dir", run, "--set", "gpu=[1]")
    assert trained.exit_code == 0, trained.output
    assert json.loads((run / "summary.json").read_text())["devices"] == {"worker-0-0": "cuda:1 (cupy)"}
    figures, chances = [], []
    for gpu in ("ops=numpy", "gpu=[0, 1]"):
        tested = call("test", job, "--init-from", run, "--set", gpu, "--steps", 0, "--json")
        told = call("predict", job, "--init-from", run, "--set", gpu, "--data", DIGITS)
        assert (tested.exit_code, told.exit_code) == (0, 0), tested.output + told.output
        figures.append(json.loads(tested.stdout)["test"])
        chances.append([[float(value) for value in line.split(",")] for line in told.stdout.splitlines()[1:]])
    assert figures[0] == pytest.approx(figures[1], rel=1e-5)
    np.testing.assert_allclose(*chances, rtol=1e-4)
