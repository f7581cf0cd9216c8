"""Heartbeat: a file in a remote run directory that shows that a process still writes there.

A local run directory needs no heartbeat, because its file ``commands.jsonl`` is locked. See `journal.is_in_use`.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from contextvars import copy_context

from singa_dask import fs
from singa_dask.errors import DataError, TakenOverError

HEARTBEAT = "heartbeat.json"
"""File with the ``time`` of the last heartbeat. The file is deleted at the end of the run."""
BEAT_S = 15.0
LOST_S = 60.0
"""Seconds without a heartbeat after which a run counts as lost."""


class Heartbeat:
    """Writes the time to a remote run directory every `BEAT_S` seconds, from `start` to `stop`.

    ``check`` must raise a TakenOverError if another process owns the directory.
    """

    def __init__(self, run_url: str, check: Callable[[], None]) -> None:
        self._url = fs.join(run_url, HEARTBEAT)
        self._check = check
        self._has_begun = False
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Write the first heartbeat, or raise `DataError`; then start a thread for later heartbeats."""
        if fs.local_path(self._url) is None and not self._has_begun:
            self._has_begun = True
            self._beat()
            threading.Thread(target=copy_context().run, args=(self._run,), name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Delete the file, unless another process owns the directory."""
        self._stopped.set()
        if self._has_begun:
            with self._lock, contextlib.suppress(DataError, TakenOverError):
                self._check()
                fs.remove_tree(self._url)

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_S):
            with self._lock, contextlib.suppress(DataError):  # the next heartbeat may succeed
                try:
                    self._beat()
                except TakenOverError:
                    return

    def _beat(self) -> None:
        if not self._stopped.is_set():
            fs.write_atomic(self._url, json.dumps({"time": time.time()}), check=self._check)


def is_alive(run_url: str) -> bool:
    """Return whether a remote run directory has had a heartbeat recently."""
    url = fs.join(run_url, HEARTBEAT)
    if fs.local_path(url) is not None or not fs.exists(url):
        return False
    try:
        return time.time() - float(json.loads(fs.read_bytes(url))["time"]) < LOST_S
    except (DataError, KeyError, TypeError, ValueError):  # the run has just ended, or somebody edited the file
        return False
