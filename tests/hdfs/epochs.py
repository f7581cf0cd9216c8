"""Epochs of records on an HDFS to which harm is done meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import open_store
from singa_dask.data.stores.arrow.arrow import ArrowStore
from tests.contracts.records import pixels

__all__ = ["check_epoch"]

N_STEPS, BATCH, HARMED_AT = 60, 100, 20


def check_epoch(url: str, harm: Callable[[], object], storage_options: Mapping[str, Any] | None = None) -> float:
    """Write records, and read them in their order: ``harm`` is done in the middle, and costs none of them.

    Returns
    -------
    float
        The longest time from one batch to the next, in seconds.
    """
    records, seen, times = pixels(N_STEPS * BATCH, (1000,)), [], []
    ArrowStore.write(url, records, storage_options)
    with open_store(url, storage_options=storage_options) as store:
        order = Sampler([block.n for block in store.blocks], BATCH, "none", seed=1)
        with Loader(store, order, bytes_bound=10 << 20, in_flight_bytes=0) as loader:
            for step in range(N_STEPS):
                if step == HARMED_AT:
                    harm()
                times.append(time.monotonic())
                batch = loader.next()
                times.append(time.monotonic())
                np.testing.assert_array_equal(batch.arrays["pixel"], records["pixel"][batch.ids])
                seen += batch.ids.tolist()
    assert seen == list(range(N_STEPS * BATCH))
    return max(end - begin for begin, end in zip(times[::2], times[1::2], strict=True))
