"""The active NameNode of two dies while records are read: the other one takes over, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from singa_dask import fs
from tests.hdfs.conftest import start_or_skip
from tests.hdfs.epochs import check_epoch
from tests.hdfs.pair import HdfsPair
from tests.runtime.ahead import read_little_ahead

# tests/hdfs/test_faults_of_jobs.py lets one fail over below a whole job
pytestmark = pytest.mark.soak


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[HdfsPair]:
    with start_or_skip(lambda: HdfsPair(tmp_path / "pair")) as pair:
        yield pair


def test_a_namenode_that_fails_over_in_mid_epoch_costs_no_record(
    pair: HdfsPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_ahead(monkeypatch.setattr)
    check_epoch(f"{pair.url}/epoch.arrow", pair.fail_over, pair.options)
    fs.write_atomic(f"{pair.url}/after", b"written", pair.options)
    assert fs.read_bytes(f"{pair.url}/after", storage_options=pair.options) == b"written"
