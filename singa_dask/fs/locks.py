"""Locks on open files, for several processes: a lock ends when its file is closed, or its process ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from singa_dask.cancellation import pause
from singa_dask.lazy import LazyModule

filelock = LazyModule("filelock")

POLL_S = 0.01


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file; returns False if it is locked by others, or through another open file of this process."""
    return bool(filelock.lock_descriptor(file.fileno(), blocking=False))


def create_locked(path: Path) -> IO[bytes]:
    """Create a file that others see as soon as it is locked, and not before. Its name does not begin with a dot."""
    file = path.with_name(f".{path.name}").open("xb")
    try_lock(file)
    os.replace(file.name, path)
    return file


def delete_unlocked(paths: Iterable[Path], delete: Callable[[Path], object] = Path.unlink) -> list[Path]:
    """Delete files that no living process has locked; return the others.

    Parameters
    ----------
    paths : iterable of Path
        A file that is gone is passed over: its owner may just have renamed or deleted it.
    delete : callable
        Is passed each file that nobody has locked.
    """
    locked = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if try_lock(file):
                delete(path)
            else:
                locked.append(path)
    return locked


def wait_for_lock(file: IO[Any], wait_s: float, progress: Callable[[], object] = lambda: None) -> bool:
    """Lock an open file; returns False if it was locked by others for ``wait_s`` seconds without progress.

    Parameters
    ----------
    progress : callable
        Returns what changes as long as the process that holds the lock makes progress.
    """
    seen, until = progress(), time.monotonic() + wait_s
    while not try_lock(file):
        now = time.monotonic()
        if (latest := progress()) != seen:
            seen, until = latest, now + wait_s
        if now > until:
            return False
        # such locks have no timeout, and no event for their release
        pause(POLL_S)
    return True
