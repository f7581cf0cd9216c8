"""Ownership of directories: stops a writer that was replaced while it was suspended."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from singa_dask.errors import DataError, ReplacedError, TakenOverError
from singa_dask.fs.files import read_bytes
from singa_dask.fs.urls import join
from singa_dask.fs.writing import has_process, write_atomic

OWNER = "owner.json"
"""File that names the owner of a directory."""


class Ownership:
    """The right to write to a directory, until a newer owner takes it.

    Pass `check` to `fs.write_atomic`, and call `check` before any other change of the directory.

    Parameters
    ----------
    directory : str
        URL.
    owner : str
        Name of the owner, e.g. the id of a job.
    epoch : int, optional
        Number of this owner among successive owners of the same name; the newest has the highest number. By default,
        the process may write while any owner of this name owns the directory.
    """

    def __init__(self, directory: str, owner: str, epoch: int | None = None) -> None:
        self.directory = directory
        self.owner = owner
        self.epoch = epoch

    def take(self) -> None:
        """Take the directory over. From now on, `check` of the previous owner raises an error.

        Raises
        ------
        TakenOverError
            The directory has a newer owner of this name.
        DataError
            The directory cannot be read or written.
        """
        facts = {"owner": self.owner, "epoch": self.epoch, "host": socket.gethostname(), "pid": os.getpid()}
        content = f"{json.dumps({**facts, 'time': time.time()})}\n"
        write_atomic(join(self.directory, OWNER), content, check=self._check_newer)

    def _check_newer(self) -> None:
        there = read_owner(self.directory)
        if there.get("owner") == self.owner:
            self._compare(there)

    def check(self) -> None:
        """Check that no other process has taken the directory. A directory without an owner is accepted.

        Raises
        ------
        TakenOverError
            Another process has taken the directory.
        DataError
            The directory cannot be read.
        """
        if there := read_owner(self.directory):
            self._compare(there)
            if self.epoch is not None and (there.get("epoch") or 0) < self.epoch:
                self.take()  # an older owner took the directory, after it had been suspended

    def is_taken(self) -> bool:
        """Return whether this owner owns the directory.

        Raises
        ------
        DataError
            The directory cannot be read.
        """
        return bool(read_owner(self.directory).get("owner") == self.owner)

    def _compare(self, there: dict[str, Any]) -> None:
        is_mine = there.get("owner") == self.owner
        if not is_mine or (self.epoch is not None and (there.get("epoch") or 0) > self.epoch):
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(there.get("time", 0)))
            who = f"process {there.get('pid')} on {there.get('host')}, since {when}"
            kind = ReplacedError if is_mine else TakenOverError
            raise kind(f"{self.directory}: another process writes there now ({who}), so this one stops writing.")


def read_owner(directory: str) -> dict[str, Any]:
    """Return ``owner``, ``epoch``, ``host``, ``pid`` and ``time`` of the owner of a directory; empty if it has none.

    Raises
    ------
    DataError
        The directory cannot be read.
    """
    try:
        there = json.loads(read_bytes(join(directory, OWNER)))
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    except ValueError:  # somebody edited the file
        return {}
    return there if isinstance(there, dict) else {}


def has_died(owner: dict[str, Any]) -> bool:
    """Return whether an owner, as `read_owner` returns it, was a process of this host that has ended."""
    pid = owner.get("pid")
    return owner.get("host") == socket.gethostname() and isinstance(pid, int) and not has_process(pid)
