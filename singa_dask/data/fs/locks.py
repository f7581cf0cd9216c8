"""Locks on open files, for processes of one host. A lock ends when its file is closed, or its process ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from filelock import lock_descriptor

from singa_dask.gate import pause

POLL_S = 0.01
# of Linux, as /proc/mounts has them
NETWORK_FILESYSTEMS = frozenset(
    "9p afs beegfs ceph cifs coda fuse.ceph fuse.ceph-fuse fuse.glusterfs fuse.juicefs fuse.s3fs fuse.sshfs glusterfs "
    "gpfs lustre ncpfs nfs nfs4 orangefs smb2 smb3 smbfs virtiofs wekafs".split()
)
MOUNTS = Path("/proc/self/mounts")


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file; returns False if it is locked by others, or through another open file of this process."""
    return bool(lock_descriptor(file.fileno(), blocking=False))


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


def network_filesystem(path: Path) -> str:
    """Return the type of the file system of a directory if it is shared by several hosts; empty if local or unknown.

    Systems without ``/proc/self/mounts`` know no network file systems.
    """
    mounts = MOUNTS.read_text(errors="replace") if MOUNTS.exists() else ""
    target, longest, kind = path.resolve(), -1, ""
    for line in mounts.splitlines():
        _, place, kind_there = line.split()[:3]
        # blanks in names are octal escapes
        mount = Path(place.encode().decode("unicode_escape"))
        # of several mounts at one place the last one counts
        if target.is_relative_to(mount) and len(mount.parts) >= longest:
            longest, kind = len(mount.parts), kind_there
    return kind if kind in NETWORK_FILESYSTEMS else ""
