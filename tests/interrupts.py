"""Raise KeyboardInterrupt at the worst moment for a lock, as the handler of a signal may."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any


@contextlib.contextmanager
def interrupted_conditions(module: ModuleType) -> Iterator[None]:
    """Interrupt this thread wherever a module has entered a condition, before the body of its ``with`` begins."""

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        if event == "call":
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            is_condition = frame.f_code.co_name == "__enter__" and frame.f_code.co_filename == threading.__file__
            return interrupt if is_condition and caller == module.__file__ else None
        if event == "return":
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        sys.settrace(before)
