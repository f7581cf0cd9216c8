"""Stacks of all threads, without the deadlock of Python 3.11 before 3.11.9 (python/cpython#106883).

There ``sys._current_frames`` holds a lock that new threads take, too. If it has the garbage collector run, whose
callbacks may hand over to another thread, and that one starts a thread, the process stands still for good. Dask calls
it a hundred times a second where tasks run, and has such callbacks.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
from types import FrameType

_LOCK = threading.Lock()


def guard_frames() -> None:
    """Have ``sys._current_frames`` of this process run no garbage collector, as in later versions of Python."""
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
