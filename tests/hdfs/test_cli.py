"""``singa-dask run`` on a real HDFS and a Dask cluster of processes, as in the README: the same as on a local disk."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client

from singa_dask import fs
from tests.cli.conftest import TINY
from tests.runtime.processes import ROOT, program

DIGITS = ROOT / "data/digits/test.arrow"


def metrics(run: str) -> list[dict[str, Any]]:
    """Return the figures of each step that a run directory tells."""
    lines = fs.read_bytes(fs.join(run, "metrics.jsonl")).decode().splitlines()
    events = [json.loads(line) for line in lines]
    figures = ("phase", "group", "step", "loss", "accuracy")
    return [{name: event[name] for name in figures} for event in events if event["event"] == "metrics"]


@pytest.mark.cluster
@pytest.mark.long
def test_a_run_from_hdfs_is_the_run_from_a_local_file(beside: Client, folder: str, tmp_path: Path) -> None:
    records = fs.join(folder, "records.arrow")
    fs.write_atomic(records, DIGITS.read_bytes())
    runs = {str(DIGITS): str(tmp_path / "run"), records: fs.join(folder, "run")}
    for number, (path, run) in enumerate(runs.items()):
        job = tmp_path / f"{number}.yaml"
        job.write_text(TINY.replace(str(DIGITS), path))
        options = ["--cluster", "configs/cluster/allreduce.yaml", "--set", "disp_freq=1", "--set", "test_freq=2"]
        arguments = ["run", str(job), "--scheduler", beside.scheduler.address, "--run-dir", run, "--json", *options]
        done = subprocess.run(program(*arguments), cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert summary == json.loads(fs.read_bytes(fs.join(run, "summary.json")))
        assert (summary["state"], summary["steps"]) == ("done", 6)
    local, remote = map(metrics, runs.values())
    assert [event["step"] for event in local if event["phase"] == "train"] == list(range(6))
    assert {event["phase"] for event in local} == {"train", "test"}
    assert remote == local
    assert fs.exists(fs.join(folder, "run", "checkpoint", "step-6", "manifest.json"))


@pytest.mark.cluster
@pytest.mark.long
def test_the_way_from_a_table_on_hdfs_to_predictions(beside: Client, folder: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=4000), "b": random.normal(size=4000)})
    frame["kind"] = np.where(frame["a"] > frame["b"], "more", "less")
    frame["owner"] = random.integers(0, 300, len(frame))
    for i in range(4):
        fs.write_atomic(fs.join(folder, "table", f"part-{i:05d}.parquet"), frame.iloc[i::4].to_parquet(index=False))
    fs.write_atomic(fs.join(folder, "table", "_SUCCESS"), b"")
    fs.write_atomic(fs.join(folder, "new.csv"), frame[["a", "b"]].to_csv(index=False).encode())

    def call(*arguments: str) -> str:
        done = subprocess.run(program(*arguments), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run, workers = fs.join(folder, "run"), ["--scheduler", beside.scheduler.address]
    call("init", fs.join(folder, "table"), "--label", "kind", "--split-by", "owner")
    topology = ["--cluster", str(ROOT / "configs/cluster/allreduce.yaml"), "--set", "train_steps=400"]
    summary = json.loads(call("run", "job.yaml", *workers, *topology, "--run-dir", run, "--json"))
    assert summary["test"]["accuracy"] > 0.95
    given = ["--init-from", run, "--data", fs.join(folder, "new.csv"), "--out", fs.join(folder, "classes.csv")]
    call("predict", "job.yaml", *workers, *given)
    predicted = pd.read_csv(io.BytesIO(fs.read_bytes(fs.join(folder, "classes.csv"))))
    assert (predicted["class"] == frame["kind"]).mean() > 0.95
    # nothing is copied to where the commands run
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]
    call("init", fs.join(folder, "table"), "--label", "kind", "--drop", "owner", "--copy", "-o", "copied.yaml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copied.yaml", "job.yaml"]
    parts = [fs.join(folder, "copied-data", name) for name in fs.ls(fs.join(folder, "copied-data"))]
    found = pd.concat(pd.read_parquet(io.BytesIO(fs.read_bytes(part))) for part in parts)
    assert sorted(found["a"]) == sorted(frame["a"])
