"""``run``: what it hands to the driver, what it leaves, what it says, and with which code it ends."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from singa_dask.errors import ClusterError
from singa_dask.runtime import Result
from singa_dask.runtime.job.checks.job import check_job
from tests.cli.conftest import ROOT, Call

SUMMARY_KEYS = {
    "job",
    "state",
    "steps",
    "seconds",
    "topology",
    "restarts",
    "train",
    "test",
    "validation",
    "step_ms",
    "samples_per_s",
    "wait_ms",
    "bytes",
    "ops",
    "devices",
    "threads",
    "peak_memory",
}


def result_of(**given: Any) -> Result:
    facts: dict[str, Any] = {
        "job": "tiny",
        "id": "tiny-1",
        "state": "done",
        "steps": 6,
        "seconds": 1.25,
        "topology": {},
        "restarts": 0,
        "train": {"loss": 0.5},
        "test": {},
        "validation": {},
        "step_ms": {"median": 1.0, "p95": 2.0},
        "samples_per_s": 10.0,
        "wait_ms": {"data": 0.0, "params": 0.0},
        "bytes": {"sent": 0, "received": 0},
    }
    return Result(**{**facts, **given})


class FakeDriver:
    """Takes what the real one takes; ends as it is told."""

    made: ClassVar[list[FakeDriver]]
    has_begun: ClassVar[bool] = True
    ends: Callable[[FakeDriver], Result]

    def __init__(self, run: Any, client: Any, **given: Any) -> None:
        self.client, self.given = client, vars(run) | given
        self.stops: list[str] = []
        self.made.append(self)

    def run(self) -> Result:
        self.given["on_event"]({"event": "started", "job": self.given["job_id"], "time": 0.0, "topology": {}})
        event = {"event": "metrics", "phase": "train", "group": 0, "step": 0, "time": 0.0, "loss": 0.5}
        self.given["on_event"](event)
        return type(self).ends(self)

    def stop(self, name: str) -> None:
        self.stops.append(name)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> type[FakeDriver]:
    """Put a driver that runs nothing in the place of the real one, and no cluster below it."""

    class Driver(FakeDriver):
        made: ClassVar[list[FakeDriver]] = []
        ends = staticmethod(lambda self: result_of())

    @contextlib.contextmanager
    def cluster(where: Any, scheduler_file: str | None = None, patience: Any = None) -> Iterator[tuple[Any, ...]]:
        yield (scheduler_file or where,)

    monkeypatch.setattr("singa_dask.runtime.job.driver.job_run.Driver", Driver)
    for name in ("connect", "embedded_cluster"):
        monkeypatch.setattr(f"singa_dask.jobs.cluster.{name}", cluster)
    monkeypatch.setattr("singa_dask.jobs.cluster.install_jobs", lambda client: None)
    monkeypatch.setattr("singa_dask.cli.run.describe_cluster", str)
    return Driver


def test_a_run_leaves_a_directory_and_a_summary(
    call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path
) -> None:
    url = tmp_path / "run"
    result = call("run", job, "--run-dir", url, "--json", "--set", "seed=9")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((url / "summary.json").read_text())
    assert set(json.loads(result.stdout)) >= SUMMARY_KEYS
    assert (url / "job.yaml").read_text() == job.read_text()
    assert "seed: 9" in (url / "resolved.yaml").read_text()
    assert [json.loads(line)["step"] for line in (url / "metrics.jsonl").read_text().splitlines()] == [0]
    assert result.stderr.splitlines() == [
        f"run directory: {url}",
        "Train @ step 0: loss = 0.5000",
        f"done: 6 steps in 1.2 s; see {url}",
        f"look further: singa-dask show {shlex.quote(str(url))}; singa-dask plot {shlex.quote(str(url))}",
    ]
    (made,) = driver.made
    assert made.given["run_url"] == str(url)
    assert made.given["resume"] is None


def test_what_is_named_after_a_run_works_without_extras(
    call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("singa_dask.cli.run.find_spec", lambda name: None)
    result = call("run", job, "--run-dir", tmp_path / "run")
    assert result.stderr.splitlines()[-1] == f"look further: singa-dask show {tmp_path / 'run'}"


def test_it_is_told_how_much_was_read_locally(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    moved = {"sent": 0, "received": 0, "local": 975, "remote": 25}
    driver.ends = staticmethod(lambda self: result_of(bytes=moved))
    result = call("run", job, "--run-dir", tmp_path / "run")
    told = f"done: 6 steps in 1.2 s, 98 % of the records read locally; see {tmp_path / 'run'}"
    assert result.stderr.splitlines()[-2] == told


def test_it_is_told_how_much_memory_was_used(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    driver.ends = staticmethod(lambda self: result_of(peak_memory=300 << 20))
    result = call("run", job, "--run-dir", tmp_path / "run")
    told = f"done: 6 steps in 1.2 s, at most 300 MiB a process; see {tmp_path / 'run'}"
    assert result.stderr.splitlines()[-2] == told


def test_bad_records_are_told_once_at_the_end(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    driver.ends = staticmethod(lambda self: result_of(bad_records=3))
    result = call("run", job, "--run-dir", tmp_path / "run")
    told = f"skipped or replaced: 3 bad records; see {tmp_path / 'run'}/bad_records.jsonl"
    assert result.stderr.splitlines()[-3:-1] == [told, f"done: 6 steps in 1.2 s; see {tmp_path / 'run'}"]


def test_quiet_says_nothing(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    assert call("run", job, "--run-dir", tmp_path / "run", "--quiet").output == ""


@pytest.mark.parametrize(("options", "parent"), [([], "runs"), (["--set", "cluster.workspace=work"], "work")])
def test_runs_have_a_directory_each(
    call: Call,
    job: Path,
    driver: type[FakeDriver],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    parent: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert call("run", job, *options).exit_code == 0
    assert {made.given["job_id"] for made in driver.made} == {each.name for each in (tmp_path / parent).iterdir()}


def test_a_run_is_not_written_over(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    assert call("run", job, "--run-dir", tmp_path / "run").exit_code == 0
    again = call("run", job, "--run-dir", tmp_path / "run")
    assert again.exit_code == 2
    assert "a run is already there" in again.stderr
    assert len(driver.made) == 1


@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_directory_with_a_job_and_files_of_its_user_is_no_run(
    call: Call, job: Path, driver: type[FakeDriver], options: list[str]
) -> None:
    (job.parent / "job.yaml").write_bytes(job.read_bytes())
    (job.parent / "checkpoint").mkdir()
    (job.parent / "checkpoint" / "weights.bin").touch()
    result = call("run", job, "--run-dir", job.parent, *options)
    assert result.exit_code == 2
    contained = ", ".join(["checkpoint"] * bool(options) + ["job.yaml"])
    assert f"not a run directory, but it contains {contained}, which a run would replace" in result.stderr
    assert (job.parent / "checkpoint" / "weights.bin").exists()


def test_so_it_is_with_overwrite(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    run = tmp_path / "run"
    for options in ([], ["--overwrite", "--set", "seed=9"]):
        assert call("run", job, "--run-dir", run, *options).exit_code == 0
    assert "seed: 9" in (run / "resolved.yaml").read_text()
    (command,) = [json.loads(line) for line in (run / "commands.jsonl").read_text().splitlines()]
    assert command["arguments"] == [
        "singa-dask", "run", str(job), "--set", "seed=9", "--run-dir", str(run), "--overwrite"
    ]  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--resume"], ["--overwrite"]])
def test_a_run_that_ended_before_its_first_checkpoint_starts_over(
    call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path, options: list[str]
) -> None:
    def killed(self: FakeDriver) -> Result:
        raise ClusterError("as if it had been killed")

    ends, driver.ends = driver.ends, staticmethod(killed)
    run = tmp_path / "run"
    assert call("run", job, "--run-dir", run).exit_code == 3
    driver.ends = ends
    again = call("run", job, "--run-dir", run, *options)
    assert again.exit_code == 0, again.stderr
    assert driver.made[1].given["resume"] is None
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 1
    assert json.loads((run / "summary.json").read_text())["resumes"] == 0


def test_it_starts_over_with_the_values_it_had(
    call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "singa_dask.jobs.checks.check_job", lambda conf, **given: check_job(conf, **{**given, "init_from": ()})
    )
    monkeypatch.setattr("singa_dask.runtime.checkpoints.lookup.find_values", str)
    run = tmp_path / "run"
    driver.ends = staticmethod(lambda self: result_of(state="failed", exit_code=1, reason="why"))
    call("run", job, "--run-dir", run, "--init-from", tmp_path / "values")
    result = call("run", job, "--run-dir", run, "--resume")
    assert driver.made[1].given["init_from"] == (str(tmp_path / "values"),)
    assert result.stderr.splitlines()[-1] == (
        "after fixing that, to resume from step 0: "
        + shlex.join(["singa-dask", "run", str(job), "--run-dir", str(run), "--resume"])
    )


@pytest.mark.parametrize("options", [["--overwrite"], ["--overwrite", "--run-dir", "x", "--resume"]])
def test_overwrite_says_what(call: Call, job: Path, driver: type[FakeDriver], options: list[str]) -> None:
    result = call("run", job, *options)
    assert result.exit_code == 2
    assert "--overwrite replaces the run in --run-dir" in result.stderr


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"state": "failed", "exit_code": 1, "reason": "worker-0-0, step 3: why", "error": "Traceback of a unit"}, 1),
        ({"state": "failed", "exit_code": 4, "reason": "lost"}, 4),
        ({"state": "failed", "exit_code": 5, "reason": "loss is nan"}, 5),
        ({"state": "stopped", "exit_code": 143, "reason": "stopped by SIGTERM"}, 143),
    ],
)
def test_an_end_is_told_and_has_its_code(
    call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path, end: dict[str, Any], code: int
) -> None:
    driver.ends = staticmethod(lambda self: result_of(**end))
    result = call("run", job, "--run-dir", tmp_path / "run")
    assert result.exit_code == code
    assert end["reason"] in result.stderr
    assert end.get("error", "") in result.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == end["state"]


def test_a_failure_is_told_even_when_quiet(call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path) -> None:
    driver.ends = staticmethod(lambda self: result_of(state="failed", exit_code=1, reason="why"))
    assert call("run", job, "--run-dir", tmp_path / "run", "--quiet").stderr == "why\n"


STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]


@pytest.mark.parametrize("number", STOPS)
def test_signals_go_to_the_driver(
    call: Call, job: Path, driver: type[FakeDriver], tmp_path: Path, number: signal.Signals
) -> None:
    def ends(self: FakeDriver) -> Result:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        return result_of(state="stopped", exit_code=128 + number)

    before = signal.getsignal(number)
    driver.ends = staticmethod(ends)
    assert call("run", job, "--run-dir", tmp_path / "run").exit_code == 128 + number
    assert driver.made[0].stops == [number.name, number.name]
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_before_the_job_has_started_ends_the_program(
    call: Call,
    job: Path,
    driver: type[FakeDriver],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    @contextlib.contextmanager
    def cluster(*args: Any) -> Iterator[None]:
        os.kill(os.getpid(), number)
        yield

    monkeypatch.setattr("singa_dask.jobs.cluster.embedded_cluster", cluster)
    result = call("run", job, "--run-dir", tmp_path / "run")
    assert result.exit_code == 128 + number
    assert f"{number.name}: stopped before the job had started" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "env", "cluster"),
    [
        (["--scheduler", "tcp://a:1"], {}, "tcp://a:1"),
        ([], {"DASK_SCHEDULER_ADDRESS": "tcp://b:2"}, "tcp://b:2"),
        (["--scheduler", "tcp://a:1"], {"DASK_SCHEDULER_ADDRESS": "tcp://b:2"}, "tcp://a:1"),
        (["--scheduler-file", "s.json"], {"DASK_SCHEDULER_ADDRESS": "tcp://b:2"}, "s.json"),
    ],
)
def test_the_cluster_that_was_named_is_used(
    call: Call,
    job: Path,
    driver: type[FakeDriver],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    env: dict[str, str],
    cluster: str,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert call("run", job, "--run-dir", tmp_path / "run", *options).exit_code == 0
    assert driver.made[0].client == (cluster,)


def test_no_scheduler_is_said(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str, *given: Any) -> Any:
        raise ClusterError(f"{address}: no Dask scheduler answers there.")

    monkeypatch.setattr("singa_dask.jobs.cluster.connect", refuse)
    result = call("run", job, "--run-dir", tmp_path / "run", "--scheduler", "tcp://a:1")
    assert result.exit_code == 3
    assert result.stderr == "tcp://a:1: no Dask scheduler answers there.\n"
    assert not (tmp_path / "run").exists()


def test_resume_and_init_from_exclude_each_other(call: Call, job: Path, driver: type[FakeDriver]) -> None:
    result = call("run", job, "--resume", "--init-from", "somewhere")
    assert result.exit_code == 2
    assert "Pass one of them" in result.stderr


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ["--resume"],
            2,
            "runs: there is no run of job 'tiny' with a checkpoint. Pass one with --resume URL or --run-dir.\n",
        ),
        (
            ["--resume", "nowhere"],
            1,
            "{here}/nowhere: no such file or directory.\n",
        ),
    ],
    ids=["the last", "by name"],
)
def test_nothing_to_resume_is_said(
    call: Call,
    job: Path,
    driver: type[FakeDriver],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("run", job, *options)
    assert (result.exit_code, result.stderr) == (code, said.replace("{here}", str(tmp_path)))
    assert driver.made == []


@pytest.mark.cluster
def test_a_real_run_stops_and_goes_on(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = call("run", job, "--set", "train_steps=3", "--json")
    assert first.exit_code == 0, first.output
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "checkpoint" / "step-3" / "manifest.json").exists()
    more = call("run", job, "--resume", "--json")
    assert more.exit_code == 0, more.output
    assert json.loads(more.stdout)["steps"] == 6
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event.get("phase") == "train"] == [0, 2, 4, 5]
    again = call("run", job, "--resume")
    assert again.exit_code == 0
    assert "train_steps is 6, and the checkpoint has step 6: no step is left." in again.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["resumes"]) == ("done", 6, 2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [each["step"] for each in lines if each["event"] == "checkpoint"] == [3, 6]
    other = call("run", job, "--init-from", run, "--run-dir", tmp_path / "other", "--json")
    assert json.loads(other.stdout)["steps"] == 6
    values = json.loads(other.stdout)["train"]
    assert values["loss"] < json.loads(first.stdout)["train"]["loss"]


@pytest.mark.cluster
@pytest.mark.long
def test_ctrl_c_reaches_all_processes_and_stops_the_job_with_a_checkpoint(job: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from singa_dask.cli import main; main()"]
    options = ["--cluster", str(ROOT / "configs/cluster/allreduce.yaml"), "--set", "train_steps=1000000"]
    run = subprocess.Popen(
        [*program, "run", str(job), "--run-dir", str(tmp_path / "run"), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith("Train @ step 2:"):
                os.killpg(run.pid, signal.SIGINT)
    assert run.returncode == 130
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["state"] == "stopped"
    assert line.startswith(f"to resume from step {summary['steps']}: ") and f" run {shlex.quote(str(job))} " in line
    assert (tmp_path / "run" / "checkpoint" / f"step-{summary['steps']}" / "manifest.json").exists()
