"""Cache of remote data on a local disk: one file per entry, shared by the processes of a host.

Layout of the directory: ``singa-dask-cache`` marks it as ours; ``entries/`` holds the entries, each followed by a
seal; ``tmp/`` holds entries being written; ``locks/`` holds 256 empty lock files, chosen by the first byte of the key;
``usage`` holds the total number of bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import mmap
import os
import re
import secrets
import struct
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from singa_dask.data.fs.checksum import checksum_of
from singa_dask.errors import DataError
from singa_dask.gate import pause

__all__ = ["Cache", "default_folder", "key_of", "open_cache"]

LOG = logging.getLogger(__name__)

MARKER = "singa-dask-cache"
MAGIC = b"SDCACHE1"
# magic, key, bytes, crc32c
SEAL = struct.Struct("<8s32sQI12x")
KEY = re.compile(r"[0-9a-f]{64}")
LEFTOVER = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
COUNTER = struct.Struct("<Q")

DEFAULT_LIMIT_GB = 20.0
POLL_S = 0.01
WAIT_S = 10.0
WAIT_FOR_FILE_S = 600.0
# eviction frees at least this fraction of the limit: 1 / SLACK
SLACK = 16
MAX_MAPS = 256


def key_of(*parts: Any) -> str:
    """Return the key of an entry described by these parts: 64 hexadecimal digits."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def default_folder() -> str:
    """Return the default directory of the cache."""
    return os.environ.get("SINGA_DASK_CACHE") or os.path.join("~", ".cache", "singa-dask")


_OPEN: dict[tuple[str, int], Cache] = {}
# each map in use keeps a file open
_MAPS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def open_cache(settings: Mapping[str, Any] | None = None) -> Cache:
    """Return the cache for some settings: one object per process, directory and limit.

    Parameters
    ----------
    settings : mapping, optional
        ``dir`` and ``limit_gb`` (10**9 bytes) as in a job's ``store_conf.cache``.

    Raises
    ------
    DataError
        The directory cannot be used.
    """
    given = settings or {}
    folder = os.path.abspath(os.path.expanduser(given.get("dir") or default_folder()))
    limit = int(given.get("limit_gb", DEFAULT_LIMIT_GB) * 1e9)
    if (folder, limit) not in _OPEN:
        _OPEN[folder, limit] = Cache(Path(folder), limit)
    return _OPEN[folder, limit]


class Cache:
    """A cache of at most ``limit_bytes``, with least-recently-used eviction.

    Parameters
    ----------
    folder : Path
        Created if it is missing. An existing one must be empty or a cache.
    limit_bytes : int

    Attributes
    ----------
    hits, misses : int
        Reads of this process that were served from the cache, and reads that were fetched.

    Raises
    ------
    DataError
        The directory cannot be written, or contains other files.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.hits = self.misses = 0
        self._writes = True
        # key -> inode of the file whose checksum was verified
        self._whole: dict[str, int] = {}
        try:
            self._claim()
            with self._usage() as usage:
                if usage is not None:
                    self._remove_leftovers()
                    _set_count(usage, sum(size for _, size, _ in self._entries()))
        except OSError as error:
            text = f"{folder}: cannot be used as a cache: {error.strerror or error}."
            raise DataError(f"{text} Set cache.dir or SINGA_DASK_CACHE to a writable directory.") from error

    def _claim(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = os.listdir(self.folder)
        if MARKER not in names and names:
            text = f"{self.folder}: not a cache of singa-dask: it holds {min(names)}, but no {MARKER}."
            raise DataError(f"{text} Set cache.dir to an empty or a new directory.")
        # the marker is created first, so that a process that sees the other entries sees it too
        (self.folder / MARKER).touch()
        for name in ("entries", "locks", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)

    # -- reading ------------------------------------------------------------------------------------

    def read(self, key: str, length: int, fetch: Callable[[], bytes | memoryview]) -> memoryview:
        """Return an entry; a missing or damaged one is fetched.

        Parameters
        ----------
        length : int
            Bytes of the entry.
        fetch : callable
            Returns the bytes. Only one process of a host fetches a key at a time, unless another has waited for
            `WAIT_S` seconds.

        Raises
        ------
        DataError
            The entry exceeds the limit of the cache.
        """
        self.check_fits(length)
        found = self.find(key)
        if found is None:
            with self._lock(key, WAIT_S) as locked:
                found = self.find(key, warn=False)
                if found is None:
                    self.misses += 1
                    data = fetch()
                    if locked:
                        self.keep(key, data)
                    return memoryview(data)
        self.hits += 1
        return found

    def file(self, key: str, length: int, chunks: Callable[[], Iterable[bytes]]) -> Path:
        """Return the path of an entry, for readers that need a file. Its bytes are followed by the seal.

        Raises
        ------
        DataError
            The entry exceeds the limit, the disk is full, or another process has been fetching it for too long.
        """
        self.check_fits(length)
        with self._lock(key, WAIT_FOR_FILE_S) as locked:
            if self.find(key) is not None:
                self.hits += 1
            elif not locked:
                text = f"{self.folder}: another process has been fetching a file for {WAIT_FOR_FILE_S:g} s."
                raise DataError(f"{text} Is that process stopped?")
            else:
                self.misses += 1
                try:
                    self._write(key, length, chunks())
                except OSError as error:
                    text = f"{self.folder}: a file of {length} bytes cannot be written: {error.strerror or error}."
                    raise DataError(f"{text} Set cache.dir to a directory on a disk with enough space.") from error
        return self._path(key)

    def check_fits(self, length: int) -> None:
        """Raise a `DataError` if an entry of this length exceeds the limit."""
        if length + SEAL.size > self.limit_bytes:
            text = f"{self.folder}: an entry of {length} bytes exceeds the limit of {self.limit_bytes} bytes."
            needed_gb = (length + SEAL.size) / 1e9
            raise DataError(f"{text} Set cache.limit_gb to at least {needed_gb:.3g}, better more, to hold all data.")

    def find(self, key: str, warn: bool = True) -> memoryview | None:
        """Return an entry as a view of a memory map (a copy if too many are open); None if missing or damaged."""
        path = self._path(key)
        try:
            with path.open("rb", buffering=0) as file:
                inode = os.fstat(file.fileno()).st_ino
                data = _mapped(file) if len(_MAPS) < MAX_MAPS else memoryview(file.read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            data, inode = memoryview(b""), -1
        if self._whole.get(key) != inode and not _is_whole(key, data):
            if warn:
                LOG.warning("%s: damaged, will be fetched again.", path)
            return None
        self._whole[key] = inode
        with contextlib.suppress(OSError):
            os.utime(path)
        return data[: -SEAL.size]

    def _path(self, key: str) -> Path:
        return self.folder / "entries" / key[:2] / key

    # -- writing ------------------------------------------------------------------------------------

    def keep(self, key: str, data: bytes | memoryview) -> None:
        """Write an entry if it fits the limit. After a disk error, logs one warning and writes no more."""
        if not self._writes or len(data) + SEAL.size > self.limit_bytes:
            return
        try:
            self._write(key, len(data), [data])
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self._writes:
            LOG.warning("%s: the cache is no longer written: %s.", self.folder, error.strerror or error)
        self._writes = False

    def _write(self, key: str, length: int, chunks: Iterable[bytes | memoryview]) -> None:
        path, file = self._path(key), self._reserve(key, length + SEAL.size)
        try:
            with file:
                crc = n = 0
                for chunk in chunks:
                    file.write(chunk)
                    crc, n = checksum_of(chunk, crc), n + len(chunk)
                if n != length:
                    raise DataError(f"{path}: fetched {n} bytes, expected {length}.")
                file.write(SEAL.pack(MAGIC, bytes.fromhex(key), length, crc))
                file.flush()
                path.parent.mkdir(exist_ok=True)
                os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            self._release(length + SEAL.size)
            raise

    def _reserve(self, key: str, size: int) -> IO[bytes]:
        """Make room and return a locked temporary file. A temporary file without a lock was left by a dead process."""
        with self._usage() as usage:
            if usage is None:
                raise OSError(errno.EBUSY, f"locked for more than {WAIT_S:g} s")
            held = _count(usage)
            if held + size > self.limit_bytes:
                held = self._evict(self.limit_bytes - max(size, self.limit_bytes // SLACK))
            if held + size > self.limit_bytes:
                raise OSError(errno.ENOSPC, f"{held} bytes are in use and cannot be evicted")
            file = (self.folder / "tmp" / f"{key}.{secrets.token_hex(8)}.tmp").open("xb")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _set_count(usage, held + size)
        return file

    def _release(self, size: int) -> None:
        with self._usage() as usage:
            if usage is not None:
                _set_count(usage, max(0, _count(usage) - size))

    def _evict(self, target: int) -> int:
        """Delete the oldest entries down to ``target`` bytes; return the bytes left. Existing maps stay valid."""
        entries = sorted(self._entries(), key=lambda entry: entry[2])
        held = sum(size for _, size, _ in entries)
        for path, size, _ in entries:
            if held <= target:
                break
            if path.parent.name != "tmp" and _is_sealed(path):
                path.unlink(missing_ok=True)
                held -= size
        return held

    def _entries(self) -> Iterator[tuple[Path, int, int]]:
        """Yield path, size in bytes and time of last use of the files with names of entries."""
        for name, pattern in (("entries", KEY), ("tmp", LEFTOVER)):
            for folder, _, files in os.walk(self.folder / name):
                for file in filter(pattern.fullmatch, files):
                    path = Path(folder, file)
                    with contextlib.suppress(FileNotFoundError):
                        status = path.stat()
                        yield path, status.st_size, status.st_mtime_ns

    def _remove_leftovers(self) -> None:
        """Delete the temporary files of dead processes."""
        for path in (self.folder / "tmp").iterdir():
            if LEFTOVER.fullmatch(path.name):
                # its writer may just have renamed it
                with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                    if _try_lock(file):
                        path.unlink()

    # -- locks --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lock(self, key: str, wait_s: float) -> Iterator[bool]:
        """Hold the lock of a key; yields False if it could not be acquired in time."""
        with contextlib.ExitStack() as held:
            try:
                # the lock is released when the file is closed or the process ends
                locked = _wait_for(held.enter_context((self.folder / "locks" / key[:2]).open("ab")), wait_s)
            except OSError as error:
                self._give_up(error)
                locked = False
            yield locked

    @contextlib.contextmanager
    def _usage(self) -> Iterator[IO[bytes] | None]:
        """Hold the lock of the whole cache; yields the usage file, or None if it could not be locked in time."""
        descriptor = os.open(self.folder / "usage", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            yield file if _wait_for(file, WAIT_S) else None


def _mapped(file: IO[bytes]) -> memoryview:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPS.add(data)
    return memoryview(data)


def _wait_for(file: IO[bytes], wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while not _try_lock(file):
        if time.monotonic() > until:
            return False
        # flock has no timeout, and no event for its release
        pause(POLL_S)
    return True


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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


def _is_whole(key: str, data: memoryview) -> bool:
    """Return whether the bytes of a file match its seal."""
    n = len(data) - SEAL.size
    if n < 0:
        return False
    magic, name, length, crc = SEAL.unpack(data[n:])
    return (magic, name, length) == (MAGIC, bytes.fromhex(key), n) and checksum_of(data[:n]) == crc
