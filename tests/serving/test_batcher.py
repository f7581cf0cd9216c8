"""The batcher: requests that wait are joined; each has its own errors."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.errors import DataError
from singa_dask.serving import Limits
from singa_dask.serving.batcher import Batcher, batch_sizes
from tests.serving.test_server import close

WAIT_S = 60.0


@contextmanager
def batching(model: sd.Model, limits: Limits) -> Iterator[Batcher]:
    batcher = Batcher(model, limits)
    yield batcher
    batcher.close()
    batcher.join(WAIT_S)


def test_sizes_of_batches() -> None:
    assert batch_sizes(1) == (1,)
    assert batch_sizes(64) == (1, 2, 4, 8, 16, 32, 64)
    assert batch_sizes(1000) == (1, 16, 32, 63, 125, 250, 500, 1000)


def test_records_that_wait_are_joined(model: sd.Model, digits: Any) -> None:
    # it waits until 8 records are there
    with batching(model, Limits(8, max_wait_s=WAIT_S)) as batcher:
        parts = [digits[:3], digits[3:4], digits[4:8]]
        found = [batcher.submit(model.encode(part, "relu").arrays, "relu") for part in parts]
        for part, each in zip(parts, found, strict=True):
            close(each.result(WAIT_S), model.extract(part, "relu"))
        assert (batcher.n_batches, batcher.n_records) == (1, 8)
        many = batcher.submit(model.encode(digits[:21], "relu").arrays, "relu")
        close(many.result(WAIT_S), model.extract(digits[:21], "relu"))
        assert batcher.n_batches == 4


def test_no_request_overtakes_a_larger_one(model: sd.Model, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, all_wait = model.compute, threading.Event()

    def computes_when_all_wait(arrays: Any, layer: str) -> Any:
        assert all_wait.wait(WAIT_S)
        return compute(arrays, layer)

    monkeypatch.setattr(model, "compute", computes_when_all_wait)
    with batching(model, Limits(4)) as batcher:
        done: list[int] = []
        for n in (4, 3, 4, 1):
            found = batcher.submit(model.encode(digits[:n], "relu").arrays, "relu")
            found.add_done_callback(lambda _, n=n: done.append(n))  # type: ignore[misc]
        all_wait.set()
    assert done == [4, 3, 4, 1]
    assert batcher.n_batches == 4


def test_records_of_several_kinds_are_not_joined(model: sd.Model, digits: Any) -> None:
    x = digits[:1]
    with batching(model, Limits(4, max_wait_s=WAIT_S)) as batcher:
        kinds = [(x, "relu"), (x.astype(float), "relu"), (x.reshape(1, 784), "relu"), (x, "innerproduct")]
        found = [batcher.submit(model.encode(values, layer).arrays, layer) for values, layer in kinds]
        batcher.close()
        for (values, layer), each in zip(kinds, found, strict=True):
            close(each.result(WAIT_S), model.extract(values, layer))
        assert batcher.n_batches == 4


def test_a_wrong_record_fails_alone(model: sd.Model, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = model.compute

    def refuses(arrays: Any, layer: str) -> Any:
        if (arrays["pixel"] == 255).all(axis=(1, 2)).any():
            raise DataError("row 0: too bright.")
        return compute(arrays, layer)

    monkeypatch.setattr(model, "compute", refuses)
    x = [digits[:1], np.full((1, 28, 28), 255, np.uint8), digits[1:2]]
    with batching(model, Limits(3, max_wait_s=WAIT_S)) as batcher:
        found = [batcher.submit(model.encode(values, "relu").arrays, "relu") for values in x]
        close(found[0].result(WAIT_S), model.extract(x[0], "relu"))
        with pytest.raises(DataError, match="too bright"):
            found[1].result(WAIT_S)
        close(found[2].result(WAIT_S), model.extract(x[2], "relu"))


def test_what_is_cancelled_is_not_computed(model: sd.Model, digits: Any) -> None:
    with batching(model, Limits(2, max_wait_s=WAIT_S)) as batcher:
        arrays = model.encode(digits[:1], "relu").arrays
        assert batcher.submit(arrays, "relu").cancel()
        batcher.submit(arrays, "relu").result(WAIT_S)
        assert batcher.n_records == 1


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_quick_net_is_computed_by_the_event_loop(
    model: sd.Model, digits: Any, monkeypatch: pytest.MonkeyPatch, is_quick: bool
) -> None:
    compute, computing = model.compute, set()

    def noted(arrays: Any, layer: str) -> Any:
        computing.add(threading.current_thread())
        return compute(arrays, layer)

    parts = [model.encode(digits[first:stop], "relu").arrays for first, stop in [(0, 3), (3, 4), (4, 8), (8, 21)]]

    async def found() -> list[Any]:
        tasks = [asyncio.create_task(batcher.values(part, "relu")) for part in [*parts[:n_parts], parts[0]]]
        # once it waits
        asyncio.get_running_loop().call_soon(tasks.pop().cancel)
        return await asyncio.gather(*tasks)

    monkeypatch.setattr(sys, "getswitchinterval", lambda: 60.0 if is_quick else 0.0)
    with batching(model, Limits(8)) as batcher:
        batcher.warm_up(parts[1], "relu")
        monkeypatch.setattr(model, "compute", noted)
        for n_parts in (3, 4):
            for part, each in zip(parts, asyncio.run(found()), strict=False):
                close(each, compute(part, "relu"))
            if is_quick and n_parts == 3:
                # all of them in one batch, without the one that was cancelled
                assert computing == {threading.current_thread()}
                assert (batcher.n_batches, batcher.n_records) == (1, 8)
        assert is_quick or threading.current_thread() not in computing
