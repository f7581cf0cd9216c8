"""How jobs end, in threads: stops, failures, losses that are no numbers, checkpoints that cannot be written."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find
from singa_dask.runtime.units import checkpointing, run_unit, worker_metrics
from singa_dask.runtime.units.unit_host import UnitHost
from tests.runtime import parts
from tests.runtime.harness import ALLREDUCE, FRAMEWORKS, SANDBLASTER_1, SANDBLASTER_2, SINGLE, Outcome, mlp
from tests.selection import circles

Run = Callable[..., Outcome]
MANY = 100_000
NAMES = ["hybrid", "sandblaster-2", "allreduce", "single", "downpour", "hogwild", "sandblaster-1"]


def states(outcome: Outcome) -> dict[str, str]:
    return {unit: report["state"] for unit, report in outcome.reports.items()}


# -- stops -------------------------------------------------------------------------------------------


def stop_at(step: int) -> Callable[[list[UnitHost], dict[str, Any]], None]:
    """Return a watcher that asks all hosts to stop when the first worker has shown a step."""

    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and (event["step"], event["group"], event["worker"]) == (step, 0, 0):
            for host in hosts:
                host.request("stop")

    return watch


@pytest.mark.parametrize(
    "cluster", circles([ALLREDUCE, SANDBLASTER_1, SINGLE], long=2), ids=["allreduce", "sandblaster", "single"]
)
def test_workers_of_a_group_stop_together_and_the_rest_is_the_same_run(run_job: Run, cluster: dict[str, Any]) -> None:
    stopped = run_job(mlp(train_steps=MANY, cluster=cluster), on_event=stop_at(5))
    assert set(states(stopped).values()) == {"done"}
    reports = [report for unit, report in stopped.reports.items() if unit.startswith("worker")]
    assert all(report["stopped"] for report in reports)
    (step,) = {report["step"] for report in reports}
    assert step == (6 if cluster is SINGLE else 8)
    assert [event["step"] for event in stopped.events if event["event"] == "checkpoint"] == [step]
    whole = run_job(mlp(train_steps=15, cluster=cluster))
    rest = run_job(mlp(train_steps=15, cluster=cluster), resume=f"{stopped.url}/checkpoint/step-{step}")
    for name, values in whole.params().items():
        np.testing.assert_array_equal(values, rest.params()[name])


@pytest.mark.parametrize("name", circles(["downpour", "hybrid", "hogwild"], long=1))
def test_every_group_stops_at_a_step_of_its_own(run_job: Run, name: str) -> None:
    stopped = run_job(mlp(train_steps=MANY, cluster=FRAMEWORKS[name]), on_event=stop_at(5))
    assert set(states(stopped).values()) == {"done"}
    for group in range(2):
        steps = {report["step"] for unit, report in stopped.reports.items() if unit.startswith(f"worker-{group}")}
        assert len(steps) == 1
        assert steps < set(range(MANY))


def test_a_stop_that_comes_before_the_workers_are_there_is_not_forgotten(run_job: Run, monkeypatch: Any) -> None:
    real = UnitHost.__init__

    def asked_at_once(self: UnitHost, *args: Any, **given: Any) -> None:
        real(self, *args, **given)
        self.request("stop")

    monkeypatch.setattr(UnitHost, "__init__", asked_at_once)
    stopped = run_job(mlp(train_steps=MANY, cluster=ALLREDUCE))
    assert {report["step"] for unit, report in stopped.reports.items() if unit.startswith("worker")} == {2}


# -- failures ----------------------------------------------------------------------------------------


def with_trap(**how: Any) -> dict[str, Any]:
    """Return ``neuralnet`` of the small job with a `parts.Trap` after its first activation."""
    layers = mlp().model_dump(mode="json")["neuralnet"]["layer"]
    trap = {"name": "trap", "type": parts.Trap.__name__, "srclayers": ["act1"], "user_conf": how}
    layers.insert(3, trap)
    layers[4]["srclayers"] = ["trap"]
    return {"layer": layers}


def last_worker(cluster: dict[str, Any]) -> dict[str, int]:
    return {"group": cluster.get("nworker_groups", 1) - 1, "worker": cluster.get("nworkers_per_group", 1) - 1}


@pytest.mark.parametrize("how", ["raise", "raise-in-gradient"])
@pytest.mark.parametrize("name", circles(NAMES, long=3))
def test_an_exception_in_a_layer_ends_every_unit(run_job: Run, name: str, how: str) -> None:
    cluster = FRAMEWORKS[name]
    where = last_worker(cluster)
    net = with_trap(how=how, step=3, **where)
    outcome = run_job(mlp(train_steps=MANY, neuralnet=net, cluster=cluster))
    unit = f"worker-{where['group']}-{where['worker']}"
    failed = outcome.reports.pop(unit)
    assert failed["state"] == "failed"
    assert failed["reason"] == f"{unit}, step 3, layer trap: ZeroDivisionError: a mistake of the user"
    assert failed["exit_code"] == 1
    assert not failed["expected"]
    assert "in compute_" in failed["error"]
    assert set(states(outcome).values()) == {"aborted"}
    assert {report["reason"] for report in outcome.reports.values()} == {failed["reason"]}


@pytest.mark.parametrize("name", circles(NAMES, long=3))
def test_an_exception_in_a_server_ends_every_unit(run_job: Run, name: str) -> None:
    updater = {"type": parts.BadUpdater.__name__, "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    outcome = run_job(mlp(train_steps=MANY, updater=updater, cluster=FRAMEWORKS[name]))
    failed = [report for report in outcome.reports.values() if report["state"] == "failed"]
    assert failed
    for report in failed:
        assert report["reason"] == f"{report['unit']}: ZeroDivisionError: a mistake of the user"
        assert report["unit"].startswith("server")
        assert "in rule" in report["error"]
    assert set(states(outcome).values()) == {"failed", "aborted"}


@pytest.mark.parametrize("name", circles(NAMES, long=3))
def test_a_loss_that_is_no_number_ends_the_job(run_job: Run, name: str) -> None:
    cluster = FRAMEWORKS[name]
    where = last_worker(cluster)
    outcome = run_job(mlp(train_steps=MANY, neuralnet=with_trap(how="nan", step=2, **where), cluster=cluster))
    unit = f"worker-{where['group']}-{where['worker']}"
    failed = outcome.reports[unit]
    assert (failed["state"], failed["exit_code"]) == ("failed", 5)
    assert failed["reason"].startswith(
        f"{unit}, step 2, layer loss: the loss is not finite. Lower updater.learning_rate.base_lr"
    )
    assert failed["expected"]
    codes = {report.get("exit_code") for report in outcome.reports.values()}
    assert codes <= {5, None}


def test_params_that_are_no_numbers_end_the_job_before_they_are_in_a_checkpoint(run_job: Run) -> None:
    layers = mlp().model_dump(exclude_none=True)["neuralnet"]["layer"]
    layers[1]["param"][1]["lr_scale"] = 1e300
    layers[2] = {"name": "act1", "type": "ReLU", "srclayers": ["fc1"]}
    outcome = run_job(mlp(train_steps=1, neuralnet={"layer": layers}))
    failed = [report for report in outcome.reports.values() if report["state"] == "failed"]
    assert [report["exit_code"] for report in failed] == [5]
    assert failed[0]["reason"].startswith("worker-0-0, step 1: param 'fc1.b' is not finite. Lower updater.")
    assert not [event for event in outcome.events if event["event"] == "checkpoint"]


def test_records_that_are_gone_end_the_job_with_their_url(run_job: Run) -> None:
    layers = mlp().model_dump(mode="json")["neuralnet"]["layer"]
    layers[0]["store_conf"]["path"] = "data/digits/nothing.arrow"
    outcome = run_job(mlp(neuralnet={"layer": layers}, cluster=ALLREDUCE))
    failed = [report for report in outcome.reports.values() if report["state"] == "failed"]
    assert all("nothing.arrow" in report["reason"] and report["expected"] for report in failed)
    assert set(states(outcome).values()) == {"failed", "aborted"}


# -- checkpoints that cannot be written --------------------------------------------------------------


def job_with_checkpoints(cluster: dict[str, Any]) -> JobConf:
    return mlp(train_steps=10, checkpoint_freq=4, cluster=cluster)


def warnings(outcome: Outcome) -> list[str]:
    return [event["message"] for event in outcome.events if event.get("level") == "WARNING"]


@pytest.mark.parametrize(
    ("cluster", "hindrance"),
    circles(
        [
            (SINGLE, "step-4"),
            (SANDBLASTER_2, "step-4/manifest.json/in the way"),
            (SANDBLASTER_2, "step-4"),
            (SINGLE, "step-4/manifest.json/in the way"),
        ],
        long=2,
    ),
)
def test_training_goes_on_without_a_checkpoint_in_mid_run(
    run_job: Run, tmp_path: Path, cluster: dict[str, Any], hindrance: str
) -> None:
    place = tmp_path / "run0" / "checkpoint" / hindrance
    place.parent.mkdir(parents=True)
    place.touch()
    outcome = run_job(job_with_checkpoints(cluster))
    assert set(states(outcome).values()) == {"done"}, outcome.reports
    assert [event["step"] for event in outcome.events if event["event"] == "checkpoint"] == [8, 10]
    (warning,) = warnings(outcome)
    assert warning.startswith("the checkpoint of step 4 was not written: ")
    assert "step-4" in warning
    calm = run_job(job_with_checkpoints(cluster))
    assert outcome.losses() == calm.losses()


@pytest.mark.parametrize("hindrance", circles(["step-10/manifest.json/in the way", "step-10"], long=1))
def test_a_last_checkpoint_that_cannot_be_written_is_kept(
    run_job: Run, tmp_path: Path, monkeypatch: Any, hindrance: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    place = tmp_path / "run0" / "checkpoint" / hindrance
    place.parent.mkdir(parents=True)
    place.touch()
    outcome = run_job(job_with_checkpoints(SANDBLASTER_2))
    failed = outcome.reports["worker-0-0"]
    assert failed["state"] == "failed"
    assert failed["reason"].startswith("worker-0-0, step 10: the checkpoint of step 10 was not written: ")
    found = re.search(r" kept at [^:]+:(.+)\. To complete it, copy all of them to (.+); then", failed["reason"])
    assert found, failed["reason"]
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if "manifest" in hindrance:
        place.parent.rmdir()
    shutil.copytree(found[1], found[2], dirs_exist_ok=True)
    Checkpoint(found[2]).verify()
    calm = run_job(job_with_checkpoints(SANDBLASTER_2)).params()
    assert all(np.array_equal(outcome.params()[name], calm[name]) for name in calm)
    assert failed["expected"]
    assert {state for unit, state in states(outcome).items() if unit.startswith("server")} == {"aborted"}


def test_a_last_checkpoint_that_cannot_be_kept_either_is_lost(run_job: Run, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "tmp").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    place = tmp_path / "run0" / "checkpoint" / "step-10"
    place.parent.mkdir(parents=True)
    place.touch()
    reason = run_job(job_with_checkpoints(SINGLE)).reports["worker-0-0"]["reason"]
    assert re.search(r"[^.]\. The training", reason)
    assert re.search(r"Writing part-0-of-1.safetensors to a directory on .*Not a directory", reason)
    assert reason.endswith("The training after step 8 is lost.")


def test_so_is_that_of_a_stop(run_job: Run, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "tmp").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    place = tmp_path / "run0" / "checkpoint" / "step-6"
    place.parent.mkdir(parents=True)
    place.touch()
    outcome = run_job(mlp(train_steps=MANY), on_event=stop_at(5))
    reason = outcome.reports["worker-0-0"]["reason"]
    assert "the checkpoint of step 6 was not written" in reason
    assert "The training in this run is lost." in reason


@pytest.mark.parametrize(("module", "function"), [(run_unit, "write_part"), (checkpointing, "write_manifest")])
def test_checkpoints_behind_a_slow_one_are_left_out_but_not_the_last(
    run_job: Run, monkeypatch: Any, module: Any, function: str
) -> None:
    release, at_once = threading.Event(), [0, 0]
    real = getattr(module, function)

    def slow(*args: Any) -> dict[str, Any]:
        at_once[0] += 1
        at_once[1] = max(at_once)
        assert release.wait(60)
        at_once[0] -= 1
        return real(*args)

    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and event["step"] == 6:
            release.set()

    left_out: list[str] = []
    monkeypatch.setattr(checkpointing.logger, "warning", lambda text, *values: left_out.append(text % values))
    monkeypatch.setattr(module, function, slow)
    monkeypatch.setattr(checkpointing, "PATIENCE_S", 0.0)
    outcome = run_job(mlp(train_steps=8, checkpoint_freq=2), on_event=watch)
    assert set(states(outcome).values()) == {"done"}, outcome.reports
    assert [event["step"] for event in outcome.events if event["event"] == "checkpoint"] == [2, 8]
    assert [text.split(" is skipped")[0] for text in left_out] == [f"the checkpoint of step {step}" for step in (4, 6)]
    assert at_once == [0, 1]


@pytest.mark.parametrize("cluster", circles([ALLREDUCE, SANDBLASTER_2], long=1), ids=["allreduce", "sandblaster"])
def test_a_checkpoint_is_left_out_by_the_whole_group(run_job: Run, monkeypatch: Any, cluster: dict[str, Any]) -> None:
    monkeypatch.setattr(checkpointing, "PATIENCE_S", 0.0)
    outcome = run_job(mlp(train_steps=12, checkpoint_freq=1, cluster=cluster))
    assert set(states(outcome).values()) == {"done"}, outcome.reports
    steps = [event["step"] for event in outcome.events if event["event"] == "checkpoint"]
    assert steps[-1] == 12
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("name", circles(["single", "downpour", "allreduce"], long=1))
def test_a_job_that_has_ended_and_goes_on_does_nothing(run_job: Run, name: str, monkeypatch: Any) -> None:
    job = mlp(train_steps=4, cluster=FRAMEWORKS[name])
    ended = run_job(job)
    checkpoint = find(ended.url)
    before = {file.name: file.stat().st_mtime_ns for file in Path(checkpoint).iterdir()}
    clock = count()
    monkeypatch.setattr(worker_metrics, "core_wait_s", lambda: float(next(clock)))  # the host is busy
    again = run_job(job, resume=checkpoint, url=ended.url)
    assert set(states(again).values()) == {"done"}
    # the checkpoint is complete already
    assert [event for event in again.events if event["event"] == "checkpoint"] == []
    assert {file.name: file.stat().st_mtime_ns for file in Path(checkpoint).iterdir()} == before
    for unit, report in again.reports.items():
        if unit.startswith("worker"):
            assert report["steps"] == 4
            # no step has waited, and nothing is known of how much the params have changed
            assert report["wait_ms"] == {"data": 0.0, "params": 0.0, "cores": 0.0}
            assert report["learning"]["changes"] == {}


def test_a_checkpoint_of_a_job_that_trains_on_is_written_again(run_job: Run) -> None:
    """In asynchronous jobs other groups may have made steps since the checkpoint that the first one goes on from."""
    job = mlp(train_steps=MANY, cluster=FRAMEWORKS["downpour"])
    stopped = run_job(job, on_event=stop_at(5))
    checkpoint = find(stopped.url)

    def stop(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "training":
            for host in hosts:
                host.request("stop")

    again = run_job(job, resume=checkpoint, url=stopped.url, on_event=stop)
    written = [event["step"] for event in again.events if event["event"] == "checkpoint"]
    assert written == [again.reports["worker-0-0"]["step"]]


def test_a_checkpoint_of_a_run_that_went_another_way_is_replaced(run_job: Run) -> None:
    """The directory has one of the last step already: it is of the steps that are made again."""
    ended = run_job(mlp(train_steps=4, checkpoint_freq=2))
    again = run_job(mlp(train_steps=4), resume=f"{ended.url}/checkpoint/step-2", url=ended.url)
    assert [event["step"] for event in again.events if event["event"] == "checkpoint"] == [4]


def test_a_checkpoint_of_another_topology_is_written_again(run_job: Run) -> None:
    """It has no positions for the new groups."""
    ended = run_job(mlp(train_steps=4))
    job = mlp(train_steps=4, cluster=FRAMEWORKS["downpour"])
    again = run_job(job, resume=find(ended.url), url=ended.url)
    assert [event["step"] for event in again.events if event["event"] == "checkpoint"] == [4]
    assert len(Checkpoint(find(ended.url)).groups) == 2
