"""What our store and loader leave of the speed of HDFS: batches from blocks, beside raw reads of the same file.

Raw is hdfs-native's ``read_range`` of each block of the store. Both run in turn, on a real HDFS on this machine.
``python -m benchmarks.hdfs [--rounds N] [--records N]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import hdfs_native
import numpy as np

from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import STORES, open_store
from tests.hdfs.cluster import MiniHdfs

SHAPE = (28, 28)
BATCH = 250


def raw(root: str, url: str, backend: str) -> int:
    """Read every block of a file by hdfs-native alone."""
    with open_store(url, backend) as store:
        ranges = [(block.offset, block.length) for block in store.blocks]
    reader = hdfs_native.Client(root).read(url.removeprefix(root))
    started = time.perf_counter()
    n_bytes = sum(len(reader.read_range(offset, length)) for offset, length in ranges)
    return int(n_bytes / (time.perf_counter() - started))


def blocks(root: str, url: str, backend: str) -> int:
    """Read every block through the store."""
    with open_store(url, backend) as store:
        started = time.perf_counter()
        for block in store.blocks:
            store.read_block(block.id)
        return int(sum(block.length for block in store.blocks) / (time.perf_counter() - started))


def batches(root: str, url: str, backend: str) -> int:
    """Read one epoch of batches through store and loader."""
    with open_store(url, backend) as store:
        order = Sampler([block.n for block in store.blocks], BATCH, "none", seed=0)
        with Loader(store, order) as loader:
            started = time.perf_counter()
            for _ in range(store.count // BATCH):
                loader.next()
            return int(sum(block.length for block in store.blocks) / (time.perf_counter() - started))


def epochs(url: str, backend: str, folder: Path) -> list[int]:
    """Read two epochs of batches through a new cache: the first from HDFS, the second from the disk."""
    speeds = []
    with open_store(url, backend, {fs.CACHE: {"dir": str(folder)}}) as store:
        order = Sampler([block.n for block in store.blocks], BATCH, "none", seed=0)
        for _ in range(2):
            with Loader(store, order) as loader:
                started = time.perf_counter()
                for _ in range(store.count // BATCH):
                    loader.next()
                n_bytes = sum(block.length for block in store.blocks)
                speeds.append(int(n_bytes / (time.perf_counter() - started)))
    return speeds


def show_epochs(url: str, backend: str, rounds: int, folder: Path) -> None:
    """Print both epochs, each round with a cache of its own."""
    pairs = [epochs(url, backend, folder / f"{backend}-{i}") for i in range(rounds + 1)][1:]
    first, second = np.median(pairs, axis=0) / 2**20
    times = np.median([later / earlier for earlier, later in pairs])
    print(
        f"{backend:8} first epoch, into the cache {first:6.0f}   second, from the cache {second:6.0f} ({times:.1f} x)"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=60_000)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    records = {
        "pixel": random.integers(0, 256, (given.records, *SHAPE), np.uint8),
        "label": random.integers(0, 10, given.records).astype(np.int32),
    }
    ways: tuple[Callable[[str, str, str], int], ...] = (raw, blocks, batches)
    print(f"{given.records} records of {SHAPE[0]} x {SHAPE[1]} bytes; MiB/s, median of {given.rounds}; share of raw")
    with tempfile.TemporaryDirectory() as folder, MiniHdfs(Path(folder) / "cluster") as mini:
        os.environ["SINGA_DASK_CACHE"] = str(Path(folder) / "default")
        for backend in ("arrow", "kvfile"):
            url = f"{mini.url}/records.{backend}"
            STORES.find(backend).write(url, records)
            rounds = [[way(mini.url, url, backend) for way in ways] for _ in range(given.rounds + 1)][1:]
            speeds = np.median(rounds, axis=0) / 2**20
            shares = np.median([[speed / each[0] for speed in each] for each in rounds], axis=0)
            shown = (f"{w.__name__} {s:6.0f} ({r:4.0%})" for w, s, r in zip(ways, speeds, shares, strict=True))
            print(f"{backend:8}", "   ".join(shown))
            show_epochs(url, backend, given.rounds, Path(folder) / "cache")


if __name__ == "__main__":
    main()
