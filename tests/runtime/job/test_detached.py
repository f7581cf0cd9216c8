"""Detached jobs on real processes: the cluster drives them, whatever happens to clients and drivers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from distributed import Client

from singa_dask.cli import main
from singa_dask.runtime.job.names import JOBS, this_user
from tests.runtime.processes import ROOT, program, wait_until

pytestmark = pytest.mark.cluster

TIMES = ("time", "samples_per_s", "wait_data_ms", "wait_params_ms")


def arguments(client: Client, run: Path, *more: str, framework: str = "allreduce", steps: int = 60) -> list[str]:
    """Return the arguments of ``singa-dask`` that run a job on a cluster."""
    sets = [f"train_steps={steps}", "disp_freq=10", "test_freq=0", "checkpoint_freq=20"]
    given = [part for each in sets for part in ("--set", each)]
    job, cluster = ROOT / "configs/digits/mlp.yaml", ROOT / f"configs/cluster/{framework}.yaml"
    where = ["--scheduler", client.scheduler.address, "--run-dir", str(run), "--cluster", str(cluster)]
    return ["run", str(job), *where, *given, *more]


def call(*arguments: str) -> Result:
    """Run ``singa-dask`` in this process."""
    return CliRunner().invoke(main, arguments, prog_name="singa-dask")


def detach(client: Client, run: Path, *more: str, **given: Any) -> str:
    """Start a detached job; return its id."""
    done = call(*arguments(client, run, "--detach", *more, **given))
    assert done.exit_code == 0, done.stderr
    job_id = done.stdout.strip()
    assert f"singa-dask attach {job_id}" in done.stderr
    return job_id


def ask(client: Client, what: Callable[..., Any], *given: Any) -> Any:
    return client.run_on_scheduler(what, *given)


def has_ended(job_id: str, dask_scheduler: Any) -> bool:
    jobs = dask_scheduler.plugins[JOBS]
    return job_id in jobs.history.facts and not jobs.detached.is_detached(job_id)


def running(dask_scheduler: Any) -> set[str]:
    """Return the ids of the running jobs; there is no plugin before the first job."""
    jobs = dask_scheduler.plugins.get(JOBS)
    return set(jobs.records) if jobs else set()


def driver_pid(job_id: str, dask_scheduler: Any) -> str:
    """Return the address of the Dask worker of the driver of a job."""
    return str(dask_scheduler.plugins[JOBS].detached._detached[job_id].worker)


def facts_of(job_id: str, dask_scheduler: Any) -> dict[str, Any]:
    return dask_scheduler.plugins[JOBS].history.facts[job_id].to_dict()  # type: ignore[no-any-return]


def metrics(run: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl without times, and without the place of the run, in order of kinds and steps.

    A checkpoint is written beside the training: metrics may be shown before or after it.
    """
    lines = (run / "metrics.jsonl").read_text().replace(str(run), "RUN").splitlines()
    found = [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]
    return sorted(found, key=lambda event: str(event["event"]))


def test_a_detached_job_writes_what_an_attached_one_writes(client: Client, tmp_path: Path) -> None:
    attached, detached = tmp_path / "attached", tmp_path / "detached"
    done = call(*arguments(client, attached))
    assert done.exit_code == 0, done.stderr
    job_id = detach(client, detached)
    wait_until(lambda: ask(client, has_ended, job_id), "the job has ended, and is written down")
    files = [{str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()} for run in (attached, detached)]
    assert files[0] == files[1]
    assert metrics(attached) == metrics(detached)
    for name in files[0]:
        if name.endswith(".safetensors") or name == "job.yaml":
            assert (attached / name).read_bytes() == (detached / name).read_bytes(), name
    summaries = [json.loads((run / "summary.json").read_text()) for run in (attached, detached)]
    assert summaries[0].keys() == summaries[1].keys()
    for key in ("state", "steps", "train", "restarts", "exit_code", "topology"):
        assert summaries[0][key] == summaries[1][key]
    facts = ask(client, facts_of, job_id)
    assert (facts["state"], facts["detached"], facts["run_url"]) == ("done", True, str(detached))


@pytest.mark.long
def test_who_watches_a_detached_job_is_told_what_it_has_learnt(client: Client, tmp_path: Path) -> None:
    job_id = detach(client, tmp_path / "run", "--set", "checkpoint_freq=0", framework="single", steps=1_000_000)
    on = (job_id, "--scheduler", client.scheduler.address)
    with subprocess.Popen(program("attach", *on), cwd=ROOT, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stderr is not None
        assert any("Train @ step" in line for line in watcher.stderr)
        stopped = subprocess.run(program("stop", *on), cwd=ROOT, capture_output=True, text=True, check=False)
        assert stopped.returncode == 0, stopped.stderr
        said = watcher.stderr.read()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    told = summary["learning"]["sentences"]
    assert told and told[0].startswith("train accuracy ")
    assert all(line in said for line in told)
    assert said.index(told[0]) < said.index(f"stopped: {summary['steps']} steps")


@pytest.mark.long
def test_a_lost_driver_is_started_elsewhere_and_nothing_is_written_twice(client: Client, tmp_path: Path) -> None:
    run, steps = tmp_path / "run", 1500
    job_id = detach(client, run, "--set", "checkpoint_freq=0", framework="single", steps=steps)
    wait_until(lambda: len(metrics(run)) > 5 if (run / "metrics.jsonl").exists() else False, "it trains")
    (pid,) = client.run(os.getpid, workers=[ask(client, driver_pid, job_id)]).values()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ask(client, has_ended, job_id), "the job has ended, and is written down")
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["resumes"]) == ("done", steps, 0)
    shown = [event["step"] for event in metrics(run) if event["event"] == "metrics"]
    assert shown == [*range(0, steps, 10), steps - 1]
    for log in (run / "log").iterdir():
        lines = log.read_text().splitlines()
        assert len(lines) == len(set(lines))


def test_a_detached_job_that_does_not_fit_is_refused_as_another_is(client: Client, tmp_path: Path) -> None:
    done = call(*arguments(client, tmp_path / "run", "--detach", "--set", "cluster.nworker_groups=5"))
    assert done.exit_code == 3
    assert "2 are ready" in done.stderr
    assert not done.stdout
    assert not (tmp_path / "run/job.yaml").exists()


def test_ctrl_c_before_the_id_is_shown_ends_the_job_and_says_who_ended_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        wait_until(lambda: bool(ask(client, running) - before), "the job is placed")
        started.extend(ask(client, running) - before)
        raise KeyboardInterrupt

    before, started = ask(client, running), list[str]()
    monkeypatch.setattr("singa_dask.runtime.job.client.detached.pause", interrupt)
    assert call(*arguments(client, tmp_path / "run", "--detach", steps=100_000)).exit_code == 130
    (job_id,) = started
    wait_until(lambda: ask(client, partial(has_ended, job_id)), "the job has ended")
    assert ask(client, partial(facts_of, job_id))["reason"] == f"killed by {this_user()}"


def test_a_run_directory_that_cannot_be_written_is_named_with_the_host(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call(*arguments(client, tmp_path / "file" / "run", "--detach"))
    assert done.exit_code != 0
    assert "the driver of the job runs there, and cannot write the run directory" in done.stderr


def test_without_a_scheduler_there_is_nothing_to_leave_a_job_to(tmp_path: Path) -> None:
    done = call("run", str(ROOT / "configs/digits/mlp.yaml"), "--run-dir", str(tmp_path / "run"), "--detach")
    assert done.exit_code == 2
    assert "--detach needs a cluster" in done.stderr
