"""The cache on disk, shared by processes: one download for all, and one that ends is replaced by another."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from singa_dask.fs.cache import Cache, key_of

LIMIT = 1 << 20
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _read_all(folder: Path, downloads: Path, n: int, results: Any) -> None:
    cache = Cache(folder, LIMIT)
    for i in range(n):

        def fetch(i: int = i) -> bytes:
            with (downloads / "log").open("ab") as log:
                log.write(b"%d\n" % i)
            return bytes([i]) * 10_000

        assert bytes(cache.read(key_of(i), 10_000, fetch)) == bytes([i]) * 10_000
    results.put((cache.hits, cache.misses))


@pytest.mark.long
def test_two_processes_share_each_download(folder: Path, tmp_path: Path) -> None:
    results = SPAWN.SimpleQueue()
    readers = [SPAWN.Process(target=_read_all, args=(folder, tmp_path, 40, results)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert [reader.exitcode for reader in readers] == [0, 0]
    assert sorted(map(int, (tmp_path / "log").read_text().split())) == list(range(40))
    (hits, misses), (other_hits, other_misses) = results.get(), results.get()
    assert (hits + other_hits, misses + other_misses) == (40, 40)


def _die_while_fetching(folder: Path, began: Any, end: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        began.set()
        assert end.wait(60)
        os._exit(1)

    Cache(folder, LIMIT).file(key_of("a"), 8, chunks)


@pytest.mark.long
def test_a_second_reader_takes_over_from_a_dead_one(folder: Path) -> None:
    began, end = SPAWN.Event(), SPAWN.Event()
    process = SPAWN.Process(target=_die_while_fetching, args=(folder, began, end))
    process.start()
    assert began.wait(60)
    cache, opened = Cache(folder, LIMIT), []
    second = threading.Thread(
        target=lambda: opened.append(cache.file(key_of("a"), 8, lambda: [b"all of it"[:8]])), daemon=True
    )
    second.start()
    assert len(list((folder / "tmp").iterdir())) == 1
    end.set()
    process.join(60)
    second.join(60)
    assert opened[0].read_bytes()[:8] == b"all of i"
    # half of the file of the dead process goes with the next who looks
    cache._evict(LIMIT)
    assert not list((folder / "tmp").iterdir())
