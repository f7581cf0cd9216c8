"""StepTimer: measures how long the steps of one worker take, on a CPU or on a device that computes behind its calls."""

from __future__ import annotations

import time
from array import array
from collections import deque
from typing import Any

from singa_dask.ops.contract import Ops

AHEAD = 2
"""Steps that may be enqueued on a GPU without being done: it always has work, and the end is never far."""


class StepTimer:
    """Measures the steps of one worker.

    On a CPU a step ends when its calls return. On a GPU calls return early, so a step lasts from the end of the
    previous step, or of a pause, to its own end on the device, as seen by the worker's thread. That thread is at most
    `AHEAD` steps ahead of the device. The sum is the time that all steps have taken together; a single step can appear
    short after a long one.

    Parameters
    ----------
    ops : Ops
        The worker's kernels.

    Attributes
    ----------
    seconds : array of float
        Duration of each step that has ended.
    total_s : float
        Of all of them.
    """

    def __init__(self, ops: Ops) -> None:
        self.seconds = array("d")
        self.total_s = 0.0
        self._transfers = ops.transfers()
        self._since = 0.0
        self._running: deque[Any] = deque()

    def begin(self) -> None:
        """Begin a step."""
        if not self._running:
            self._since = time.perf_counter()

    def end(self) -> None:
        """End a step in the worker's thread."""
        if self._transfers is None:
            self._over()
            return
        self._running.append(self._transfers.mark())
        if len(self._running) > AHEAD:
            self._finish()

    def synchronize(self) -> None:
        """Wait until all steps have ended, before work that is not part of a step."""
        while self._running:
            self._finish()

    def _finish(self) -> None:
        self._running.popleft().synchronize()
        self._over()

    def _over(self) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        self.total_s += now - self._since
        self._since = now
