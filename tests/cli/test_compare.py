"""``compare``: what it refuses, and a comparison on a real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client

from tests.cli.conftest import DIGITS, ROOT, Call, read
from tests.runtime.processes import small_cluster

CLUSTERS = ROOT / "configs" / "cluster"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--until", "accuracy"], "expected METRIC=VALUE"),
        (["--until", "accuracy=high"], "expected METRIC=VALUE"),
        (["--until", "figure=3"], "expected a metric that ends in accuracy, loss or error, got 'figure'"),
        (["--until", "validation.loss=1"], "Set validate_freq and validate_steps"),
        (["--clusters", "nowhere.yaml"], "--clusters nowhere.yaml: no such file"),
        (["--clusters", "downpou"], "Did you mean 'downpour'?"),
        (["--clusters", "single", "configs/cluster/single.yaml"], "two topologies are called 'single'"),
        (["--seeds", "0"], "0 is not in the range"),
        (["--set", "train_step=1"], "train_step"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(
    call: Call, job: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(ROOT)
    result = call("compare", job, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.long
@pytest.mark.cluster
def test_a_comparison(call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topologies that run, and one that does not fit the job; then again, with what is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text("nworkers_per_group: 500\n")
    downpour = tmp_path / "downpour.yaml"
    downpour.write_text((CLUSTERS / "downpour.yaml").read_text())
    given = ["compare", job, "--clusters", "single", downpour, "odd.yaml", "--run-dir", "all", "--json"]
    # so many that a run on a busy machine has not ended before it is told to stop
    given += ["--set", "train_steps=600", "--set", "test_freq=10", "-o", "out.html"]
    result = call(*given, "--until", "accuracy=0.3")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    single, shared, odd = found["topologies"]
    assert [each["name"] for each in (single, shared, odd)] == ["single", "downpour", "odd"]
    assert "expected a multiple of the 500 workers" in odd["reason"]
    (run,) = single["runs"]
    assert (run["state"], run["staleness"].keys()) == ("done", {"0"})
    assert run["reason"].startswith("reached test.accuracy ≥ 0.3 at step")
    assert run["target"]["samples"] == run["target"]["samples"] // 200 * 200 > 0
    assert run["steps"] < 600
    assert run["final"]["test.accuracy"] >= 0.3
    assert shared["runs"][0]["state"] == "done"
    assert shared["runs"][0]["steps"] <= 300
    assert "odd" in result.stderr
    assert "accuracy" in (tmp_path / "out.html").read_text()
    assert json.loads((tmp_path / "all/single/seed-7/summary.json").read_text())["state"] == "done"

    again = call(*given, "--overwrite", "--until", "accuracy=0.3")
    assert "1 of" not in again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["topologies"] == found["topologies"]
    other = call(*given, "--overwrite", "--until", "accuracy=0.4")
    assert other.exit_code == 2
    assert "a run of another comparison is there" in other.stderr


@pytest.mark.long
@pytest.mark.cluster
def test_published_datasets_are_compared_on_their_cluster(call: Call, job: Path, tmp_path: Path) -> None:
    job.write_text(job.read_text().replace(str(DIGITS), "dask://digits"))
    given = ["compare", job, "--clusters", "single", "--seeds", 2, "--set", "train_steps=4", "--json"]
    with (
        small_cluster(1, 6, local_directory=str(tmp_path / "scratch")) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        there = [*given, "--scheduler", cluster.scheduler_address, "--run-dir"]
        absent = call(*there, tmp_path / "absent")
        first = {name: values[:100] for name, values in read(DIGITS).items()}
        client.publish_dataset((first["pixel"].reshape(-1, 28, 28), first["label"]), name="digits")
        found = call(*there, tmp_path / "all")
        assert not list((tmp_path / "scratch").rglob("part-*"))
    assert absent.exit_code == 1, absent.output
    assert "dask://digits: no data of this name was passed" in absent.stderr
    assert not list((tmp_path / "absent").glob("*/*/job.yaml"))
    assert found.exit_code == 0, found.output
    [topology] = json.loads(found.stdout.splitlines()[-1])["topologies"]
    assert [run["state"] for run in topology["runs"]] == ["done", "done"]
    here = call(*given, "--run-dir", tmp_path / "here")
    assert here.exit_code == 1
    assert "no data named 'digits'. Pass it from Python" in here.stderr


@pytest.mark.cluster
def test_a_metric_that_no_net_has_is_said_at_the_first_test(call: Call, job: Path, tmp_path: Path) -> None:
    given = ["--clusters", "single", "--until", "top.accuracy=0.9", "--run-dir", tmp_path / "all"]
    result = call("compare", job, *given, "--quiet")
    assert result.exit_code == 2
    assert "the test net has no metric 'top.accuracy'. Known: loss, accuracy." in result.stderr


@pytest.mark.soak
@pytest.mark.cluster
def test_ctrl_c_ends_a_comparison_with_a_report(job: Path, tmp_path: Path) -> None:
    more = ["--set", "train_steps=1000000", "--seconds", "0.5", "--seeds", "50", "--run-dir", str(tmp_path / "all")]
    command = [sys.executable, "-m", "singa_dask", "compare", str(job), "--clusters", "single", *more]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while "3 of 50" not in said:
            said += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        said += process.stderr.read()
    assert process.returncode == 130, said
    assert ", 55, 56: stopped by SIGINT" in said
    assert ", 55, 56: stopped by SIGINT" in (tmp_path / "all/report.html").read_text()
    found = json.loads((tmp_path / "all/compare.json").read_text())
    states = [run["state"] for run in found["topologies"][0]["runs"]]
    assert states[:2] == ["done"] * 2
    assert set(states[4:]) == {"not run"}
    assert found["topologies"][0]["runs"][0]["reason"] == "trained for 0.5 s"
