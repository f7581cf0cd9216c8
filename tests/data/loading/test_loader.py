"""Loader: whole batches in order, read ahead within a bound, stopped at once, and errors that reach the caller."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singa_dask import fs
from singa_dask.data.loading import Batch, Loader
from singa_dask.data.sampler import MAX_STEPS, Sampler, advanced
from singa_dask.data.stores import STORES, Store, open_store
from singa_dask.data.types import Arrays
from singa_dask.errors import Aborted, DataError
from singa_dask.fs import range_reader
from tests.contracts.records import pixels, stored

N = 3000
RECORDS = pixels(N, (600,))
SMALL = pixels(300, (8,))


@pytest.fixture(params=["arrow", "kvfile", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with stored(tmp_path, request.param, RECORDS) as opened:
        yield opened


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Store]:
    with stored(tmp_path, "arrow", RECORDS, block_bytes=100_000) as opened:
        yield opened


def order_of(store: Store, batch_size: int = 60, shuffle: Any = "none", **more: Any) -> Sampler:
    return Sampler([block.n for block in store.blocks], batch_size, shuffle, 1, fingerprint=store.fingerprint, **more)


def assert_right(batch: Batch) -> None:
    for name, array in batch.arrays.items():
        np.testing.assert_array_equal(array, RECORDS[name][batch.ids])


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_batches_are_what_the_order_says(store: Store, shuffle: str, prefetch: bool) -> None:
    order = order_of(store, 70, shuffle)
    with Loader(store, order, 1, 2, prefetch=prefetch) as loader:
        for step in range(2 * N // 70):
            batch = loader.next()
            np.testing.assert_array_equal(batch.ids, order.rows(step, 1, 2)[0])
            assert_right(batch)
    assert loader.reader.bytes_read > 0
    assert loader.wait_s > 0


def test_a_batch_in_one_block_is_a_view(small: Store) -> None:
    with Loader(small, order_of(small, 5), prefetch=False) as loader:
        assert loader.next().arrays["pixel"].base is not None
        assert not loader.next().arrays["pixel"].flags.writeable


@pytest.mark.parametrize("backend", ["arrow", "kvfile", "lmdb", "npz"])
def test_blocks_that_are_kept_are_no_longer_those_of_a_file_that_is_written(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "LOOK_S", -1.0)
    with stored(tmp_path, backend, SMALL) as store, Loader(store, order_of(store), prefetch=False) as loader:
        for _ in range(10):
            loader.next()
        assert len(loader.reader.kept) == len(store.blocks)
        file = Path(store.url) / "data.mdb" if backend == "lmdb" else Path(store.url)
        with file.open("r+b") as content:
            content.write(file.read_bytes())
        os.utime(file, (0, 0))
        with pytest.raises(DataError, match=f"{file.name}: the file was changed while it was read"):
            for _ in range(MAX_STEPS + 1):
                loader.next()


@pytest.mark.parametrize("url", ["file", "memory"])
@pytest.mark.parametrize("backend", ["kvfile", "csv", "table"])
def test_no_epoch_ends_with_records_of_two_files(backend: str, url: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/x.csv" if url == "file" else f"memory://{tmp_path.name}/x.csv"
    if backend == "kvfile":
        STORES.find(backend).write(path, SMALL)
    else:
        fs.write_atomic(path, b"label,x\n" + b"1,2\n" * 2000)
    content = fs.read_bytes(path)
    options = {} if backend == "kvfile" else {"block_bytes": 1000}
    with open_store(path, backend, **options) as store:
        order = order_of(store, 1)
        with Loader(store, order, prefetch=False) as loader:
            loader.next()
            if url == "file":
                Path(path).write_bytes(content)
                os.utime(path, (0, 0))
            else:
                fs.write_atomic(path, content)
            with pytest.raises(DataError, match=r"x\.csv(, block \d+)?: the file was (changed|replaced) while it was"):
                for _ in range(order.period - 1):
                    loader.next()


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_a_cursor_resumes_exactly(small: Store, shuffle: str, prefetch: bool) -> None:
    with Loader(small, order_of(small, 60, shuffle), prefetch=prefetch) as loader:
        for _ in range(73):
            loader.next()
        cursor = loader.cursor()
        expected = [loader.next().ids.copy() for _ in range(30)]
        loader.seek(cursor)
        np.testing.assert_array_equal([loader.next().ids for _ in range(30)], expected)
        loader.rewind()
        assert loader.cursor()["samples_seen"] == 0
    with Loader(small, order_of(small, 60, shuffle), prefetch=prefetch) as other:
        other.seek(cursor)
        np.testing.assert_array_equal([other.next().ids for _ in range(30)], expected)
        assert_right(other.next())


def test_a_cursor_of_other_records_is_refused(small: Store) -> None:
    with Loader(small, order_of(small)) as loader:
        with pytest.raises(DataError, match=r"the version of the data is .*, it was 'other'"):
            loader.seek({**loader.cursor(), "fingerprint": "other"})


class Watched(Store):
    """A store that counts its reads, waits for leave, or fails at a block."""

    def __init__(self, inner: Store, fails_at: int = -1, error: Exception | None = None) -> None:
        super().__init__(inner.url)
        self.inner, self.blocks, self.schema = inner, inner.blocks, inner.schema
        self.fails_at, self.error = fails_at, error
        self.leave = threading.Event()
        self.leave.set()
        self.asked = threading.Event()
        self.reads: list[int] = []

    def read_block(self, block_id: int) -> Arrays:
        self.reads.append(block_id)
        self.asked.set()
        self.leave.wait()
        if block_id == self.fails_at and self.error is not None:
            raise self.error
        return self.inner.read_block(block_id)

    def close(self) -> None:
        self.inner.close()


def test_blocks_are_read_once_an_epoch(small: Store) -> None:
    for shuffle in ("none", "block", "full"):
        watched = Watched(small)
        with Loader(watched, order_of(small, 60, shuffle), prefetch=False) as loader:
            for _ in range(N // 60):
                loader.next()
        # what is read ahead may reach into the next epoch
        assert sorted(set(watched.reads)) == list(range(len(small.blocks)))
        assert len(watched.reads) <= 2 * len(small.blocks)


def test_reading_ahead_is_bounded(small: Store) -> None:
    watched = Watched(small)
    with Loader(watched, order_of(small, 10), bytes_bound=1_200_000) as loader:
        for step in range(100):
            loader.next()
            most = (step + 1) * 10 + 3 * loader.budget.buffer_steps * 10
            assert watched.inner.starts[max(watched.reads)] <= most


@pytest.mark.parametrize("prefetch", [False, True])
def test_errors_reach_the_caller_with_url_and_block(small: Store, prefetch: bool) -> None:
    watched = Watched(small, 2, RuntimeError("disk on fire"))
    with Loader(watched, order_of(small, 60), prefetch=prefetch) as loader:
        with pytest.raises(DataError, match=r"records\.arrow, block 2: RuntimeError: disk on fire"):
            for _ in range(N // 60):
                loader.next()
        # it can go on when the trouble is over
        watched.error = None
        assert_right(loader.next())


def test_closing_while_batches_wait(small: Store) -> None:
    loader = Loader(small, order_of(small, 60), name="closing")
    loader.next()
    loader.close()
    loader.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch-closing"]
    assert_right(loader.next())
    loader.close()


def test_closing_frees_who_waits_for_a_batch(small: Store) -> None:
    watched = Watched(small)
    watched.leave.clear()
    loader = Loader(watched, order_of(small, 60))
    raised: list[BaseException] = []

    def consume() -> None:
        try:
            loader.next()
        except Aborted as error:
            raised.append(error)

    consumer, closer = threading.Thread(target=consume), threading.Thread(target=loader.close)
    consumer.start()
    assert watched.asked.wait(60)
    closer.start()
    consumer.join(60)
    assert "closed while waiting for a batch" in str(raised[0])
    watched.leave.set()
    closer.join(60)
    assert not closer.is_alive()


def test_closing_while_the_thread_starts_ends_it(small: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(small)
    watched.leave.clear()
    loader = Loader(watched, order_of(small, 60), name="starting")
    closer, start = threading.Thread(target=loader.close), threading.Thread.start

    def start_and_close(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "prefetch-starting":
            start(closer)
            closer.join(0.1)  # it must not be done before the loader knows its thread

    monkeypatch.setattr(threading.Thread, "start", start_and_close)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loader.next)
        try:
            with pytest.raises(Aborted):
                waiting.result(20)
        finally:
            watched.leave.set()
    closer.join(60)
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch-starting"]


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_an_exception_of_a_signal_leaves_no_lock_taken(small: Store, n: int) -> None:
    """As where Ctrl-C comes just after a lock is taken by a method in Python, whose caller then never releases it."""
    left, loader = n, Loader(small, order_of(small, batch_size=1), prefetch=True)

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "call":
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            is_lock = frame.f_code.co_name == "__enter__" and frame.f_code.co_filename == threading.__file__
            return interrupt if is_lock and Path(caller).parent.name == "loading" else None
        left -= event == "return"
        if event == "return" and not left:
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for _ in range(40):
                loader.next()
    finally:
        sys.settrace(before)
    closing = threading.Thread(target=loader.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


def test_an_abort_frees_who_waits_and_waits_for_no_read(small: Store) -> None:
    watched = Watched(small)
    watched.leave.clear()
    loader = Loader(watched, order_of(small, 60))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loader.next)
        assert watched.asked.wait(60)
        loader.abort()
        with pytest.raises(Aborted):
            waiting.result(10)
    with pytest.raises(Aborted):
        loader.next()
    watched.leave.set()
    loader.close()


@pytest.mark.parametrize("shuffle", ["none", "block"])
def test_reading_begins_before_the_first_batch_is_asked_for(small: Store, shuffle: str) -> None:
    watched = Watched(small)
    with Loader(watched, order_of(small, 60, shuffle)) as loader:
        loader.start()
        loader.wait()
        assert watched.reads
        assert loader.wait_s == 0
        loader.start()
        for step in range(2 * N // 60):
            batch = loader.next()
            np.testing.assert_array_equal(batch.ids, loader.sampler.rows(step)[0])
            assert_right(batch)
            loader.wait()


def test_what_goes_wrong_ahead_is_said_at_the_first_batch(small: Store) -> None:
    with Loader(Watched(small, 0, RuntimeError("disk on fire")), order_of(small, 60)) as loader:
        loader.start()
        loader.wait()
        with pytest.raises(DataError, match="disk on fire"):
            loader.next()


def test_nothing_begins_without_prefetching(small: Store) -> None:
    watched = Watched(small)
    with Loader(watched, order_of(small, 60), prefetch=False) as loader:
        loader.start()
        loader.wait()
        assert not watched.reads


def test_closing_before_the_first_batch(small: Store) -> None:
    Loader(small, order_of(small)).close()


def test_more_blocks_than_the_table_holds(small: Store) -> None:
    with Loader(small, order_of(small, 60, "full"), bytes_bound=600_000) as loader:
        assert not loader.budget.pool_blocks
        for _ in range(2 * N // 60):
            assert_right(loader.next())


def test_a_table_of_the_blocks_in_use_alone(small: Store) -> None:
    order = order_of(small, 60, "block", window=2, streams=2)
    in_use = order.blocks_in_use()
    assert in_use is not None and in_use < len(small.blocks)
    most = max(block.n for block in small.blocks) * (600 + 4) * in_use
    watched = Watched(small)
    with Loader(watched, order, prefetch=False, bytes_bound=most + 1_000_000) as loader:
        assert loader.budget.pool_blocks == in_use
        for _ in range(3 * N // 60):
            assert_right(loader.next())
    assert 3 * len(small.blocks) <= len(watched.reads) <= 8 * len(small.blocks)


def test_what_is_kept_cannot_be_written(small: Store) -> None:
    with Loader(small, order_of(small, 5)) as loader:
        with pytest.raises(ValueError, match="read-only"):
            loader.next().arrays["pixel"][0] = 0


@given(
    st.sampled_from(["none", "block", "full"]),
    st.sampled_from(["wrap", "drop_last", "pad"]),
    st.integers(0, 80),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from([((), 1), ((1, 1), 2), ((1, 2, 3), 3)]),
)
@settings(deadline=None, max_examples=40)
def test_to_advance_is_to_read(
    shuffle: Any, last_batch: Any, skip: int, first: int, n: int, shared: tuple[tuple[int, ...], int]
) -> None:
    proportions, n_workers = shared
    with TemporaryDirectory() as directory, stored(Path(directory), "arrow", SMALL, block_bytes=1000) as store:
        order = order_of(
            store, 12, shuffle, last_batch=last_batch, skip=skip, proportions=proportions, group=1, n_groups=2, window=2
        )
        with (
            Loader(store, order, n_workers - 1, n_workers, prefetch=False) as one,
            Loader(store, order, n_workers - 1, n_workers, prefetch=False) as other,
        ):
            for _ in range(first):
                one.next()
            cursor = one.cursor()
            for _ in range(n):
                one.next()
            for n_ahead in (1, 0):  # batches of later steps than the one that the cursor is about
                other.seek(cursor)
                for _ in range(n_ahead):
                    other.next()
                other.n_ahead = n_ahead
                other.advance(n)
                assert other.cursor() == one.cursor() == advanced(cursor, n)
            np.testing.assert_array_equal(other.next().ids, one.next().ids)
            other.advance(-n - 1)
            assert other.cursor() == cursor
