"""What a loader allocates. A program too: the memory pool of pyarrow only knows the peak of a whole process."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from typing import cast

import pyarrow as pa

from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler, Shuffle
from singa_dask.data.stores import open_store

__all__ = ["BATCH", "allocated"]

BATCH = 48


def allocated(url: str, shuffle: Shuffle, bytes_bound: int) -> int:
    """Read a little more than an epoch; return the peak of bytes allocated by Python and NumPy."""
    with open_store(url) as store:
        order = Sampler([block.n for block in store.blocks], BATCH, shuffle, window=2, streams=1)
        gc.collect()
        tracemalloc.start()
        try:
            with Loader(store, order, bytes_bound=bytes_bound) as loader:
                for step in range(store.count // BATCH + 20):
                    loader.next()
                    if step % 25 == 10:
                        _wait_until_full(loader)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def _wait_until_full(loader: Loader) -> None:
    """Wait until the thread has read ahead as far as it may."""
    with loader._ready:
        while loader._thread is not None and not loader._is_full() and not loader._ended:
            loader._ready.wait()


if __name__ == "__main__":
    url, order, bytes_bound = sys.argv[1], cast(Shuffle, sys.argv[2]), int(sys.argv[3])
    print(allocated(url, order, bytes_bound) + (pa.default_memory_pool().max_memory() or 0))
