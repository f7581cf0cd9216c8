"""``validate``: every broken job is told with its places, every good one is shown."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from singa_dask import fs
from singa_dask.errors import ConfigError
from singa_dask.ops import NumpyOps
from singa_dask.runtime.planning import nets
from tests.cli.conftest import ROOT, TINY, Call

BROKEN = sorted((ROOT / "tests" / "conf" / "files" / "broken").glob("*.yaml"))
PLACED = re.compile(r"[^:]+\.yaml:\d+:\d+: ")


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_broken_job_is_told_with_its_places(call: Call, path: Path) -> None:
    result = call("validate", path)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert PLACED.match(result.stderr)
    assert "Traceback" not in result.stderr


@pytest.mark.soak
def test_a_broken_job_as_a_program() -> None:
    path = ROOT / "tests" / "conf" / "files" / "broken" / "many.yaml"
    done = subprocess.run(
        [sys.executable, "-c", "from singa_dask.cli import main; main()", "validate", str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) > 1
    assert all(PLACED.match(line) for line in done.stderr.splitlines())


def test_a_job_that_is_not_there(call: Call, tmp_path: Path) -> None:
    result = call("validate", tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert "none.yaml: cannot read this file" in result.stderr


def test_a_job_at_a_url(call: Call, job: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}/jobs/job.yaml"
    fs.write_atomic(url, job.read_bytes())
    assert call("validate", url).stdout == call("validate", job).stdout
    fs.write_atomic(url, TINY.replace("seed", "sede").encode())
    assert call("validate", url).stderr.startswith(f"{url}:2:1: sede: unknown key")
    missing = call("validate", f"{url}.old")
    assert (missing.exit_code, missing.stderr) == (2, f"{url}.old: no such file or directory.\n")


def test_records_that_are_not_there(call: Call, job: Path) -> None:
    change = ("--set", "neuralnet.layer[data].store_conf.path=nowhere.arrow")
    result = call("validate", job, *change)
    assert result.exit_code == 0, result.output
    said = "nowhere.arrow: no such file or directory, so the records were not checked.\n"
    assert result.stderr == f"{' '.join(change)}: neuralnet.layer[data].store_conf.path: warning: {said}"
    assert "7,850 values to learn" in result.stdout
    assert call("validate", job, *change, "--strict").exit_code == 2
    assert call("graph", job, *change).exit_code == 0
    result = call("run", job, *change)
    assert result.exit_code == 2
    assert "nowhere.arrow: no such file or directory.\n" in result.stderr


def test_records_that_are_there_are_looked_at_beside_others(call: Call, job: Path) -> None:
    text = job.read_text()
    other = text[text.index("    - name: data") : text.index("    - name: fc")].replace("test.arrow", "nowhere.arrow")
    other = other.replace("type: Rec", "include: test\n      type: Rec")
    job.write_text(text.replace("type: RecordInput", "include: train\n      type: RecordInput") + other)
    result = call("validate", job)
    assert (result.exit_code, result.stderr.count("nowhere.arrow: no such file")) == (0, 1)
    job.write_text(job.read_text().replace("[28, 28]", "[28, 27]"))
    result = call("validate", job)
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert "test.arrow" in line


def test_a_wrong_shape_has_its_place(call: Call, job: Path) -> None:
    job.write_text(job.read_text().replace("shape: [28, 28]", "shape: [28, 27]"))
    result = call("validate", job)
    assert result.exit_code == 2
    assert PLACED.match(result.stderr)


def test_mistakes_of_the_command_line_are_told_like_others(call: Call, job: Path) -> None:
    result = call("validate", job, "--set", "train_step=3", "--set", "updater.momentum=2")
    assert result.exit_code == 2
    assert "train_steps" in result.stderr
    assert "updater.momentum" in result.stderr


def test_kernels_that_are_not_there_are_named_at_their_place(
    call: Call, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_ops(name: str, precision: str) -> NumpyOps:
        raise ConfigError(f"{name} cannot be used here. Install it.")

    monkeypatch.setattr(nets, "get_ops", get_ops)
    text = job.read_text()
    job.write_text(f"{text}\nops: onednn\n")
    result = call("validate", job)
    assert result.exit_code == 2
    assert result.stderr == f"{job}:{len(text.splitlines()) + 2}:6: ops: onednn cannot be used here. Install it.\n"


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("gpu=[1]", ["worker-0-0 on cuda:1, worker-0-1, server-0-0", "worker-1-0 on cuda:1, worker-1-1, server-0-1"]),
        ("ops=cupy", [f"worker-{i}-0 on a GPU, worker-{i}-1 on a GPU, server-0-{i}" for i in range(2)]),
    ],
)
def test_a_job_on_gpus_is_shown_where_there_are_none(call: Call, job: Path, change: str, shown: list[str]) -> None:
    groups = ("nworker_groups=2", "nworkers_per_group=2", "nworkers_per_procs=2", "nservers_per_group=2")
    sets = [word for each in groups for word in ("--set", f"cluster.{each}")]
    result = call("validate", job, *sets, "--set", change, "--set", "precision=bf16")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-2:] == [f"process {i}: {units}" for i, units in enumerate(shown)]


def test_a_good_job_is_shown(call: Call, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.runtime.planning.machine.cpu_count", lambda: 2)
    cluster = ROOT / "configs" / "cluster" / "allreduce.yaml"
    result = call("validate", job, "--cluster", cluster)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "train net\n" in result.stdout
    assert "test net\n" in result.stdout
    assert "InnerProduct" in result.stdout
    assert re.match(r"on this machine: ops (numpy|onednn), \d+ threads? a worker$", result.stdout.splitlines()[-3])
    assert result.stdout.splitlines()[-2:] == [
        "process 0: worker-0-0, server-0-0",
        "process 1: worker-0-1, server-0-1",
    ]
