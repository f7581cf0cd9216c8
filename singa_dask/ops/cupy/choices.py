"""Choices: the fastest of several algorithms, timed once and stored on disk."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from singa_dask.errors import DeviceMemoryError
from singa_dask.fs.cache_folder import ENGINES, cache_folder

logger = logging.getLogger(__name__)

Candidate = TypeVar("Candidate")

# A candidate replaces the preferred one only if it is faster by this factor; a smaller difference may be noise.
MARGIN = 1.1
# If the first run of a candidate takes this multiple of the shortest time, it is not run again.
TOO_SLOW = 3.0
# Maximum seconds for all candidates except the first, whose first run may load the library.
MAX_SECONDS = 2.0


class Choices:
    """Names of the chosen algorithms, in memory and in a directory with a small file for each convolution.

    All processes that use the directory use the choice of the process that first wrote the file. If no directory is
    writable, each process chooses for itself.

    Attributes
    ----------
    lock : lock
        Lock that a thread holds while it looks for a choice, and makes the choice if there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        self.lock = threading.Lock()

    def find(self, key: str) -> str | None:
        """Return the choice for a key; None if there is none."""
        if key not in self._names:
            with contextlib.suppress(OSError):
                self._names[key] = (self._folder / key).read_text("utf-8", "replace")
        return self._names.get(key)

    def keep(self, key: str, name: str) -> str:
        """Store a choice and return it; if another process has stored a choice first, return that choice."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._folder, encoding="utf-8") as file:
                file.write(name)
                file.flush()
                # os.link creates the file completely or not at all, and fails if the file exists
                os.link(file.name, self._folder / key)
        except FileExistsError:
            name = self.find(key) or name
        except OSError as error:
            logger.info("ops: the choice of an engine cannot be stored for later runs: %s", error)
        self._names[key] = name
        return name

    def forget(self, key: str) -> None:
        """Drop a choice that cannot be used."""
        self._names.pop(key, None)
        with contextlib.suppress(OSError):
            (self._folder / key).unlink()


@functools.cache
def choices_in(folder: Path) -> Choices:
    """Return the `Choices` of a directory. Each process has one object per directory."""
    return Choices(folder)


def folder_of(card: str, version: str) -> Path:
    """Return the directory for a model of GPU and a version of cuDNN."""
    return cache_folder() / ENGINES / re.sub(r"[^\w.]+", "-", f"{card} cudnn {version}")


def fastest(ways: Iterable[Candidate], seconds: Callable[[Candidate, float], float]) -> Candidate | None:
    """Return the first of several algorithms, or another algorithm if that is clearly faster.

    ``seconds(algorithm, limit)`` returns the time of an algorithm. If the time exceeds ``limit``, an estimate is
    enough. Algorithms that fail are left out.

    Returns
    -------
    object or None
        The algorithm; None if all of them fail.
    """
    times: list[tuple[float, Candidate]] = []
    least, end = math.inf, math.inf
    for way in ways:
        try:
            taken = seconds(way, TOO_SLOW * least)
        except (RuntimeError, MemoryError, DeviceMemoryError) as error:
            logger.debug("ops: %s cannot be timed: %s", way, error)
            continue
        logger.debug("ops: %s takes %.1f us", way, 1e6 * taken)
        times.append((taken, way))
        least = min(least, taken)
        if len(times) == 1:
            end = time.monotonic() + MAX_SECONDS
        elif time.monotonic() > end:
            break
    if not times:
        return None
    (first, preferred), (best, way) = times[0], min(times, key=lambda timed: timed[0])
    if best * MARGIN < first:
        # time the preferred candidate again, because the clock rate of a device that was idle has risen meanwhile
        first = min(first, seconds(preferred, math.inf))
    return way if best * MARGIN < first else preferred
