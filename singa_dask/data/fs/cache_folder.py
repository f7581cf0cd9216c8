"""The directory of a cache: what is in it, how much, which entries go first, and who uses them.

``singa-dask-cache`` marks it as ours; ``entries/`` holds the entries, each followed by a seal; ``tmp/`` holds entries
being written, which have their full length from the beginning; ``locks/`` holds 256 empty lock files, chosen by the
first byte of the key; ``pins/`` holds a locked file for each entry that is open as a file; ``usage`` holds the total
number of bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from singa_dask.data.fs.checksum import checksum_of
from singa_dask.data.fs.locks import delete_unlocked, network_filesystem, try_lock, wait_for_lock
from singa_dask.data.fs.mapped_file import note_read
from singa_dask.errors import DataError

MARKER = "singa-dask-cache"
MAGIC = b"SDCACHE1"
# magic, key, bytes, crc32c
SEAL = struct.Struct("<8s32sQI12x")
KEY = re.compile(r"[0-9a-f]{64}")
LEFTOVER = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
PIN = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.pin")
COUNTER = struct.Struct("<Q")
# seconds until it is given up to lock the whole cache, which is never locked for long
WAIT_S = 10.0
# eviction frees at least this fraction of the limit: 1 / SLACK
SLACK = 16
PIECE_BYTES = 1 << 24


class CacheFolder:
    """A directory of entries with at most ``limit_bytes``, shared by the processes of a host.

    Parameters
    ----------
    path : Path
        Created if it is missing. An existing one must be empty or a cache.
    limit_bytes : int

    Raises
    ------
    DataError
        The directory cannot be written, contains other files, or is on a network file system.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path, self.limit_bytes = path, limit_bytes
        try:
            self._claim()
            with self._usage() as usage:
                if usage is not None:
                    self._delete_leftovers("tmp", LEFTOVER)
                    _set_count(usage, sum(size for _, size, _ in self._entries()))
        except OSError as error:
            text = f"{path}: cannot be used as a cache: {error.strerror or error}."
            raise DataError(f"{text} Set cache.dir or SINGA_DASK_CACHE to a writable directory.") from error

    def _claim(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kind := network_filesystem(self.path):
            text = (
                f"{self.path}: cannot be used as a cache: it is on a network file system ({kind}). Hosts would delete"
            )
            advice = "Set cache.dir or SINGA_DASK_CACHE to a directory on a local disk."
            raise DataError(f"{text} files that others read from, and a cache there is hardly faster. {advice}")
        names = os.listdir(self.path)
        if MARKER not in names and names:
            text = f"{self.path}: not a cache of singa-dask: it holds {min(names)}, but no {MARKER}."
            raise DataError(f"{text} Set cache.dir to an empty or a new directory.")
        # the marker is created first, so that a process that sees the other entries sees it too
        (self.path / MARKER).touch()
        for name in ("entries", "locks", "pins", "tmp"):
            (self.path / name).mkdir(exist_ok=True)

    def entry(self, key: str) -> Path:
        """Return the file of an entry."""
        return self.path / "entries" / key[:2] / key

    def reserve(self, key: str, size: int) -> IO[bytes]:
        """Make room and return a locked temporary file. A temporary file without a lock was left by a dead process."""
        with self._locked_usage() as usage:
            held = _count(usage)
            if held + size > self.limit_bytes:
                held = self._evict(self.limit_bytes - max(size, self.limit_bytes // SLACK))
            if held + size > self.limit_bytes:
                raise OSError(errno.ENOSPC, f"{held} bytes are in use and cannot be evicted")
            file = (self.path / "tmp" / f"{key}.{secrets.token_hex(8)}.tmp").open("xb")
            try_lock(file)
            # who counts the files counts it in full
            file.truncate(size)
            _set_count(usage, held + size)
        return file

    def release(self, size: int) -> None:
        """Give back what was reserved for an entry that was not written."""
        with self._usage() as usage:
            if usage is not None:
                _set_count(usage, max(0, _count(usage) - size))

    def _evict(self, target: int) -> int:
        """Delete the oldest entries down to ``target`` bytes; return the bytes left.

        Entries that are open as files stay. Existing maps of others remain valid.
        """
        self._delete_leftovers("tmp", LEFTOVER)
        pinned = {path.name[:64] for path in self._delete_leftovers("pins", PIN)}
        entries = sorted(self._entries(), key=lambda entry: entry[2])
        held = sum(size for _, size, _ in entries)
        for path, size, _ in entries:
            if held <= target:
                break
            if path.parent.name != "tmp" and path.name not in pinned and _is_sealed(path):
                path.unlink(missing_ok=True)
                held -= size
        return held

    def _entries(self) -> Iterator[tuple[Path, int, int]]:
        """Yield path, size in bytes and time of last use of the files with names of entries."""
        for name, pattern in (("entries", KEY), ("tmp", LEFTOVER)):
            for folder, _, files in os.walk(self.path / name):
                for file in filter(pattern.fullmatch, files):
                    path = Path(folder, file)
                    with contextlib.suppress(FileNotFoundError):
                        status = path.stat()
                        yield path, status.st_size, status.st_mtime_ns

    def pin(self, key: str) -> CachedFile:
        """Keep an entry, which may be missing yet, from being evicted until the returned file is closed.

        Raises
        ------
        OSError
            The directory cannot be written.
        """
        with self._locked_usage():
            pin = (self.path / "pins" / f"{key}.{secrets.token_hex(8)}.pin").open("xb")
            try_lock(pin)
        return CachedFile(self.entry(key), pin)

    def _delete_leftovers(self, folder: str, pattern: re.Pattern[str]) -> list[Path]:
        """Delete the files of dead processes; return those of living ones."""
        return delete_unlocked(path for path in (self.path / folder).iterdir() if pattern.fullmatch(path.name))

    # -- locks --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self, key: str, wait_s: float) -> Iterator[bool]:
        """Hold the lock of a key; yields False if the one that holds it made no progress for ``wait_s`` seconds.

        Raises
        ------
        OSError
            The directory is gone, or cannot be written.
        """
        with (self.path / "locks" / key[:2]).open("ab") as file:
            yield wait_for_lock(file, wait_s, lambda: self._progress(key[:2]))

    def _progress(self, prefix: str) -> list[tuple[str, int]]:
        """Return names and times of the last write of files that are being written, by the first byte of their keys."""
        found = []
        for path in (self.path / "tmp").glob(f"{prefix}*"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.name, path.stat().st_mtime_ns))
        return found

    @contextlib.contextmanager
    def _usage(self) -> Iterator[IO[bytes] | None]:
        """Hold the lock of the whole cache; yields the usage file, or None if it could not be locked in time."""
        descriptor = os.open(self.path / "usage", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            yield file if wait_for_lock(file, WAIT_S) else None

    @contextlib.contextmanager
    def _locked_usage(self) -> Iterator[IO[bytes]]:
        with self._usage() as usage:
            if usage is None:
                raise OSError(errno.EBUSY, f"locked for more than {WAIT_S:g} s")
            yield usage


class CachedFile:
    """An entry that is open as a file. Its bytes are followed by the seal of the cache.

    Attributes
    ----------
    path : Path
        Is not evicted until the file is closed.
    """

    def __init__(self, path: Path, pin: IO[bytes]) -> None:
        self.path, self._pin, self._process = path, pin, os.getpid()

    def close(self) -> None:
        """Allow that the entry is evicted. In a forked child the file of the parent stays open."""
        if self._process == os.getpid():
            Path(self._pin.name).unlink(missing_ok=True)
        self._pin.close()


def _count(usage: IO[bytes]) -> int:
    data = os.pread(usage.fileno(), COUNTER.size, 0)
    return int(COUNTER.unpack(data)[0]) if len(data) == COUNTER.size else 0


def _set_count(usage: IO[bytes], held: int) -> None:
    os.pwrite(usage.fileno(), COUNTER.pack(held), 0)


def _is_sealed(path: Path) -> bool:
    """Return whether a file ends with a seal of its name: only such files are deleted."""
    try:
        with path.open("rb") as file:
            n = file.seek(0, os.SEEK_END) - SEAL.size
            seal = os.pread(file.fileno(), SEAL.size, max(n, 0))
    except OSError:
        return False
    return n >= 0 and SEAL.unpack(seal)[:3] == (MAGIC, bytes.fromhex(path.name), n)


def seal_of(key: str, length: int, crc: int) -> bytes:
    """Return what follows the bytes of an entry in its file."""
    return SEAL.pack(MAGIC, bytes.fromhex(key), length, crc)


def is_whole(key: str, data: memoryview) -> bool:
    """Return whether the bytes of a file match its seal."""
    n = len(data) - SEAL.size
    if n < 0:
        return False
    magic, name, length, crc = SEAL.unpack(data[n:])
    return (magic, name, length) == (MAGIC, bytes.fromhex(key), n) and _checksum(data[:n]) == crc


def _checksum(data: memoryview) -> int:
    crc = 0
    for start in range(0, len(data), PIECE_BYTES):
        piece = data[start : start + PIECE_BYTES]
        crc = checksum_of(piece, crc)
        note_read(len(piece))
    return crc
