"""BackgroundWriter: writes checkpoints while training goes on, in a thread that nobody has to wait for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue

__all__ = ["BackgroundWriter"]

logger = logging.getLogger(__name__)

_Task = tuple[Context, Callable[[], None]]


class BackgroundWriter:
    """Calls functions one after the other in a daemon thread, which does not hold up the end of the process.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, write: Callable[[], None]) -> None:
        """Call a function in the background, in a copy of the caller's context; it reports its errors itself."""
        with self._lock:
            if self._is_closed:
                return
            self._tasks.put((copy_context(), write))
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name=self._name, daemon=True)
                self._thread.start()

    def _write_all(self) -> None:
        while (task := self._tasks.get()) is not None and not self._is_closed:
            context, write = task
            try:
                context.run(write)
            except Exception:
                logger.exception("%s", self._name)
            del task, context, write  # a copy of all params

    def close(self) -> None:
        """Drop what has not begun. What is being written is not waited for; the thread ends after it."""
        with self._lock:
            self._is_closed = True
            self._tasks.put(None)
