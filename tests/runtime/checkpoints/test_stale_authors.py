"""A process that slept while a newer incarnation of its job, or a later run, went on spoils no checkpoint of theirs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.conf.metrics import KeepConf
from singa_dask.errors import TakenOverError
from singa_dask.fs.ownership import Ownership
from singa_dask.runtime.checkpoints.author import Author, write_file, write_manifest
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, SavedTensor, step_url, write_part
from singa_dask.runtime.checkpoints.lookup import find
from singa_dask.runtime.checkpoints.retention import Retention
from singa_dask.runtime.checkpoints.snapshots import SnapshotStore

PARAMS = {"w": {"shape": [4], "dtype": "float32"}}
KEPT = KeepConf(last=1)


class Process:
    """The process with the first worker and the only server of a job."""

    def __init__(self, run: str, author: Author) -> None:
        self.directory = f"{run}/checkpoint"
        self.author = author
        self.retention = Retention(self.directory, KEPT, author=author)

    def part(self, step: int) -> dict[str, object]:
        """Write the part of its server; its values tell whose they are."""
        values = np.full(4, 10 * len(self.author.job_id) + self.author.incarnation, np.float32)
        save = partial(write_file, step_url(self.directory, step), author=self.author)
        return write_part(save, 0, 1, [SavedTensor(0, 0, "value", step, values)], ["w"])

    def complete(self, step: int, part: dict[str, object]) -> None:
        facts = {"job": "j", "step": step, "seed": 0, "params": PARAMS, "groups": {}}
        write_manifest(step_url(self.directory, step), [part], facts, author=self.author)

    def tidy(self, step: int, part: dict[str, object]) -> None:
        self.retention.tidy(step, [str(part["file"])])

    def write(self, step: int) -> None:
        part = self.part(step)
        self.complete(step, part)
        self.tidy(step, part)


def first_value(run: str, step: int) -> float:
    found = Checkpoint(find(run))
    assert found.step == step
    values = found.whole("w", "value")
    assert values is not None
    return float(values[0])


NEXT = pytest.mark.parametrize("newer", [Author("run", 1), Author("later", 0)])


@NEXT
@pytest.mark.parametrize("asleep_before", ["part", "complete", "tidy"])
def test_a_checkpoint_of_the_same_step(tmp_path: Path, newer: Author, asleep_before: str) -> None:
    run = str(tmp_path)
    Ownership(run, "run", 1).take()
    sleeper = Process(run, Author("run", 0))
    sleeper.write(10)
    part = sleeper.part(20) if asleep_before != "part" else {}
    if asleep_before == "tidy":
        sleeper.complete(20, part)
    Ownership(run, newer.job_id, 2).take()
    successor = Process(run, newer)
    its, url = successor.part(20), step_url(successor.directory, 20)
    other = write_file(url, "states-0-0.safetensors", [b""], author=newer)["file"]
    if asleep_before == "tidy":  # it deletes none that is just written
        sleeper.tidy(20, part)
    assert other in fs.ls(url)
    successor.complete(20, its)
    if asleep_before == "part":
        with pytest.raises(TakenOverError):
            sleeper.part(20)
    elif asleep_before == "complete":
        with pytest.raises(TakenOverError):
            sleeper.complete(20, part)
    sleeper.tidy(20, part or {"file": "part-0-of-1.safetensors"})
    assert first_value(run, 20) == 10 * len(newer.job_id) + newer.incarnation


@NEXT
def test_checkpoints_of_other_steps(tmp_path: Path, newer: Author, caplog: pytest.LogCaptureFixture) -> None:
    """It sleeps before it deletes older ones: there are some by then that the successor needs."""
    run = str(tmp_path)
    Ownership(run, "run", 1).take()
    sleeper = Process(run, Author("run", 0))
    part = sleeper.part(40)
    sleeper.complete(40, part)
    fs.remove_tree(step_url(sleeper.directory, 40))  # the successor begins before it
    Ownership(run, newer.job_id, 2).take()
    for step in (20, 30):
        Process(run, newer).write(step)
    sleeper.tidy(40, part)
    assert sorted(fs.ls(sleeper.directory)) == ["step-20", "step-30"]
    assert "old checkpoints could not be deleted" in caplog.text


@NEXT
def test_a_checkpoint_that_was_deleted_meanwhile(tmp_path: Path, newer: Author) -> None:
    """It wakes up when the successor has written its step, and later ones, and has deleted it."""
    run = str(tmp_path)
    Ownership(run, "run", 1).take()
    sleeper = Process(run, Author("run", 0))
    sleeper.write(10)
    part = sleeper.part(20)
    Ownership(run, newer.job_id, 2).take()
    for step in (20, 30, 40):
        Process(run, newer).write(step)
    Process(run, newer).part(50)  # not complete yet
    with pytest.raises(TakenOverError):
        sleeper.part(20)
    with pytest.raises(TakenOverError):
        sleeper.complete(20, part)
    assert not [name for name in fs.ls(sleeper.directory) if name == "step-20" and fs.ls(f"{sleeper.directory}/{name}")]


def test_a_checkpoint_of_a_step_before_one_of_an_earlier_run(tmp_path: Path) -> None:
    """The job was resumed from a step before the last one of that run."""
    run = str(tmp_path)
    Process(run, Author("earlier", 0)).write(40)
    Ownership(run, "run", 1).take()
    sleeper = Process(run, Author("run", 0))
    part = sleeper.part(20)
    Process(run, Author("run", 1)).write(20)
    with pytest.raises(TakenOverError):
        sleeper.complete(20, part)


@pytest.mark.parametrize("how", ["damaged", "unreadable"])
def test_a_manifest_that_cannot_be_read_stops_no_later_checkpoint(tmp_path: Path, how: str) -> None:
    run = str(tmp_path)
    process = Process(run, Author("run", 0))
    process.write(10)
    manifest = tmp_path / "checkpoint" / "step-10" / "manifest.json"
    manifest.unlink()
    if how == "damaged":
        manifest.write_bytes(b"{")
    else:
        manifest.mkdir()
    process.complete(20, process.part(20))
    assert first_value(run, 20) == 30


def test_a_newer_incarnation_goes_on_where_an_older_one_was(tmp_path: Path) -> None:
    run = str(tmp_path)
    Ownership(run, "run", 1).take()
    for incarnation in (0, 0, 1, 3):
        Process(run, Author("run", incarnation)).write(10)
        assert first_value(run, 10) == 30 + incarnation
    assert sorted(fs.ls(step_url(f"{run}/checkpoint", 10))) == ["manifest.json", "part-0-of-1.life-3.safetensors"]
    # a later run begins with incarnation 0 again
    Ownership(run, "later", 0).take()
    Process(run, Author("later", 0)).write(10)
    assert first_value(run, 10) == 50


def test_processes_of_several_incarnations_write_one_checkpoint(tmp_path: Path) -> None:
    """The first worker was replaced, and the server was not."""
    run = str(tmp_path)
    Ownership(run, "run", 1).take()
    server, first = Process(run, Author("run", 1)), Process(run, Author("run", 2))
    for step in (10, 20):
        first.complete(step, server.part(step))
        assert first_value(run, step) == 31
    # and now it is
    server.part(30)
    successor = Process(run, Author("run", 3))
    first.complete(30, successor.part(30))
    for step in (30, 40):
        with pytest.raises(TakenOverError):
            server.part(step)
    with pytest.raises(TakenOverError):
        server.complete(40, {})
    assert first_value(run, 30) == 33


def test_a_part_of_a_snapshot() -> None:
    store = SnapshotStore()
    store.put("job", "step-5/part-0-of-2.safetensors", 5, b"old", 0)
    store.put("job", "step-8/part-0-of-2.life-1.safetensors", 8, b"new", 8)
    store.put("job", "step-6/part-0-of-2.safetensors", 6, b"late", 5)
    store.put("job", "step-6/part-1-of-2.safetensors", 6, b"of another server", 5)
    assert store.get("job", "step-8/part-0-of-2.life-1.safetensors") == b"new"
    assert store.get("job", "step-6/part-0-of-2.safetensors") is None
    assert store.get("job", "step-6/part-1-of-2.safetensors") == b"of another server"
