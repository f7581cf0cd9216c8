"""``show``, ``plot``, ``diff`` and ``ckpt`` on a real run, and on what is wrong with one."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.selection import mostly_long

pytestmark = pytest.mark.cluster
GOLD = Path(__file__).parents[1] / "gold"


def test_a_run_is_described(trained: Path, call: Call) -> None:
    result = call("show", trained)
    assert result.exit_code == 0, result.output
    for text in ("tiny-", ": done", "checkpoints  step 6", "6 in ", "best         test.accuracy = ", "last metrics"):
        assert text in result.stdout
    facts = json.loads(call("show", trained, "--json").stdout)
    assert (facts["state"], facts["steps"], facts["job"]) == ("done", 6, "tiny")
    assert facts["checkpoints"] == {"6": f"{trained}/checkpoint/step-6"}
    assert sum(facts["time"].values()) == pytest.approx(1)


def test_metrics_as_csv(trained: Path, call: Call) -> None:
    rows = list(csv.DictReader(io.StringIO(call("show", trained, "--csv").stdout)))
    events = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == sum(event["event"] == "metrics" for event in events)
    train = next(row for row in rows if row["phase"] == "train")
    assert float(train["loss"]) > 0 and float(train["lr"]) == 0.05


@pytest.mark.parametrize("name", mostly_long(["a.png", "a.svg", "a.html"], 3))
@pytest.mark.long
def test_curves_as_a_file(trained: Path, call: Call, tmp_path: Path, name: str) -> None:
    result = call("plot", trained, "-o", tmp_path / name)
    assert (result.exit_code, result.stdout) == (0, "")
    assert (tmp_path / name).stat().st_size > 10_000


def test_curves_in_the_terminal(trained: Path, call: Call) -> None:
    result = call("plot", trained, "--terminal", "--over", "epoch")
    assert result.exit_code == 0
    assert "accuracy\n" in result.stdout and "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plot", "nowhere"), "nowhere: no run is here."),
        (("plot", "nowhere", "-o", "a.pdf"), "-o a.pdf: the name must end in .png, .svg, .html."),
        (("plot", "nowhere", "-o", "a.png", "--terminal"), "Pass one of them."),
        (("show", "nowhere"), "nowhere: no run is here."),
        (("show", "nowhere", "--csv", "--json"), "Pass one of them."),
        (("diff", "nowhere", "nowhere"), "nowhere: no run is here."),
    ],
)
def test_mistakes_are_said(call: Call, arguments: tuple[str, ...], message: str) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_differences_of_jobs_and_results(trained: Path, call: Call, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    text = (other / "resolved.yaml").read_text()
    (other / "resolved.yaml").write_text(text.replace("base_lr: 0.05", "base_lr: 0.1"))
    result = json.loads(call("diff", trained, other, "--json").stdout)
    assert result["job"] == {"updater.learning_rate.base_lr": [0.05, 0.1]}
    assert result["result"] == {}
    shown = call("diff", trained, other).stdout
    assert "updater.learning_rate.base_lr  0.05  0.1" in shown
    assert "result: no difference" in shown


def test_long_values_are_shown_where_they_differ(trained: Path, call: Call, tmp_path: Path) -> None:
    for name in "bc":
        shutil.copytree(trained, tmp_path / name)
        text = (trained / "resolved.yaml").read_text()
        (tmp_path / name / "resolved.yaml").write_text(text.replace("name: tiny", f"name: {'a' * 900}{name}", 1))
    lines = call("diff", tmp_path / "b", tmp_path / "c").stdout.splitlines()
    assert [f"…{'a' * 10}b", f"…{'a' * 10}c"] in [line.split()[1:] for line in lines]


def test_a_checkpoint_is_listed(trained: Path, call: Call) -> None:
    facts = json.loads(call("ckpt", trained, "--json").stdout)
    assert facts["step"] == 6 and facts["problems"] == []
    weights = facts["params"]["w"]
    assert (weights["shape"], weights["dtype"], weights["version"]) == ([10, 784], "float32", 6)
    assert weights["min"] < 0 < weights["max"] < weights["norm"]
    result = call("ckpt", trained / "checkpoint/step-6")
    assert result.exit_code == 0
    assert "step 6 of tiny, all checksums match" in result.stdout and "10×784" in result.stdout


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_what_is_wrong_with_a_checkpoint_is_said(trained: Path, call: Call, tmp_path: Path, harm: str) -> None:
    step = tmp_path / "step-6"
    shutil.copytree(trained / "checkpoint/step-6", step)
    part = next(step.glob("*.safetensors"))
    if harm == "damaged":
        content = bytearray(part.read_bytes())
        content[-1] ^= 1
        part.write_bytes(content)
    else:
        os.remove(part)
    result = call("ckpt", tmp_path)
    assert result.exit_code == 1
    assert "no checkpoint here is usable" in result.stdout
    assert part.name in result.stderr and "Traceback" not in result.stderr


def test_checkpoints_are_compared(trained: Path, call: Call) -> None:
    result = call("ckpt", trained, trained / "checkpoint/step-6")
    assert result.exit_code == 0 and "all values are equal" in result.stdout
    singa = GOLD / "end/mlp_sgd.bin"
    listed = call("ckpt", singa)
    assert listed.exit_code == 0 and "without checksums" in listed.stdout
    different = call("ckpt", trained, singa, "--json")
    assert different.exit_code == 1
    assert json.loads(different.stdout)["problems"]


def test_a_run_writes_event_files_and_tells_mlflow(
    job: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run, store = tmp_path / "run", tmp_path / "mlruns"
    result = call("run", job, "--run-dir", run, "--tensorboard", "--mlflow", store, "--json", "--quiet")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (0, "done"), result.output
    assert {path.name for path in (run / "tensorboard").iterdir()} == {"train", "test"}
    assert next(store.rglob("artifacts/summary.json")).read_bytes() == (run / "summary.json").read_bytes()
    assert "tensorboard: true" in (run / "resolved.yaml").read_text()


def test_without_its_package_an_observer_is_refused_before_the_job_starts(
    job: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    job.write_text(job.read_text() + "tensorboard: true\n")
    result = call("run", job, "--run-dir", tmp_path / "run")
    assert result.exit_code == 2
    assert re.search(r"tiny\.yaml:\d+:\d+: tensorboard: .*pip install 'singa-dask\[tensorboard\]'", result.stderr)
    assert not (tmp_path / "run").exists()


def test_a_profiled_run_has_a_table_of_its_layers(trained: Path, call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"layers": {"fc": {"forward_ms": 0.25, "backward_ms": 0.5}}, "step_parts": {"compute_ms": 1.5}}
    (run / "summary.json").write_text(json.dumps(summary))
    lines = [line.split() for line in call("show", run).stdout.splitlines()]
    assert ["layer", "forward", "(ms)", "backward", "(ms)"] in lines
    assert ["fc", "0.2500", "0.5000"] in lines
    assert ["compute", "1.5000"] in lines


def test_a_run_without_a_summary_was_killed_or_is_elsewhere(trained: Path, call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("summary.json"))
    shutil.rmtree(run / "checkpoint")
    shown = call("show", run).stdout
    assert shown.startswith("run: lost: no summary")
    assert not re.search("^checkpoints ", shown, re.MULTILINE)
