"""The active NameNode of two dies while records are read: the other one takes over, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.order import Sampler
from singa_dask.data.stores import open_store
from singa_dask.data.stores.arrow import ArrowStore
from tests.contracts.records import pixels
from tests.hdfs.conftest import start_or_skip
from tests.hdfs.pair import HdfsPair
from tests.runtime.ahead import read_little_ahead

pytestmark = pytest.mark.long


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[HdfsPair]:
    with start_or_skip(lambda: HdfsPair(tmp_path / "pair")) as pair:
        yield pair


def test_a_namenode_that_fails_over_in_mid_epoch_costs_no_record(
    pair: HdfsPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_little_ahead(monkeypatch.setattr)
    url, records = f"{pair.url}/epoch.arrow", pixels(6000, (1000,))
    ArrowStore.write(url, records, pair.options)
    with open_store(url, storage_options=pair.options) as store:
        order = Sampler([block.n for block in store.blocks], 100, "none", seed=1)
        with Loader(store, order, bytes_bound=10 << 20, in_flight_bytes=0) as loader:
            for step in range(60):
                if step == 20:
                    pair.fail_over()
                batch = loader.next()
                assert batch.ids.tolist() == list(range(100 * step, 100 * step + 100))
                np.testing.assert_array_equal(batch.arrays["pixel"], records["pixel"][batch.ids])
    fs.write_atomic(f"{pair.url}/after", b"written", pair.options)
    assert fs.read_bytes(f"{pair.url}/after", storage_options=pair.options) == b"written"
