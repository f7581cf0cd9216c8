"""A process that falls asleep while it writes to HDFS, and was replaced when it wakes up, changes nothing."""

from __future__ import annotations

import pytest

from singa_dask import fs
from singa_dask.errors import TakenOverError
from singa_dask.fs.ownership import Ownership

pytestmark = pytest.mark.long


def test_an_owner_that_falls_asleep_in_a_write_changes_nothing(folder: str) -> None:
    sleeper, newer, file = Ownership(folder, "job", 1), Ownership(folder, "job", 2), fs.join(folder, "metrics.jsonl")
    sleeper.take()

    def wake() -> None:
        assert len(fs.ls(folder)) == 2, "its content is not there yet"
        newer.take()
        fs.write_atomic(file, b"all of it", check=newer.check)
        sleeper.check()

    with pytest.raises(TakenOverError):
        fs.write_atomic(file, b"stale", check=wake)
    assert fs.read_bytes(file) == b"all of it"
    assert fs.ls(folder) == ["metrics.jsonl", "owner.json"]
