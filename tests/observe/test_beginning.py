"""Of runs that begin in one directory at the same moment, one gets it."""

from __future__ import annotations

import contextlib
import multiprocessing
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import ConfigError
from singa_dask.observe.files.run_directory import RunDirectory

STARTED = {"event": "started", "time": 0.0}
COMMAND: dict[str, Any] = {"time": 0.0, "arguments": []}


def begin_together(url: str, n: int, barrier: Barrier, begun: SimpleQueue[int]) -> None:
    """Begin runs in ``n`` directories, each at the same moment as another process; they go on until both have begun."""
    for k in range(n):
        directory = RunDirectory(fs.join(url, str(k)), "", "", command=COMMAND)
        barrier.wait()
        with directory:
            with contextlib.suppress(ConfigError):
                directory.on_event(STARTED)
                begun.put(k)
            barrier.wait()


@pytest.mark.long
def test_of_processes_that_begin_together_one_gets_the_directory(tmp_path: Path) -> None:
    n, context = 50, multiprocessing.get_context("spawn")
    barrier, begun = context.Barrier(2), context.SimpleQueue()
    processes = [context.Process(target=begin_together, args=(str(tmp_path), n, barrier, begun)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [begun.get() for _ in range(n)] == list(range(n))
    assert begun.empty()


def test_where_there_are_no_locks_only_one_of_two_runs_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "memory://one-of-two-runs"
    first, second = (RunDirectory(url, text, text, command=COMMAND) for text in ("first", "second"))
    with first, second:
        first.on_event(STARTED)
        # it has looked before the first one wrote
        monkeypatch.setattr(second, "_check_free", lambda is_ours: None)
        with pytest.raises(ConfigError, match="a run is already there"):
            second.on_event(STARTED)
    assert fs.read_bytes(fs.join(url, "job.yaml")) == b"first"
