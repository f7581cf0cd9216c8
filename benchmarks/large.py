"""A pass over a store that is larger than memory: throughput, and the memory of the process.

Writes a store of 20 GB (``--gb``) into ``--folder``, unless it is there, and reads it in batches of 256 by the loader,
in file order and by ``shuffle: block``, each in a process of its own. Memory is limited in two ways: ``RLIMIT_DATA``
refuses a process more than ``--limit-gb`` of memory of its own, and the file is dropped from the page cache before a
pass and after each 512 MiB of it, so that all is read from the disk. In a control group with a limit the system does
that by itself: ``systemd-run --scope -p MemoryMax=2G python -m benchmarks.large --keep-pages``.

``python -m benchmarks.large [--folder F] [--gb N] [--limit-gb N] [--seconds S] [--keep-pages] [--delete]``
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from singa_dask.data.loading import Loader
from singa_dask.data.sampler import Sampler, Shuffle
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.types import Arrays

SHAPE = (3, 32, 32)
CHUNK, BATCH = 20_000, 256
DROP_BYTES = 512 << 20
STATUS = Path("/proc/self/status")


def chunks(n: int) -> Iterator[Arrays]:
    """Yield records; the label of each follows from its index."""
    pixels = np.random.default_rng(0).integers(0, 256, (CHUNK, *SHAPE), np.uint8)
    for first in range(0, n, CHUNK):
        ids = np.arange(first, min(first + CHUNK, n))
        yield {"pixel": pixels[: len(ids)], "label": (ids % 10).astype(np.int32)}


def drop_pages(path: str) -> None:
    """Drop a file from the page cache, but for pages that somebody reads now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def memory() -> dict[str, int]:
    """Return what the process holds in MiB: its own memory, and pages of files."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return {name: int(lines[name].split()[0]) >> 10 for name in ("RssAnon", "RssFile", "VmHWM")}


def read(path: str, shuffle: Shuffle, limit_bytes: int, seconds: float, keeps_pages: bool) -> dict[str, Any]:
    """Read one epoch, or as much of it as fits the time; return bytes, seconds and the most memory."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    with open_store(path) as store:
        record = sum(field.size_bytes for field in store.schema.values())
        order = Sampler([block.n for block in store.blocks], BATCH, shuffle, seed=1)
        drop_pages(path)
        # a copy of each batch, as training would make it: the pages are read indeed
        buffer = np.empty((BATCH, *SHAPE), np.uint8)
        most = {"RssAnon": 0, "RssFile": 0}
        steps, dropped, started = store.count // BATCH, 0, time.perf_counter()
        with Loader(store, order, share=limit_bytes // 4) as loader:
            for step in range(steps):
                batch = loader.next()
                np.copyto(buffer, batch.arrays["pixel"])
                assert np.array_equal(batch.arrays["label"], batch.ids % 10)
                if step % 256 == 255:
                    found = memory()
                    most = {name: max(value, found[name]) for name, value in most.items()}
                    if not keeps_pages and (step + 1) * BATCH * record - dropped >= DROP_BYTES:
                        dropped = (step + 1) * BATCH * record
                        drop_pages(path)
                    if time.perf_counter() - started > seconds:
                        break
            took = time.perf_counter() - started
            bound = loader.budget.bytes_bound >> 20
    n_bytes = (step + 1) * BATCH * record
    whole = step + 1 == steps
    return {"bytes": n_bytes, "seconds": took, "whole": whole, "bound": bound, **most, "peak": memory()["VmHWM"]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--gb", type=float, default=20.0)
    parser.add_argument("--limit-gb", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=600.0, help="of a pass")
    parser.add_argument("--keep-pages", action="store_true", help="leave the page cache to the system")
    parser.add_argument("--delete", action="store_true", help="delete the store at the end")
    given = parser.parse_args()
    path = str(Path(given.folder) / f"large-{given.gb:g}.arrow")
    if not Path(path).exists():
        STORES.find("arrow").write(path, chunks(int(given.gb * 1e9) // int(np.prod(SHAPE))))
    print(f"{path}: {Path(path).stat().st_size / 1e9:.1f} GB; limit {given.limit_gb:g} GB")
    for shuffle in ("none", "block"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rest = (int(given.limit_gb * 2**30), given.seconds, given.keep_pages)
            found = pool.apply(read, (path, shuffle, *rest))
        print(
            f"{shuffle:6} {found['bytes'] / 1e9:5.1f} GB{'' if found['whole'] else ' (not all)'} in "
            f"{found['seconds']:.0f} s, {found['bytes'] / found['seconds'] / 1e6:.0f} MB/s, "
            f"memory_mb {found['bound']}; MiB at most: own {found['RssAnon']}, "
            f"pages of files {found['RssFile']}, together {found['peak']}",
            flush=True,
        )
    if given.delete:
        Path(path).unlink()


if __name__ == "__main__":
    main()
