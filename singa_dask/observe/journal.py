"""Journal: a text file at any URL to which lines are appended, and from which lines of JSON can be dropped."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

from singa_dask.data import fs

__all__ = ["Journal", "is_in_use"]

REWRITE_S = 1.0
REWRITE_SHARE = 20
"""Shortest time between two writes of a whole file, in seconds, and as a multiple of the time that one takes."""


class Journal:
    """A text file to which lines are appended.

    On a local disk every line is written at once, whole or not at all, so that nothing is left to fail when the file is
    closed. Elsewhere, where files cannot be appended to, the whole file is written again: by `save`, and after a line
    if that was not done for a second, or for twenty times as long as it takes.

    Parameters
    ----------
    url : str
    in_use : bool
        Lock the file, so that `is_in_use` returns True while it is open. Only on local disks.
    """

    def __init__(self, url: str, in_use: bool = False) -> None:
        self.url = url
        self._path = fs.local_path(url)
        self._lines: list[str] = []
        self._file: FileIO | None = None
        self._save_after = 0.0
        if self._path is not None:
            self._file = _append_to(url, self._path)
            if in_use:
                _lock(self._file)
        elif fs.exists(url):
            self._lines = fs.read_bytes(url).decode().splitlines(keepends=True)

    def add(self, line: str) -> None:
        """Append a line, given without its line break.

        Raises
        ------
        DataError
            It cannot be written, e.g. because the disk is full.
        """
        if self._file is None:
            self._lines.append(f"{line}\n")
            if time.monotonic() >= self._save_after:
                self.save()
        else:
            with fs.errors_name(self.url):
                _write_whole(self._file, f"{line}\n".encode())

    def objects(self) -> list[dict[str, Any]]:
        """Return the lines as JSON objects, without a last line that is incomplete because its writer was killed."""
        lines = self._lines if self._path is None else self._path.read_text(encoding="utf-8").splitlines()
        return [each for each in map(_parsed, lines) if each is not None]

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Keep only the lines of JSON that are wanted; the file is replaced atomically."""
        lines = self._lines if self._path is None else self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if (found := _parsed(line)) is not None and wanted(found)]
        if kept == lines:
            return
        if self._file is not None and self._path is not None:
            self._file.close()
            fs.write_atomic(self.url, "".join(kept).encode())
            self._file = _append_to(self.url, self._path)
        self._lines = [] if self._path is not None else kept

    def save(self) -> None:
        """Write all lines so far to the URL, if that is not done already."""
        if self._file is None:
            started = time.monotonic()
            try:
                fs.write_atomic(self.url, "".join(self._lines).encode())
            finally:
                now = time.monotonic()
                self._save_after = now + max(REWRITE_S, REWRITE_SHARE * (now - started))

    def close(self) -> None:
        """Save, and close the file."""
        if self._file is not None:
            self._file.close()
        else:
            self.save()


def is_in_use(url: str) -> bool:
    """Return whether a running process has the file open as a `Journal` with ``in_use``."""
    path = fs.local_path(url)
    if path is None or not path.exists():
        return False
    with FileIO(path, "a") as file:
        return not _lock(file)


def _write_whole(file: FileIO, content: bytes) -> None:
    """Append to a file; take back what was written of it if the rest cannot be."""
    size, rest = os.fstat(file.fileno()).st_size, content
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), size)
        raise


def _lock(file: FileIO) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # some network filesystems have no locks
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _append_to(url: str, path: Path) -> FileIO:
    with fs.errors_name(url):
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(path, "a")


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
