"""The cache on disk: its own directory, whole entries, one download, a limit, and nothing of others deleted."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from singa_dask.errors import DataError
from singa_dask.fs import cache as caching
from singa_dask.fs.cache import SEAL, Cache, key_of, open_cache
from tests.fs.test_locks import held_lock

LIMIT = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(folder: Path) -> Cache:
    return Cache(folder, LIMIT)


def never() -> bytes:
    raise AssertionError("fetched again")


def put(cache: Cache, name: str, data: bytes) -> str:
    key = key_of(name)
    assert bytes(cache.read(key, len(data), lambda: data)) == data
    return key


def entries(cache: Cache) -> dict[str, Path]:
    return {path.name: path for path in (cache.folder / "entries").rglob("*") if path.is_file()}


def used_at(cache: Cache, key: str, second: int) -> None:
    os.utime(entries(cache)[key], (second, second))


# -- reading -----------------------------------------------------------------------------------------


def test_what_was_read_is_a_view_of_a_file(cache: Cache) -> None:
    key = put(cache, "a", b"bytes" * 1000)
    assert (cache.hits, cache.misses) == (0, 1)
    view = cache.read(key, 5000, never)
    assert bytes(view) == b"bytes" * 1000
    assert view.readonly
    assert (cache.hits, cache.misses) == (1, 1)
    # a later process finds it too
    assert bytes(Cache(cache.folder, LIMIT).read(key, 5000, never)) == b"bytes" * 1000
    assert not list((cache.folder / "tmp").iterdir())


def test_views_do_not_use_up_the_files_of_a_process(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    key = put(cache, "a", b"a" * 1000)
    monkeypatch.setattr(caching, "MAX_MAPS", len(caching._MAPS) + 3)
    views = [cache.read(key, 1000, never) for _ in range(6)]
    assert [isinstance(view.obj, mmap.mmap) for view in views] == [True] * 3 + [False] * 3
    assert {bytes(view) for view in views} == {b"a" * 1000}
    del views
    assert isinstance(cache.read(key, 1000, never).obj, mmap.mmap)


def test_keys_tell_all_parts_apart() -> None:
    parts = [("url", 10, "mtime 1", 0, 5), ("url", 10, "mtime 2", 0, 5), ("url", 10, "mtime 1", 5, 5), ("u", "rl")]
    assert len({key_of(*each) for each in parts}) == len(parts)


def test_an_entry_is_a_file_with_a_seal_behind_it(cache: Cache) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"abc"
        yield b"defg"

    path = cache.file(key_of("f"), 7, chunks)
    assert path.read_bytes()[: -SEAL.size] == b"abcdefg"
    assert cache.file(key_of("f"), 7, lambda: iter([never()])) == path
    assert (cache.hits, cache.misses) == (1, 1)
    with pytest.raises(DataError, match="fetched 7 bytes, expected 8"):
        cache.file(key_of("g"), 8, chunks)
    assert list(entries(cache)) == [key_of("f")]
    assert not list((cache.folder / "tmp").iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:100] + b"x" + data[101:],
        lambda data: data[:-1],
        lambda data: data[: -SEAL.size],
        lambda data: b"",
        lambda data: data + b"more",
    ],
)
def test_a_damaged_entry_is_fetched_again(
    damage: Callable[[bytes], bytes], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = put(Cache(folder, LIMIT), "a", b"0123456789" * 50)
    later = Cache(folder, LIMIT)
    path = entries(later)[key]
    path.write_bytes(damage(path.read_bytes()))
    assert put(later, "a", b"0123456789" * 50) == key
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: the cached copy is damaged; fetching it again."
    ]
    assert bytes(later.read(key, 500, never)) == b"0123456789" * 50


def test_an_error_of_the_fetch_passes_and_leaves_nothing(cache: Cache) -> None:
    with pytest.raises(AssertionError, match="fetched again"):
        cache.read(key_of("a"), 3, never)
    assert entries(cache) == {}
    put(cache, "a", b"abc")


# -- the directory -----------------------------------------------------------------------------------


def test_a_directory_of_others_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.tex").write_text("all of it")
    with pytest.raises(DataError, match=r"not a cache of singa-dask: it holds thesis\.tex"):
        Cache(folder, LIMIT)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written(folder: Path) -> None:
    folder.mkdir(mode=0o500)
    with pytest.raises(DataError, match="cannot be used as a cache"):
        Cache(folder, LIMIT)


def test_a_file_is_no_directory(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(
        DataError, match=r"cannot be used as a cache: .* Set cache\.dir or SINGA_DASK_CACHE to a writable directory"
    ):
        Cache(folder, LIMIT)


def test_a_cache_that_is_removed_in_use_is_done_without(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    for path in sorted(cache.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for _ in range(2):
        put(cache, "a", b"abc")
    assert len(caplog.records) == 1


def test_one_cache_a_process_and_directory(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SINGA_DASK_CACHE", str(folder))
    first = open_cache()
    assert first.folder == folder
    assert first.limit_bytes == 20 * 10**9
    assert open_cache({}) is open_cache({"dir": str(folder), "limit_gb": 20}) is first
    assert open_cache({"dir": str(tmp_path / "other"), "limit_gb": 0.5}).limit_bytes == 5 * 10**8


# -- the limit ---------------------------------------------------------------------------------------


def test_what_was_not_used_for_longest_goes_first(cache: Cache) -> None:
    keys = [put(cache, str(i), bytes([i]) * 200_000) for i in range(5)]
    for second, i in enumerate((3, 0, 4, 1, 2)):
        used_at(cache, keys[i], second)
    put(cache, "5", b"5" * 200_000)
    left = set(entries(cache))
    assert keys[3] not in left
    assert {keys[4], keys[1], keys[2], key_of("5")} <= left
    assert sum(path.stat().st_size for path in entries(cache).values()) <= LIMIT


def test_a_read_is_a_use(cache: Cache) -> None:
    keys = [put(cache, str(i), bytes([i]) * 200_000) for i in range(5)]
    for second, key in enumerate(keys):
        used_at(cache, key, second)
    cache.read(keys[0], 200_000, never)
    put(cache, "5", b"5" * 200_000)
    assert keys[0] in entries(cache)
    assert keys[1] not in entries(cache)


def test_the_limit_holds_for_all_processes_together(cache: Cache) -> None:
    other = Cache(cache.folder, LIMIT)
    for i in range(20):
        put((cache, other)[i % 2], str(i), os.urandom(150_000))
        assert sum(path.stat().st_size for path in entries(cache).values()) <= LIMIT
    assert len(entries(cache)) >= 4


def test_views_outlive_their_entries(cache: Cache) -> None:
    key = put(cache, "a", b"a" * 300_000)
    view = cache.read(key, 300_000, never)
    for i in range(6):
        put(cache, str(i), b"b" * 300_000)
    assert key not in entries(cache)
    assert bytes(view) == b"a" * 300_000


def test_nothing_of_others_is_deleted(cache: Cache) -> None:
    foreign = [cache.folder / "notes.txt", cache.folder / "entries" / "a.bin", cache.folder / "tmp" / "mine.tmp"]
    # of such a name, but without our seal
    foreign.append(cache.folder / "entries" / "ab" / key_of("of others"))
    foreign[-1].parent.mkdir(exist_ok=True)
    for path in foreign:
        path.write_bytes(b"keep me" * 1000)
        os.utime(path, (0, 0))
    outside = cache.folder.parent / "outside"
    outside.write_text("keep me")
    for i in range(12):
        put(cache, str(i), b"b" * 300_000)
    Cache(cache.folder, LIMIT)
    assert all(path.exists() for path in [*foreign, outside])
    assert len(entries(cache)) <= 5


def test_a_limit_below_one_block_is_told(folder: Path) -> None:
    with pytest.raises(DataError, match=r"2000 bytes exceeds the limit of 1000 bytes\. Set"):
        Cache(folder, 1000).read(key_of("a"), 2000, never)
    with pytest.raises(DataError, match="the limit of 1000"):
        Cache(folder, 1000).file(key_of("a"), 2000, lambda: iter([never()]))


def test_what_is_being_written_counts_in_full(cache: Cache) -> None:
    def chunks() -> Iterator[bytes]:
        # two thirds of the limit are reserved, of which nothing is written yet; the count is made anew
        other = Cache(cache.folder, LIMIT)
        for i in range(6):
            put(other, str(i), b"b" * 200_000)
            written = sum(path.stat().st_size for path in entries(cache).values())
            assert written <= LIMIT - 700_000
        yield b"a" * 700_000

    cache.file(key_of("large"), 700_000, chunks)
    assert key_of("large") in entries(cache)


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_once(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = put(cache, "kept", b"abc")
    monkeypatch.setattr(caching.os, "replace", full)
    for i in range(3):
        put(cache, f"new {i}", b"defg")
    with pytest.raises(DataError, match=r"cannot be written: No space left on device\. Set cache\.dir"):
        cache.file(key_of("f"), 3, lambda: [b"abc"])
    assert [record.getMessage() for record in caplog.records] == [
        f"{cache.folder}: cannot write to the cache: No space left on device. Retrying every 60 s."
    ]
    assert bytes(cache.read(kept, 3, never)) == b"abc"
    assert not list((cache.folder / "tmp").iterdir())
    with cache._usage() as usage:
        assert usage is not None
        assert caching._count(usage) == 3 + SEAL.size


def test_a_cache_is_written_again_once_the_disk_has_room(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(caching.time, "monotonic", lambda: now)
    with monkeypatch.context() as disk:
        disk.setattr(caching.os, "replace", full)
        for _ in range(3):
            put(cache, "a", b"abc")
            now += caching.RETRY_S + 1
    assert len(caplog.records) == 1
    key = put(cache, "a", b"abc")
    assert bytes(cache.read(key, 3, never)) == b"abc"
    with monkeypatch.context() as disk:
        disk.setattr(caching.os, "replace", full)
        put(cache, "b", b"abc")
        put(cache, "c", b"abc")
    # not tried before the pause is over
    put(cache, "d", b"abc")
    assert len(caplog.records) == 2
    assert list(entries(cache)) == [key]


def test_a_network_filesystem_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "network_filesystem", lambda path: "nfs4")
    with pytest.raises(DataError, match=r"on a network filesystem \(nfs4\)\. .* Set cache\.dir or SINGA_DASK_CACHE"):
        Cache(folder, LIMIT)
    assert not list(folder.iterdir())


# -- locks -------------------------------------------------------------------------------------------


def test_what_is_being_written_is_no_leftover(cache: Cache) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        Cache(cache.folder, LIMIT)
        yield b"half"

    cache.file(key_of("a"), 8, chunks)
    assert list(entries(cache)) == [key_of("a")]


def test_nobody_waits_for_ever(cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(caching, "WAIT_S", 0.02)
    monkeypatch.setattr(caching, "STALL_S", 0.02)
    key = key_of("a")
    with held_lock(cache.folder / "locks" / key[:2]):
        assert bytes(cache.read(key, 3, lambda: b"abc")) == b"abc"
        assert entries(cache) == {}
        cache.file(key, 3, lambda: [b"abc"])
    assert [record.getMessage() for record in caplog.records] == [
        f"{cache.folder}: another process fetches a file but makes no progress, so it is fetched here, too."
    ]
    assert list(entries(cache)) == [key]
    with held_lock(cache.folder / "usage"):
        assert bytes(cache.read(key_of("b"), 3, lambda: b"abc")) == b"abc"
        with pytest.raises(DataError, match=r"cannot be written: locked for more than"):
            cache.file(key_of("c"), 3, lambda: [b"abc"])
    assert list(entries(cache)) == [key]
