"""Batches of 256 by the loader, beside copies of the same records in memory: formats, sizes and orders.

Makes 60000 records of 784 bytes and 50000 of 3072 in a temporary folder, in each format, and measures them as
``singa-dask data bench`` does. ``python -m tests.benchmarks.data [--rounds N] [--share S]``
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from singa_dask.cli.bench import measure
from singa_dask.data import STORES, open_store
from singa_dask.data.codecs import protobuf
from singa_dask.data.codecs.protobuf import BYTES, VARINT
from singa_dask.data.stores.lmdb import write_environment
from singa_dask.data.types import Arrays

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the records")
    given = parser.parse_args()
    print(f"cores: {len(os.sched_getaffinity(0))}; M records/s in memory, by the loader, and the share")
    for size, (n, shape) in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            for name, url in make(folder, int(n * given.share), shape).items():
                for shuffle in ("none", "block"):
                    with open_store(url) as store:
                        rates = measure(store, 256, shuffle, given.rounds)
                    cells = [f"{r.batches} {r.memory / 1e6:6.2f} {r.loader / 1e6:6.2f} {r.share:5.0%}" for r in rates]
                    print(f"{size:7} {name:11} {shuffle:6} {'    '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
