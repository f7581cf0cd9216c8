"""StepTimer: how long the steps of a worker take, also where their kernels are only enqueued."""

from __future__ import annotations

import time
from array import array
from collections import deque
from typing import Any

from singa_dask.ops import NumpyOps

__all__ = ["AHEAD", "StepTimer"]

AHEAD = 2
"""Steps that may be enqueued on a GPU and not be over: enough that it has always work, few that an end comes soon."""


class StepTimer:
    """Measures the steps of one worker.

    On a CPU a step is over when its calls return. On a GPU they return early, so there a step lasts from the end of
    the one before, or of a pause, to its own end on the device, as the worker's thread sees it; that waits for the
    third last step, and stays at most `AHEAD` steps before the device. So the sum is what the steps have taken all
    together, whoever waited for whom; a single one may be short where one before it was long.

    Parameters
    ----------
    ops : NumpyOps
        The worker's kernels.

    Attributes
    ----------
    seconds : array of float
        Of each step that is over.
    """

    def __init__(self, ops: NumpyOps) -> None:
        self.seconds = array("d")
        self._transfers = ops.transfers()
        self._since = 0.0
        self._running: deque[Any] = deque()

    def begin(self) -> None:
        """Begin a step."""
        if not self._running:
            self._since = time.perf_counter()

    def end(self) -> None:
        """End a step, as far as the worker's thread has to do with it."""
        if self._transfers is None:
            self._over()
            return
        self._running.append(self._transfers.mark())
        if len(self._running) > AHEAD:
            self._finish()

    def synchronize(self) -> None:
        """Wait until all steps are over: what follows is no step, and is not counted."""
        while self._running:
            self._finish()

    def _finish(self) -> None:
        self._running.popleft().synchronize()
        self._over()

    def _over(self) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        self._since = now
