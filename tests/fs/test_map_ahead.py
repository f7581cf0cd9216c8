"""map_ahead: results in order, computed by several threads within a limit; errors, and early ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from singa_dask.fs.io_threads import IoThreads, map_ahead

# a test that waits for longer has failed
TIMEOUT_S = 240.0


def test_results_come_in_order_and_are_computed_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def square(i: int) -> int:
        both.wait(TIMEOUT_S)
        return i * i

    assert list(map_ahead(square, range(10), IoThreads(2, "square"), 2)) == [i * i for i in range(10)]


@pytest.mark.parametrize(("limit", "most"), [(6, 3), (1, 1), (0, 1)])
def test_items_are_taken_as_far_as_the_limit_allows(limit: int, most: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(8):
            taken.append(i)
            yield i

    results = map_ahead(str, items(), IoThreads(2, "limit"), limit, lambda item: 2)
    for i in range(8):
        assert next(results) == str(i)
        # and one that waits until there is room
        assert len(taken) <= i + most + 1
    assert list(results) == []


def test_errors_are_raised_in_order() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise ValueError("no more")

    found = map_ahead(str, items(), IoThreads(2, "items"), 10)
    assert [next(found) for _ in range(3)] == ["0", "1", "2"]
    with pytest.raises(ValueError, match="no more"):
        next(found)
    inverse = map_ahead(lambda i: 1 / i, [2, 1, 0, 1], IoThreads(2, "inverse"), 10)
    assert [next(inverse), next(inverse)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(inverse)


def test_whoever_ends_early_waits_for_what_runs() -> None:
    began, ended = list[int](), list[int]()
    lock, go_on = threading.Lock(), threading.Event()

    def slow(i: int) -> int:
        with lock:
            began.append(i)
        assert i == 0 or go_on.wait(TIMEOUT_S)
        with lock:
            ended.append(i)
        return i

    results = map_ahead(slow, range(100), IoThreads(2, "slow"), 10)
    assert next(results) == 0
    closing = threading.Thread(target=results.close)
    closing.start()
    go_on.set()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()
    assert sorted(began) == sorted(ended)
