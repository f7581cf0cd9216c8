"""File locks between processes. A lock is released when its file is closed or its process ends."""

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
    """Lock an open file; return False if another process or file object has locked it."""
    return bool(filelock.lock_descriptor(file.fileno(), blocking=False))


def create_locked(path: Path) -> IO[bytes]:
    """Create a locked file. Other processes can see the file only after it is locked."""
    file = path.with_name(f".{path.name}").open("xb")
    try_lock(file)
    os.replace(file.name, path)
    return file


def delete_unlocked(paths: Iterable[Path], delete: Callable[[Path], object] = Path.unlink) -> list[Path]:
    """Delete files that no living process has locked; return the locked files.

    Parameters
    ----------
    paths : iterable of Path
        The files. Missing files are ignored, because their owner may just have renamed or deleted them.
    delete : callable
        Called with each unlocked file.
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
    """Lock an open file; return False if another process has the lock for ``wait_s`` without progress.

    Parameters
    ----------
    progress : callable
        Returns a value that changes while the process that holds the lock makes progress.
    """
    seen, until = progress(), time.monotonic() + wait_s
    while not try_lock(file):
        now = time.monotonic()
        if (latest := progress()) != seen:
            seen, until = latest, now + wait_s
        if now > until:
            return False
        # poll, because file locks have neither a timeout nor an event
        pause(POLL_S)
    return True
