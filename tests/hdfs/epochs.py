"""Epochs of records on an HDFS to which harm is done meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from singa_dask.data.loading import Loader
from singa_dask.data.order import Sampler
from singa_dask.data.stores import open_store
from singa_dask.data.stores.arrow import ArrowStore
from tests.contracts.records import pixels

__all__ = ["check_epoch"]

N_STEPS, BATCH, HARMED_AT = 60, 100, 20


def check_epoch(url: str, harm: Callable[[], object], storage_options: Mapping[str, Any] | None = None) -> None:
    """Write records, and read them in their order: ``harm`` is done in the middle, and costs none of them."""
    records, seen = pixels(N_STEPS * BATCH, (1000,)), []
    ArrowStore.write(url, records, storage_options)
    with open_store(url, storage_options=storage_options) as store:
        order = Sampler([block.n for block in store.blocks], BATCH, "none", seed=1)
        with Loader(store, order, bytes_bound=10 << 20, in_flight_bytes=0) as loader:
            for step in range(N_STEPS):
                if step == HARMED_AT:
                    harm()
                batch = loader.next()
                np.testing.assert_array_equal(batch.arrays["pixel"], records["pixel"][batch.ids])
                seen += batch.ids.tolist()
    assert seen == list(range(N_STEPS * BATCH))
