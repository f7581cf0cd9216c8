"""Records that tests of the data layer write, and what they compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from singa_dask import fs
from singa_dask.data.stores import STORES, Store, open_store
from singa_dask.data.stores.messages.kvfile import put_pairs
from singa_dask.data.types import Arrays

# formats that can be written, with a suffix of each
WRITABLE = [name for name in STORES.names() if STORES.find(name).can_write() and STORES.find(name).suffixes]
SUFFIX = {name: STORES.find(name).suffixes[0] for name in WRITABLE}


def pixels(n: int, shape: Sequence[int] = (3, 4), labels: bool = True, seed: int = 0) -> Arrays:
    """Make records of bytes."""
    random = np.random.default_rng(seed)
    records: Arrays = {"pixel": random.integers(0, 256, (n, *shape), dtype=np.uint8)}
    if labels:
        records["label"] = random.integers(0, 10, n).astype(np.int32)
    return records


def floats(n: int, shape: Sequence[int] = (5,), labels: bool = True, seed: int = 0) -> Arrays:
    """Make records of floats."""
    records: Arrays = {"data": np.random.default_rng(seed).normal(size=(n, *shape)).astype(np.float32)}
    if labels:
        records["label"] = np.arange(n, dtype=np.int32) % 7
    return records


def written(folder: Path, backend: str, records: Arrays, name: str = "records", **options: object) -> str:
    """Write records, and return where they are."""
    url = str(folder / f"{name}{SUFFIX[backend]}")
    STORES.find(backend).write(url, records, **options)
    return url


def read_all(store: Store) -> Arrays:
    """Read all blocks of a store."""
    parts = [store.read_block(block.id) for block in store.blocks]
    return {name: np.concatenate([part[name] for part in parts]) for name in store.schema}


def stored(folder: Path, backend: str, records: Arrays, **options: object) -> Store:
    """Write records, and open them."""
    return open_store(written(folder, backend, records, **options))


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def write_pairs(url: str, pairs: Iterable[tuple[str, bytes]]) -> None:
    """Write a new key-value file."""
    with fs.staged(url) as path, path.open("wb") as file:
        put_pairs(file, pairs)
