"""Journal: append lines to a text file at any URL, and drop lines of JSON from it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from io import FileIO
from pathlib import Path
from typing import Any

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.locks import try_lock

REWRITE_S = 1.0
REWRITE_SHARE = 20
"""Minimum time between two writes of a whole file: the larger of `REWRITE_S` seconds and `REWRITE_SHARE` times the
duration of a write."""


class Journal:
    """A text file to which lines are appended.

    On a local disk, each line is written immediately, completely or not at all, so that closing cannot fail. Files on
    other file systems cannot be appended to, so `save` writes the whole file again. `add` calls `save` at most once a
    second, and less often if writing is slow.

    Parameters
    ----------
    url : str
        URL of the file.
    in_use : bool
        Whether to lock the file, so that `is_in_use` returns True while it is open. Only on local disks.
    once : bool
        Whether to drop an incomplete last line when the file is opened. `add` then skips lines that were in the file.
    check : callable
        Called just before each change of the file. ``check`` must raise an error if another process now owns the file.

    Attributes
    ----------
    is_ours : bool
        False if ``in_use`` is set, and another journal of this or another process has locked the file.
    """

    def __init__(
        self, url: str, in_use: bool = False, once: bool = False, check: Callable[[], None] = lambda: None
    ) -> None:
        self.url = url
        self._check = check
        self._path = fs.local_path(url)
        self._lines: list[str] = []
        self._file: FileIO | None = None
        self._save_after = 0.0
        self._is_saved = True
        self.is_ours = True
        if self._path is not None:
            self._check()  # check before opening the file, because opening may create it
            self._file = _append_to(url, self._path, drops_part=once)
            self.is_ours = not in_use or _lock(self._file)
        elif fs.exists(url):
            self._lines = fs.read_bytes(url).decode().splitlines(keepends=True)
        lines = self._path.read_text(encoding="utf-8").splitlines() if once and self._path else self._lines
        self._known = frozenset(line.rstrip("\n") for line in lines) if once else frozenset()

    def add(self, line: str) -> None:
        """Append a line, given without its line break.

        Raises
        ------
        DataError
            The line cannot be written, e.g. because the disk is full. Or the file was removed meanwhile, and the line
            is in a new file.
        TakenOverError
            Another process owns the file.
        """
        if line in self._known:
            return
        # test this before `_check`, because a process that takes over the run replaces the file by a copy
        was_removed = self._file is not None and not os.fstat(self._file.fileno()).st_nlink
        if self._file is not None:
            self._check()
        if was_removed and self._file is not None and self._path is not None:
            self._file.close()
            self._file = _append_to(self.url, self._path)
        if self._file is None:
            self._lines.append(f"{line}\n")
            self._is_saved = False
            if time.monotonic() >= self._save_after:
                self.save()
        else:
            with fs.errors_name(self.url):
                _write_whole(self._file, f"{line}\n".encode())
        if was_removed:
            raise DataError(f"{self.url}: the file was removed by another program. Its content is lost.")

    def objects(self) -> list[dict[str, Any]]:
        """Return the lines as JSON objects, without incomplete lines of a killed writer."""
        return read_objects(self.url) if self._path is not None else _objects(self._lines)

    def clear(self) -> None:
        """Delete all lines. The file stays locked."""
        if self._file is not None:
            self._check()
            os.ftruncate(self._file.fileno(), 0)
        self._lines, self._is_saved = [], False

    def filter(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Keep only the lines whose JSON object is ``wanted``. The file is replaced atomically."""
        if self._path is not None and not self._path.exists():
            return  # another program has removed the file
        lines = self._lines if self._path is None else self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if (entry := _parsed(line)) is not None and wanted(entry)]
        if kept == lines:
            return
        if self._file is not None and self._path is not None:
            fs.write_atomic(self.url, "".join(kept), check=self._check)
            self._file.close()
            self._file = _append_to(self.url, self._path)
        self._lines, self._is_saved = [] if self._path is not None else kept, False

    def save(self) -> None:
        """Write all lines to the URL, unless they were already written. Has no effect on a local disk."""
        if self._file is None and not self._is_saved:
            started = time.monotonic()
            try:
                fs.write_atomic(self.url, "".join(self._lines), check=self._check)
                self._is_saved = True
            finally:
                now = time.monotonic()
                self._save_after = now + max(REWRITE_S, REWRITE_SHARE * (now - started))

    def close(self, drop: bool = False) -> None:
        """Save, and close the file. Pass ``drop`` if the file was deleted: it is not saved again."""
        if self._file is not None:
            self._file.close()
        elif not drop:
            self.save()


def is_in_use(url: str) -> bool:
    """Return whether a running process has the file open as a `Journal` with ``in_use=True``."""
    path = fs.local_path(url)
    if path is None or not path.exists():
        return False
    # except on NFS, locking a file needs no write permission
    with FileIO(path, "a" if os.access(path, os.W_OK) else "r") as file:
        return not _lock(file)


def read_objects(url: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a journal, which another process may be writing.

    The result is empty if there is no file.
    """
    return _objects(fs.read_bytes(url).decode(errors="replace").splitlines()) if fs.exists(url) else []


def _objects(lines: Iterable[str]) -> list[dict[str, Any]]:
    return [each for each in map(_parsed, lines) if each is not None]


def _write_whole(file: FileIO, content: bytes) -> None:
    """Append all bytes to a file. If writing fails, restore the former length of the file."""
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
        return try_lock(file)
    except OSError:  # some network filesystems have no locks
        return True


def _append_to(url: str, path: Path, drops_part: bool = False) -> FileIO:
    """Open a file for appending.

    An incomplete last line gets a line break; with ``drops_part`` it is dropped.
    """
    with fs.errors_name(url):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = FileIO(path, "a")
        size = os.fstat(file.fileno()).st_size
        with path.open("rb") as content:
            content.seek(max(0, size - 1))
            if not size or content.read(1) == b"\n":
                return file
        if drops_part:
            os.ftruncate(file.fileno(), path.read_bytes().rfind(b"\n") + 1)
        else:
            file.write(b"\n")
        return file


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
