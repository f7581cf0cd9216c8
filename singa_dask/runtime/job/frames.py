"""Stacks of all threads, without the deadlock of Python 3.11 before 3.11.9 (python/cpython#106883).

In these versions, ``sys._current_frames`` holds a lock that a starting thread needs. The call may run the garbage
collector. If a callback of the garbage collector then switches to a thread that starts another thread, the process
hangs. Dask registers such callbacks, and calls ``sys._current_frames`` a hundred times a second.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
from types import FrameType

_LOCK = threading.Lock()


def guard_frames() -> None:
    """Keep ``sys._current_frames`` from running the garbage collector, as later versions of Python do."""
    found = sys._current_frames
    if not (3, 11) <= sys.version_info < (3, 11, 9) or hasattr(found, "__wrapped__"):
        return

    @functools.wraps(found)
    def current_frames() -> dict[int, FrameType]:
        with _LOCK:
            is_enabled = gc.isenabled()
            gc.disable()
            try:
                return found()
            finally:
                if is_enabled:
                    gc.enable()

    sys._current_frames = current_frames
