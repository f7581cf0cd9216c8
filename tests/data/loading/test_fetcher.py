"""Fetcher: many blocks in flight, within bounds; what fails, hangs, is late or is not wanted any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.cancellation import Cancellation, check_cancelled, working_for
from singa_dask.data.loading import Loader
from singa_dask.data.loading.fetcher import Fetcher
from singa_dask.data.loading.look_ahead import LookAhead
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import Aborted, DataError
from singa_dask.fs import daemon_threads, io_threads
from singa_dask.fs.io_threads import IoThreads

N_BLOCKS = 20
# a test that waits for longer has failed
TIMEOUT_S = 240.0


class Far(RangeStore):
    """Blocks of 100 bytes; each read is counted, and waits until its block is answered."""

    def __init__(self, answer: Callable[[int], bool] = lambda block: True) -> None:
        self.lock = threading.Condition()
        self.reads: list[int] = []
        self.answered = {block for block in range(N_BLOCKS) if answer(block)}
        self.failing: dict[int, Exception] = {}
        self.cached: set[int] = set()
        self.now = self.most = self.ended = 0
        super().__init__("far://blocks")

    def index(self) -> None:
        self.blocks = tuple(Block(i, 10, self.url, 100 * i, 100) for i in range(N_BLOCKS))
        self.schema = {"pixel": Field(np.dtype(np.uint8), (10,))}

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        return {"pixel": np.frombuffer(data[0], np.uint8).reshape(10, 10)}

    @property
    def remote(self) -> bool:
        return True

    def is_cached(self, block_id: int) -> bool:
        return block_id in self.cached

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        with self.lock:
            self.reads.append(block_id)
            self.now += 1
            self.most = max(self.most, self.now)
            self.lock.notify_all()
            assert self.lock.wait_for(lambda: again or block_id in self.answered, TIMEOUT_S)
            self.now -= 1
            self.ended += 1
            self.lock.notify_all()
        check_cancelled()
        if block_id in self.failing:
            raise self.failing[block_id]
        return [memoryview(bytes([block_id] * 100))]

    def answer(self, *blocks: int) -> None:
        with self.lock:
            self.answered.update(blocks or range(N_BLOCKS))
            self.lock.notify_all()

    def wait_for(self, condition: Callable[[], Any]) -> None:
        with self.lock:
            assert self.lock.wait_for(condition, TIMEOUT_S)


def look_ahead(n_kept: int = 2) -> LookAhead:
    sampler = Sampler([10] * N_BLOCKS, 10, "none")
    look = LookAhead(sampler, 0, 1, 1, np.arange(N_BLOCKS + 1) * 10, n_kept)
    look.restart(0)
    return look


@pytest.fixture
def threads() -> Iterator[IoThreads]:
    yield IoThreads(4, "test")


def block_of(arrays: Arrays) -> int:
    return int(arrays["pixel"][0, 0])


def test_blocks_come_in_any_order_and_are_read_once(threads: IoThreads) -> None:
    store = Far()
    fetcher = Fetcher(store, threads, 500)
    fetcher.follow(look_ahead(), 0)
    order = [3, 0, 1, 2, *range(4, 12)]
    assert [block_of(fetcher.read_block(block)) for block in order] == order
    fetcher.drop()
    assert len(store.reads) == len(set(store.reads)) <= 17


def test_as_many_are_in_flight_as_threads_and_bytes_allow(threads: IoThreads) -> None:
    store = Far(lambda block: False)
    fetcher = Fetcher(store, threads, 2000)
    fetcher.follow(look_ahead(), 0)
    store.wait_for(lambda: store.now == 4)
    store.answer()
    for block in range(N_BLOCKS):
        fetcher.read_block(block)
    assert store.most == 4
    store = Far(lambda block: False)
    fetcher = Fetcher(store, threads, 350)
    fetcher.follow(look_ahead(), 0)
    store.wait_for(lambda: store.now == 3)
    assert len(fetcher._fetches) == 3
    store.answer()
    fetcher.read_block(0)
    store.wait_for(lambda: 3 in store.reads)
    assert 4 not in store.reads
    # a block that is larger than the bound is read all the same
    fetcher = Fetcher(store, threads, 1)
    fetcher.follow(look_ahead(), 0)
    assert [block_of(fetcher.read_block(block)) for block in range(5)] == [0, 1, 2, 3, 4]


def test_a_block_that_was_not_announced(threads: IoThreads) -> None:
    store = Far()
    fetcher = Fetcher(store, threads, 300)
    assert block_of(fetcher.read_block(7)) == 7
    fetcher.follow(look_ahead(), 0)
    assert block_of(fetcher.read_block(19)) == 19
    assert block_of(fetcher.read_block(0)) == 0


def test_what_was_announced_and_not_needed_gives_way(threads: IoThreads) -> None:
    store, look = Far(), look_ahead()
    fetcher = Fetcher(store, threads, 300)
    fetcher.follow(look, 0)
    fetcher.follow(look, 10)
    assert sorted(fetcher._fetches) == [10, 11, 12]


def test_errors_are_raised_for_their_block(threads: IoThreads) -> None:
    store = Far()
    store.failing = {2: DataError("far://blocks, block 2: gone"), 4: ValueError("odd")}
    fetcher = Fetcher(store, threads, 500)
    fetcher.follow(look_ahead(), 0)
    assert [block_of(fetcher.read_block(block)) for block in (0, 1, 3)] == [0, 1, 3]
    with pytest.raises(DataError, match="block 2: gone"):
        fetcher.read_block(2)
    with pytest.raises(ValueError, match="odd"):
        fetcher.read_block(4)
    store.failing.clear()
    assert block_of(fetcher.read_block(2)) == 2


def test_cached_blocks_are_read_by_the_thread_that_needs_them(threads: IoThreads) -> None:
    store = Far()
    store.cached = {0, 2}
    fetcher = Fetcher(store, threads, 300)
    fetcher.follow(look_ahead(), 0)
    assert list(fetcher._fetches) == [1, 3, 4]
    assert [block_of(fetcher.read_block(block)) for block in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shuffle", "n_bytes", "said"), [("full", 900, True), ("full", 1 << 20, False), ("none", 2000, False)]
)
def test_a_full_shuffle_that_reads_more_than_it_uses_is_reported(
    shuffle: Any, n_bytes: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Far()
    with Loader(store, Sampler([10] * N_BLOCKS, 2, shuffle), bytes_bound=n_bytes, prefetch=False) as reading:
        ids = np.concatenate([reading.next().ids for _ in range(100)])
        assert sorted(ids.tolist()) == list(range(200))
    assert ("far://blocks: shuffle: full reads" in caplog.text) == said
    assert ("Set shuffle: block" in caplog.text) == said


class Slow(Far):
    """Blocks that are decoded by several threads; each waits until its block is decoded."""

    decodes_ahead = True

    def __init__(self, is_remote: bool = True, decode: Callable[[int], bool] = lambda block: True) -> None:
        self.is_remote = is_remote
        self.decoded = {block for block in range(N_BLOCKS) if decode(block)}
        self.threads: dict[int, str] = {}
        self.odd: set[int] = set()
        super().__init__()

    @property
    def remote(self) -> bool:
        return self.is_remote

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        with self.lock:
            self.threads[block_id] = threading.current_thread().name
            self.lock.notify_all()
            assert self.lock.wait_for(lambda: block_id in self.decoded, TIMEOUT_S)
        if block_id in self.odd:
            raise DataError(f"far://blocks, block {block_id}: odd")
        return super().decode(block_id, data)


@pytest.mark.parametrize("is_remote", [True, False])
def test_blocks_are_decoded_ahead(threads: IoThreads, is_remote: bool) -> None:
    store, decoders = Slow(is_remote), IoThreads(2, "decoding")
    store.odd = {4}
    # bytes, and twice the records while they are decoded
    fetcher = Fetcher(store, threads, 900, decoders=decoders)
    fetcher.follow(look_ahead(), 0)
    assert (sorted(fetcher._fetches), fetcher._in_flight) == ([0, 1, 2], 900)
    assert [block_of(fetcher.read_block(block)) for block in (2, 0, 1, 19, 3)] == [2, 0, 1, 19, 3]
    with pytest.raises(DataError, match="block 4: odd"):
        fetcher.read_block(4)
    fetcher.drop()
    # 19 was not announced, and takes no request if it is local
    names = {store.threads[block].rpartition("-")[0] for block in (0, 1, 2, 3)}
    assert names == {"decoding"}


def test_dropping_waits_for_threads_that_decode(threads: IoThreads) -> None:
    store = Slow(False, lambda block: False)
    fetcher = Fetcher(store, threads, 900, decoders=IoThreads(2, "decoding"))
    fetcher.follow(look_ahead(), 0)
    store.wait_for(lambda: len(store.threads) == 2)
    dropping = threading.Thread(target=fetcher.drop)
    dropping.start()
    with store.lock:
        store.decoded.update(range(N_BLOCKS))
        store.lock.notify_all()
    dropping.join(TIMEOUT_S)
    assert not dropping.is_alive()
    assert fetcher._decoding == 0


def test_a_loader_that_decodes_ahead_hands_out_the_same_batches() -> None:
    order = Sampler([10] * N_BLOCKS, 8, "block", window=3)
    with Loader(Slow(False), order) as ahead, Loader(Slow(False), order, prefetch=False) as expected:
        assert ahead.budget.in_flight > 0 == expected.budget.in_flight
        for _ in range(30):
            mine, theirs = ahead.next(), expected.next()
            assert mine.ids.tolist() == theirs.ids.tolist()
            assert (mine.arrays["pixel"] == theirs.arrays["pixel"]).all()


class Counted(Slow):
    """Blocks of records that differ; each decoding, and each look whether files have changed, is counted."""

    def __init__(self, is_remote: bool) -> None:
        self.decodings: list[int] = []
        self.looks = 0
        super().__init__(is_remote)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        with self.lock:
            self.decodings.append(block_id)
        return {"pixel": np.arange(100, dtype=np.uint8).reshape(10, 10) + np.uint8(block_id)}

    def check_unchanged(self) -> None:
        self.looks += 1


@pytest.mark.parametrize("is_remote", [True, False])
@pytest.mark.parametrize(("shuffle", "n_bytes", "n_fit"), [("none", 6000, 12), ("block", 2700, 6), ("full", 4000, 20)])
def test_blocks_that_fit_in_memory_are_decoded_once(shuffle: Any, n_bytes: int, n_fit: int, is_remote: bool) -> None:
    store, every, n_epochs = Counted(is_remote), Counted(False), 4
    order = Sampler([10] * N_BLOCKS, 10, shuffle, window=2, streams=2, last_batch="pad")
    with (
        Loader(store, order, 0, 2, bytes_bound=n_bytes, in_flight_bytes=300) as loader,
        Loader(every, order, 0, 2, prefetch=False) as plain,
    ):
        for _ in range(n_epochs * N_BLOCKS):
            mine, theirs = loader.next(), plain.next()
            assert mine.ids.tolist() == theirs.ids.tolist()
            assert (mine.arrays["pixel"] == theirs.arrays["pixel"]).all()
        resident, n_reads = list(loader.reader.resident), np.bincount(store.decodings, minlength=N_BLOCKS)
        kept = len(resident) or loader.budget.pool_blocks
        assert kept == n_fit
        assert 100 * len(resident) <= loader.budget.resident_bytes
        assert (n_reads[resident] == 1).all()
        # a worker that mixes blocks reads half of them, and those that boundaries cut
        n_used = N_BLOCKS if shuffle != "block" else N_BLOCKS // 2 + 2
        assert len(store.decodings) <= n_used + n_epochs * (n_used - n_fit + 2)
        assert store.looks >= n_epochs
    assert not loader.reader.resident


def test_waiting_can_be_cancelled(threads: IoThreads) -> None:
    store, cancelled = Far(lambda block: False), threading.Event()
    fetcher = Fetcher(store, threads, 2000, cancelled.is_set)
    fetcher.follow(look_ahead(), 0)
    raised: list[BaseException] = []

    def take() -> None:
        with pytest.raises(Aborted, match="block 0: reading was cancelled") as caught:
            fetcher.read_block(0)
        raised.append(caught.value)

    waiting = threading.Thread(target=take)
    waiting.start()
    store.wait_for(lambda: store.now == 4)
    cancelled.set()
    fetcher.wake()
    waiting.join(TIMEOUT_S)
    assert raised
    fetcher.drop()
    store.answer()
    # those that were waiting for a thread are not read
    store.wait_for(lambda: store.ended == 4)
    assert sorted(store.reads) == [0, 1, 2, 3]


def test_dropped_reads_count_until_they_end(threads: IoThreads) -> None:
    store = Far(lambda block: False)
    fetcher = Fetcher(store, threads, 400)
    fetcher.follow(look_ahead(), 0)
    store.wait_for(lambda: store.now == 4)
    fetcher.drop()
    assert fetcher._in_flight == 400
    fetcher.follow(look_ahead(), 0)
    # one at least
    assert (sorted(fetcher._fetches), fetcher._in_flight) == ([0], 500)
    store.answer()
    assert [block_of(fetcher.read_block(block)) for block in range(N_BLOCKS)] == list(range(N_BLOCKS))
    fetcher.drop()


def test_reads_know_the_gate_of_the_thread_that_asked(threads: IoThreads) -> None:
    store, cancellation = Far(lambda block: False), Cancellation()
    with working_for(cancellation):
        fetcher = Fetcher(store, threads, 2000)
        fetcher.follow(look_ahead(), 0)
        store.wait_for(lambda: store.now == 4)
        cancellation.cancel("the end")
        store.answer()
        with pytest.raises(Aborted, match="the end"):
            fetcher.read_block(0)


def know_times(threads: IoThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_threads, "LATE_S", 0.0)
    for _ in range(io_threads.MIN_TIMES):
        threads.add_time(100, 0.0)


def test_a_late_block_is_read_again(threads: IoThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Far(lambda block: False)
    fetcher = Fetcher(store, threads, 2000)
    know_times(threads, monkeypatch)
    # the first read never ends
    assert block_of(fetcher.read_block(5)) == 5
    assert store.reads == [5, 5]
    store.answer()


def test_the_first_answer_counts_even_if_the_other_read_fails(
    threads: IoThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Far(lambda block: False)
    fetcher = Fetcher(store, threads, 2000)
    know_times(threads, monkeypatch)
    fetch = store.fetch

    def failing(block: int, again: bool = False) -> list[memoryview]:
        if not again:
            store.wait_for(lambda: 5 in store.reads)
            raise DataError("failed")
        return fetch(block, True)

    monkeypatch.setattr(store, "fetch", failing)
    assert block_of(fetcher.read_block(5)) == 5


def test_blocks_are_late_after_three_medians_and_not_before_a_quarter_of_a_second() -> None:
    threads = IoThreads(1)
    for seconds in (0.01, 0.02, 0.03) * 3:
        threads.add_time(1000, seconds)
        threads.add_time(1 << 20, 10 * seconds)
    assert threads.late_after(1000) == 0.25
    assert threads.late_after(1 << 20) == pytest.approx(0.6)
    assert threads.late_after(100) is None


def test_few_reads_are_repeated() -> None:
    threads, ran = IoThreads(1), threading.Semaphore(0)
    assert [threads.repeat(ran.release) for _ in range(6)] == [True] * 4 + [False] * 2
    for _ in range(8):
        threads.submit(ran.release)
    assert [threads.repeat(ran.release) for _ in range(2)] == [True, False]
    for _ in range(13):
        assert ran.acquire(timeout=TIMEOUT_S)


def test_threads_are_shared_within_a_filesystem_and_end_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    assert io_threads.io_threads("hdfs://a:1/x", 4) is io_threads.io_threads("hdfs://a:1/y", 4)
    assert io_threads.io_threads("hdfs://a:1/x", 4) is not io_threads.io_threads("hdfs://b:1/x", 4)
    monkeypatch.setattr(daemon_threads, "IDLE_S", 0.0)
    threads, ran = IoThreads(2, "idle"), threading.Event()
    threads.submit(ran.set)
    assert ran.wait(TIMEOUT_S)
    for thread in threading.enumerate():
        if thread.name.startswith("idle"):
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
