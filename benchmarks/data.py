"""Batches of 256 by the loader, beside copies of the same records in memory: formats, sizes and orders.

Makes 60000 records of 784 bytes and 50000 of 3072 in a temporary folder, in each format, and measures them as
``singa-dask data bench`` does. The first line of a size is what one thread of NumPy reaches by itself: copies of rows
that are not next to each other, as in a key-value file, and of rows in random order.
``python -m benchmarks.data [--rounds N] [--share S]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from singa_dask.cli.reading_speed import measure
from singa_dask.data.codecs import protobuf
from singa_dask.data.codecs.protobuf import BYTES, VARINT
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.messages.lmdb import write_environment
from singa_dask.data.types import Arrays

BATCH = 256
# bytes between two values of a key-value file: keys, lengths, and shape and label of the record
GAP_BYTES = 35
NUMPY_ROUNDS = 20
SETS = {"784 B": (60_000, (1, 28, 28)), "3072 B": (50_000, (3, 32, 32))}
FORMATS = {"arrow": ".arrow", "kvfile": ".bin", "lmdb": ".lmdb", "lmdb Datum": ".datum.lmdb"}


def datums(records: Arrays) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs that Caffe's converter would write."""
    shape = [
        protobuf.key(number, VARINT) + protobuf.varint(extent)
        for number, extent in enumerate(records["pixel"].shape[1:], 1)
    ]
    for i, (pixel, label) in enumerate(zip(records["pixel"], records["label"].tolist(), strict=True)):
        values = [protobuf.key(4, BYTES), protobuf.varint(pixel.nbytes), pixel.tobytes()]
        yield b"%08d" % i, b"".join([*shape, *values, protobuf.key(5, VARINT), protobuf.varint(label)])


def make(folder: str, n: int, shape: tuple[int, ...]) -> dict[str, str]:
    """Write a set in all formats; return where they are."""
    random = np.random.default_rng(0)
    records: Arrays = {
        "pixel": random.integers(0, 256, (n, *shape), np.uint8),
        "label": random.integers(0, 10, n).astype(np.int32),
    }
    urls = {name: str(Path(folder) / f"records{suffix}") for name, suffix in FORMATS.items()}
    for name in ("arrow", "kvfile", "lmdb"):
        STORES.find(name).write(urls[name], records)
    write_environment(urls["lmdb Datum"], datums(records))
    return urls


def numpy_shares(n: int, shape: tuple[int, ...], rounds: int) -> tuple[float, float]:
    """Return the speed of copying rows at a stride, and of taking random rows, as shares of copying them in order."""
    records = np.ones((n, *shape), np.uint8)
    n_bytes = records[0].size
    rows = np.ones((n, n_bytes + GAP_BYTES), np.uint8)[:, GAP_BYTES:].reshape(n, *shape)
    order, buffer = np.random.default_rng(0).permutation(n), np.ones((BATCH, *shape), np.uint8)
    ways: list[Callable[[slice], object]] = [
        lambda batch: np.copyto(buffer, records[batch]),
        lambda batch: np.copyto(buffer, rows[batch]),
        lambda batch: records.take(order[batch], axis=0, out=buffer, mode="clip"),
    ]
    batches = [slice(first, first + BATCH) for first in range(0, n - BATCH + 1, BATCH)]
    # the shortest time of each batch: other programs on the machine do not show in it
    least = np.full((len(ways), len(batches)), np.inf)
    for _ in range(rounds):
        for i, copy in enumerate(ways):
            for step, batch in enumerate(batches):
                started = time.perf_counter()
                copy(batch)
                least[i, step] = min(least[i, step], time.perf_counter() - started)
    in_order, strided, taken = least.sum(axis=1).tolist()
    return in_order / strided, in_order / taken


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the records")
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; M records/s in memory, by the loader, and the share")
    for size, (n, shape) in SETS.items():
        strided, taken = numpy_shares(int(n * given.share), shape, NUMPY_ROUNDS)
        print(f"{size:7} NumPy: rows at a stride {strided:.0%}, random rows {taken:.0%}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, url in make(folder, int(n * given.share), shape).items():
                for shuffle in ("none", "block"):
                    with open_store(url) as store:
                        rates = measure(store, BATCH, shuffle, given.rounds)
                    cells = [f"{r.batches} {r.memory / 1e6:6.2f} {r.loader / 1e6:6.2f} {r.share:5.0%}" for r in rates]
                    print(f"{size:7} {name:11} {shuffle:6} {'    '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
