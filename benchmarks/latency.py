"""Batches from a filesystem whose requests take long, beside 32 concurrent range reads by hand.

The filesystem is a real HDFS on this machine, reached by proxies that hold each piece of data for 1, 5 or 20 ms in each
direction; with ``--memory``, files in memory, where each request is answered after so long. By hand means that a pool
of 32 threads reads the same ranges, from HDFS by hdfs-native alone, and does nothing with them. Both run in turn.
``python -m benchmarks.latency [--memory] [--formats NAME ...] [--rounds N] [--megabytes N] [--io-threads N]
[--in-flight-mb N]``
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import hdfs_native
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem

from benchmarks.slow_hdfs import SlowHdfs
from singa_dask import fs
from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler, Shuffle
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays

SHAPE = (28, 28)
BATCH = 250
DELAYS_S = (0.001, 0.005, 0.02)
BY_HAND = 32
# suffix -> backend
FORMATS = {"arrow": "arrow", "kvfile": "kvfile", "parquet": "parquet", "pq": "table", "csv": "table"}

Read = Callable[[int, int], Sized]


class Slow(MemoryFileSystem):
    """Files in memory; each read takes `delay_s` longer."""

    protocol = "slow"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    delay_s = 0.0

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        time.sleep(self.delay_s)
        data: memoryview = self.store[self._strip_protocol(path)].getbuffer()
        return bytes(data[start:end])

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return MemoryFileSystem._strip_protocol(str(path).replace("slow://", "memory://"))


def images(n_bytes: int) -> Arrays:
    """Make records of 784 bytes."""
    random, n = np.random.default_rng(0), n_bytes // 784
    return {
        "pixel": random.integers(0, 256, (n, *SHAPE), np.uint8),
        "label": random.integers(0, 10, n).astype(np.int32),
    }


def columns(n_bytes: int) -> pa.Table:
    """Make a table of 16 columns of numbers and a label."""
    random, n = np.random.default_rng(0), n_bytes // 128
    return pa.table({f"x{i}": random.standard_normal(n) for i in range(16)} | {"y": random.integers(0, 10, n)})


def make(folder: Path, name: str, n_bytes: int) -> Path:
    """Write records of a format of `FORMATS`."""
    path = folder / f"records.{name}"
    if name == "csv":
        pyarrow.csv.write_csv(columns(n_bytes), path)
    elif name == "pq":
        pq.write_table(columns(n_bytes), path, row_group_size=8192, compression="none", use_dictionary=False)
    else:
        STORES.find(FORMATS[name]).write(str(path), images(n_bytes))
    return path


def by_hand(ranges: Sequence[tuple[int, int]], read: Read) -> tuple[float, float]:
    """Read ranges by 32 threads; return MiB per second, and CPU seconds of this process per MiB."""
    started, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(BY_HAND) as pool:
        mib = sum(len(data) for data in pool.map(lambda each: read(*each), ranges)) / 2**20
    return mib / (time.perf_counter() - started), (time.process_time() - cpu) / mib


def batches(store: RangeStore, shuffle: Shuffle, n_threads: int, in_flight_bytes: int) -> tuple[float, float]:
    """Read one epoch of batches; return fetched MiB per second, and CPU seconds of this process per MiB."""
    order = Sampler([block.n for block in store.blocks], BATCH, shuffle, seed=0)
    started, cpu = time.perf_counter(), time.process_time()
    with Loader(store, order, n_io_threads=n_threads, in_flight_bytes=in_flight_bytes) as loader:
        for _ in range(store.count // BATCH):
            loader.next()
        passed, cpu = time.perf_counter() - started, time.process_time() - cpu
    mib = sum(map(store.fetch_bytes, range(len(store.blocks)))) / 2**20
    return mib / passed, cpu / mib


def measure(store: RangeStore, name: str, delay_s: float, given: argparse.Namespace, read: Read) -> None:
    """Print the rows of a format."""
    # of one range for each block
    ranges = [store.ranges(block.id)[0][1:] for block in store.blocks]
    for shuffle in ("none", "block"):
        rows = []
        for _ in range(given.rounds):
            hand = by_hand(ranges, read)
            rows.append((*hand, *batches(store, shuffle, given.io_threads, given.in_flight_mb << 20)))
        hand, hand_cpu, ours, cpu = np.median(rows, axis=0)
        share = np.median([row[2] / row[0] for row in rows])
        print(
            f"{name:7} {shuffle:6} {1000 * delay_s:3.0f} ms   "
            f"by hand {hand:6.0f} ({1000 * hand_cpu:4.1f} ms CPU per MiB)"
            f"   batches {ours:6.0f} ({share:4.0%}; {1000 * cpu:4.1f} ms CPU per MiB)",
            flush=True,
        )


def on_hdfs(given: argparse.Namespace) -> None:
    """Print the table of a real HDFS."""
    with tempfile.TemporaryDirectory() as folder, SlowHdfs(Path(folder) / "cluster") as mini, mini.links() as links:
        for name in given.formats:
            links.set_delay(0.0)
            near = make(Path(folder), name, given.megabytes << 20)
            fs.write_atomic(f"{mini.far_url}/{near.name}", near.read_bytes())
            for delay_s in DELAYS_S:
                links.set_delay(delay_s)
                reader = hdfs_native.Client(mini.far_url).read(f"/{near.name}")
                with opened(f"{mini.far_url}/{near.name}", name) as store:
                    measure(store, name, delay_s, given, reader.read_range)


def in_memory(given: argparse.Namespace) -> None:
    """Print the table of files in memory."""
    fsspec.register_implementation("slow", Slow, clobber=True)
    for name in given.formats:
        url = f"slow://records.{name}"
        with tempfile.TemporaryDirectory() as folder:
            fs.write_atomic(url, make(Path(folder), name, given.megabytes << 20).read_bytes())
        for delay_s in DELAYS_S:
            Slow.delay_s = 0.0
            with opened(url, name) as store:
                Slow.delay_s = delay_s
                measure(store, name, delay_s, given, store.ranges(0)[0].source.read)


def opened(url: str, name: str) -> RangeStore:
    """Open records of a format of `FORMATS`."""
    options = {"label": "y"} if FORMATS[name] == "table" else {}
    store = open_store(url, FORMATS[name], **options)
    assert isinstance(store, RangeStore)
    return store


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true", help="files in memory, not on HDFS")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS), help="pq and csv are tables")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--io-threads", type=int, default=32)
    parser.add_argument("--in-flight-mb", type=int, default=64)
    given = parser.parse_args()
    print(f"{given.io_threads} threads, {given.in_flight_mb} MB in flight; MiB/s, median of {given.rounds}")
    (in_memory if given.memory else on_hdfs)(given)


if __name__ == "__main__":
    main()
