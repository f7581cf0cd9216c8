"""Lazy imports of verbs: options and help when help is shown, the work when the verb is called."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOPPED = "SIGINT: stopped."


def load(target: str) -> Any:
    """Import ``"module:name"``."""
    module, _, name = target.partition(":")
    with _ended_by_ctrl_c():
        return getattr(importlib.import_module(module), name)


def does(target: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command, which only has options and help, call the function ``"module:name"`` with its arguments."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call(*context: Any, **given: Any) -> Any:
            return load(target)(*context, **given)

        return call

    return decorate


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once while modules are imported.

    A KeyboardInterrupt may be raised where Python holds the lock of imports, is lost there, and leaves it locked: the
    program would hang later, in whatever thread imports next.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end_process)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_process(number: int, frame: FrameType | None) -> None:
    os.write(2, STOPPED.encode() + b"\n")
    os._exit(128 + number)
