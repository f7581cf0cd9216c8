"""Files of the last checkpoint of a job, which are kept on their host if its run directory cannot be written."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.data import fs
from singa_dask.errors import CheckpointError, DataError

__all__ = ["KEPT_AT", "WHY_KEPT", "keep_file", "places_of", "without_places", "write_or_keep"]

# older directories are deleted when another one is made
KEPT_FOR_S = 30 * 86400.0
# keys of the description of a file that is not where its checkpoint is
KEPT_AT, WHY_KEPT = "kept_at", "why_kept"


def write_or_keep(url: str, file: str, content: bytes | Sequence[bytes | memoryview], keep: bool) -> dict[str, Any]:
    """Write a file of a checkpoint; with ``keep`` to a local directory if that fails.

    Parameters
    ----------
    url : str
        Of the step.
    file : str
    content : bytes or sequence of bytes
    keep : bool

    Returns
    -------
    dict
        ``kept_at``, host and directory, and ``why_kept``, the error; empty if it is written.
    """
    try:
        fs.write_atomic(fs.join(url, file), content)
    except DataError as error:
        if not keep:
            raise
        return {KEPT_AT: keep_file(url, file, content, str(error)), WHY_KEPT: str(error)}
    return {}


def keep_file(url: str, file: str, content: bytes | Sequence[bytes | memoryview], why: str) -> str:
    """Write a file of a checkpoint to a local directory; return host and directory.

    Raises
    ------
    CheckpointError
        That is not possible either; ``why`` is the reason to try it.
    """
    host = socket.gethostname()
    try:
        folder = _folder(url)
        fs.write_atomic(os.path.join(folder, file), content)
    except (OSError, DataError) as error:
        raise CheckpointError(f"{why} Nor could {file} be kept on {host}: {error}") from error
    return f"{host}:{folder}"


def _folder(url: str) -> str:
    """Return a directory on this host, which nobody else can write, for files of a checkpoint."""
    ours = os.path.join(tempfile.gettempdir(), f"singa-dask-kept-{os.getuid()}")
    os.makedirs(ours, 0o700, exist_ok=True)
    status = os.lstat(ours)
    if status.st_uid != os.getuid() or status.st_mode & 0o77:
        raise OSError(f"{ours} belongs to others.")
    _remove_old(ours)
    return os.path.join(ours, hashlib.sha256(url.encode()).hexdigest()[:12], posixpath.basename(url))


def _remove_old(ours: str) -> None:
    """Delete the files of runs for which nothing was kept in the last 30 days."""
    with os.scandir(ours) as runs:
        old = [run.path for run in runs if time.time() - _last_change(run.path) > KEPT_FOR_S]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _last_change(folder: str) -> float:
    return max(os.lstat(path).st_mtime for path, _, _ in os.walk(folder))


def places_of(files: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return where files are kept, and why."""
    return {each[KEPT_AT]: each[WHY_KEPT] for each in files if KEPT_AT in each}


def without_places(files: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the descriptions of files for a manifest."""
    return [{key: value for key, value in each.items() if key not in (KEPT_AT, WHY_KEPT)} for each in files]
