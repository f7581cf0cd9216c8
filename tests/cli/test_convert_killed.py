"""A conversion that is killed and started again ends as if nothing had been."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.records import pixels
from tests.selection import mostly_soak

PROGRAM = Path(__file__).with_name("kill_convert.py")
N_POINTS = 12


@pytest.mark.long
@pytest.mark.parametrize("suffix", mostly_soak([".arrow", ".lmdb"], 2))
def test_killed_at_random_points_and_started_again(suffix: str, tmp_path: Path) -> None:
    records = pixels(400, (4, 5))
    np.savez(tmp_path / "source.npz", images=records["pixel"], labels=records["label"])
    command = [sys.executable, PROGRAM, tmp_path / "source.npz", tmp_path, suffix, N_POINTS, 2015]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["whole"] == 0, done.stderr
    names = [f"{part}-0000{i}-of-00004{suffix}" for part in ("test", "train") for i in range(4)]
    data = [f"{name}/data.mdb" if suffix == ".lmdb" else name for name in names]
    assert report["files"] == sorted([*(f"_singa/{name}.json" for name in names), "mean.bin", *data])
    assert report["touched"] > 100
    assert report["points"] == N_POINTS * [{"killed": signal.SIGKILL, "again": 0, "wrong": []}]
    assert "resuming a conversion" in done.stderr
