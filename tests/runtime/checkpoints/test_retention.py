"""What is deleted once a checkpoint is complete: never what another one is being written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.conf.metrics import KeepConf
from singa_dask.runtime.checkpoints.retention import Retention

LEFT = ".part-0-of-1.safetensors.0a1b2c3d.999.0f0f0f0f.tmp"


def make(directory: Path, step: int, *files: str) -> None:
    (directory / f"step-{step}").mkdir()
    for file in files:
        (directory / f"step-{step}" / file).touch()


@pytest.mark.parametrize("keep", [None, KeepConf(last=2)])
def test_what_killed_processes_have_left_is_deleted(tmp_path: Path, keep: KeepConf | None) -> None:
    part = "part-0-of-1.safetensors"
    for step in (10, 20, 40):
        make(tmp_path, step, part, "manifest.json")
    make(tmp_path, 30, part, LEFT)  # killed in mid-checkpoint
    make(tmp_path, 35, LEFT)  # another one is just written
    make(tmp_path, 50, LEFT)  # as is one that was begun since
    for name in (LEFT, "part-0-of-1.life-0.safetensors", "states-0-0.safetensors"):
        (tmp_path / "step-40" / name).touch()  # of an older incarnation, which did not complete it
    Retention(str(tmp_path), keep).tidy(40, [part], {35})
    steps = [20, 35, 40, 50] if keep else [10, 20, 35, 40, 50]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{step}" for step in steps]
    assert sorted(path.name for path in (tmp_path / "step-40").iterdir()) == ["manifest.json", part]
    assert (tmp_path / "step-35" / LEFT).exists()


@pytest.mark.parametrize("last", [False, True])
def test_the_one_before_stays_while_the_job_may_start_again_from_it(tmp_path: Path, last: bool) -> None:
    part = "part-0-of-1.safetensors"
    for step in (10, 20, 30):
        make(tmp_path, step, part, "manifest.json")
    Retention(str(tmp_path), KeepConf(last=1)).tidy(30, [part], last=last)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["step-30"] if last else ["step-20", "step-30"])
