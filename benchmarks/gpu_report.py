"""What a task of the benchmark on a GPU has found: printed at once, and a line of JSON in a file."""

from __future__ import annotations

import json
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Report", "limit", "spread"]


class Report:
    """Where one task tells what it finds."""

    def __init__(self, lines: Path, part: str, what: str) -> None:
        self.lines, self.part, self.what = lines, part, what

    def tell(self, name: str = "", **figures: Any) -> None:
        """Print figures, and keep them."""
        shown = "  ".join(f"{key} {_shown(value)}" for key, value in figures.items())
        print(f"{self.part:8} {self.what:12} {name:28} {shown}", flush=True)
        line = {"part": self.part, "what": self.what, "name": name, **figures}
        with self.lines.open("a") as file:
            file.write(json.dumps(line, default=float) + "\n")

    def attempt(self, name: str, do: Callable[[], object]) -> bool:
        """Do something; where it fails tell its traceback, and say so."""
        try:
            do()
        except Exception:
            self.tell(name, failed=traceback.format_exc())
            return False
        return True


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return " ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value)


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in this thread after some seconds."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def spread(ms: list[float]) -> dict[str, float]:
    """Return median, least and most of some times."""
    return {"ms": float(np.median(ms)), "least": min(ms), "most": max(ms)}
