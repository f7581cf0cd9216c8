"""StepTimer: measure the steps of one worker, on a CPU or on a device that computes asynchronously."""

from __future__ import annotations

import time
from array import array
from collections import deque
from typing import Any

from singa_dask.ops.contract import Ops

AHEAD = 2
"""Maximum number of unfinished steps on a GPU: enough to keep it busy, few enough to stop soon."""


class StepTimer:
    """Measures the steps of one worker: ``seconds`` of each ended step, and their sum ``total_s``.

    On a CPU a step ends when its calls return. On a GPU calls return early. On a GPU, a step is measured from the end
    of the previous step or of a pause until the step ends on the device. The worker's thread is at most `AHEAD` steps
    ahead of the device. The sum is exact, but a single step may appear too short after a long one.
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
        """Wait until all steps have ended, before work outside of steps."""
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
