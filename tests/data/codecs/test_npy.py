"""Files in numpy's npy format: several threads, and damage."""

from __future__ import annotations

import gc
import io
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from singa_dask.data.stores.arrays.npy import decode_npy


@pytest.fixture
def _busy_collector() -> Iterator[None]:
    """Other threads run in the middle of many allocations, as they do now and then in a long process."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    gc.callbacks.append(let_others_run)
    sys.setswitchinterval(1e-6)
    gc.set_threshold(3)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)
    gc.callbacks.remove(let_others_run)


def _saved(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@pytest.mark.usefixtures("_busy_collector")
def test_threads_read_headers_at_once() -> None:
    data = _saved(np.zeros((3, 4)))
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(600):
                decode_npy(data)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize(
    "values", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.float32(3), np.zeros(0)]
)
def test_arrays_are_those_of_numpy(values: np.ndarray) -> None:
    found = decode_npy(_saved(values))
    np.testing.assert_array_equal(found, values, strict=True)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"])
def test_another_length_is_refused(change: object) -> None:
    data = _saved(np.arange(6.0))
    with pytest.raises(ValueError, match=r"\d+ bytes of values, expected 48"):
        decode_npy(change(data))  # type: ignore[operator]
