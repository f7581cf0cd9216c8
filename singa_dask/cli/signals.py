"""Signals, and the processes that a program starts."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker

__all__ = ["hidden_from_children"]


@contextlib.contextmanager
def hidden_from_children(number: signal.Signals) -> Iterator[None]:
    """Hide a signal from the processes that are started meanwhile, and from theirs.

    Ctrl-C on a terminal goes to every process of the program; this one alone is to act on it.
    """
    # when it starts by itself, on the first process, it makes the signal visible again
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
