"""What units on a Dask worker are doing, while one of them is stuck."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from singa_dask.runtime.job.dask_worker.hosting import stacks_of


def test_stacks_of_units_that_are_stuck_and_that_have_ended() -> None:
    lock, has_begun = threading.Lock(), threading.Event()

    def be_stuck() -> None:
        has_begun.set()
        with lock:
            pass

    with lock:
        stuck = threading.Thread(target=be_stuck)
        stuck.start()
        has_begun.wait()
        ended = threading.Thread(target=lambda: None)
        ended.start()
        ended.join()
        hosting: Any = SimpleNamespace(
            threads={"worker-0-0": stuck, "server-0-0": ended}, waits=lambda: {"worker-0-0": ("a lock", 1.5)}
        )
        found = stacks_of([hosting])
    stuck.join()
    assert found["server-0-0"] == {"error": "it has ended"}
    assert found["worker-0-0"]["wait"] == ("a lock", 1.5)
    assert any("in be_stuck" in line for line in found["worker-0-0"]["stack"])
