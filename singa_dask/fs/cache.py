"""Cache of remote data on a local disk. Each entry is a file; all processes of a host share the cache.

``singa-dask-cache``
    Marks a directory as a cache.
``entries/``
    The entries. Each file ends with a seal, which has the length and the checksum of the data.
``tmp/``
    Entries that are being written. They have their full length from the beginning.
``locks/``
    256 lock files, by the first byte of the key.
``usage``
    The total number of bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import mmap
import os
import re
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from singa_dask.errors import DataError
from singa_dask.fs.cache_folder import OTHERS, cache_folder
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.locks import delete_unlocked, try_lock, wait_for_lock
from singa_dask.fs.mapped_file import map_file, note_read
from singa_dask.fs.mounts import network_filesystem

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_GB = 20.0
# seconds to wait for a block that another process is fetching, and for the lock of the whole cache
WAIT_S = 10.0
# seconds without progress of another process that fetches a file, after which this process fetches it, too
STALL_S = 120.0
# seconds to wait before the next write after a disk error
RETRY_S = 60.0
# maximum number of memory maps; beyond it, entries of up to MAX_COPY_BYTES are copied into memory
MAX_MAPS = 256
MAX_COPY_BYTES = 1 << 26
MARKER = "singa-dask-cache"
MAGIC = b"SDCACHE1"
# fields of a seal: magic, key, length, crc32c
SEAL = struct.Struct("<8s32sQI12x")
KEY = re.compile(r"[0-9a-f]{64}")
LEFTOVER = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
COUNTER = struct.Struct("<Q")
# eviction frees at least limit / SLACK bytes
SLACK = 16
PIECE_BYTES = 1 << 24


def key_of(*parts: Any) -> str:
    """Return the key of an entry, 64 hexadecimal digits, from values that identify it."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_OPEN: dict[tuple[Path, int], Cache] = {}
_OPENING = threading.Lock()
# limited by MAX_MAPS, because each map keeps a file open
_MAPS: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def open_cache(settings: Mapping[str, Any] | None = None) -> Cache:
    """Return the cache of this process for a directory and a limit.

    Parameters
    ----------
    settings : mapping, optional
        ``dir`` and ``limit_gb`` (10**9 bytes) as in a job's ``store_conf.cache``.

    Raises
    ------
    DataError
        The directory cannot be used.
    """
    folder, limit = cache_folder(settings), int((settings or {}).get("limit_gb", DEFAULT_LIMIT_GB) * 1e9)
    with _OPENING:  # several threads may open the cache at the same time
        if (folder, limit) not in _OPEN:
            _OPEN[folder, limit] = Cache(folder, limit)
        return _OPEN[folder, limit]


class Cache:
    """A cache of at most ``limit_bytes`` that evicts the least recently used entries.

    Parameters
    ----------
    folder : Path
        Directory of the cache. It is created if it is missing; otherwise it must be empty or a cache.
    limit_bytes : int

    Attributes
    ----------
    hits, misses : int
        Number of this process's reads that the cache served, and number of reads that were fetched.

    Raises
    ------
    DataError
        The directory cannot be written, contains other files, or is on a network filesystem.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.hits = self.misses = 0
        # time of the next write after a disk error
        self._paused_until = 0.0
        self._is_warned = False
        self._pausing = threading.Lock()
        # key -> inode of a verified file
        self._whole: dict[str, int] = {}
        try:
            self._claim()
            with self._usage() as usage:
                if usage is not None:
                    self._delete_leftovers()
                    _set_count(usage, sum(size for _, size, _ in self._entries()))
        except OSError as error:
            text = f"{folder}: this directory cannot be used as a cache: {error.strerror or error}."
            raise DataError(f"{text} Set cache.dir or SINGA_DASK_CACHE to a writable directory.") from error

    # -- reading ------------------------------------------------------------------------------------

    def read(self, key: str, length: int, fetch: Callable[[], bytes | memoryview]) -> memoryview:
        """Return an entry. A missing or damaged entry is fetched.

        Parameters
        ----------
        length : int
            Number of bytes of the entry.
        fetch : callable
            Returns the bytes of the entry. Only one process of a host fetches a key at a time. Other processes wait up
            to `WAIT_S` seconds.

        Raises
        ------
        DataError
            The entry exceeds the limit of the cache.
        """
        self.check_fits(length)
        entry = self.find(key)
        if entry is None:
            with self._try_lock(key) as locked:
                entry = self.find(key, warn=False)
                if entry is None:
                    self.misses += 1
                    data = fetch()
                    if locked:
                        self.keep(key, data)
                    return memoryview(data)
        self.hits += 1
        return entry

    def file(self, key: str, length: int, chunks: Callable[[], Iterable[bytes]]) -> Path:
        """Return the path of an entry, whose file ends with the seal. A missing entry is fetched.

        While another process fetches the entry, this process waits. If the other process makes no progress for
        `STALL_S` seconds, this process fetches the entry, too.

        Raises
        ------
        DataError
            The entry exceeds the limit, or the disk is full.
        """
        self.check_fits(length)
        try:
            with self._lock(key, STALL_S) as locked:
                if self.find(key) is not None:
                    self.hits += 1
                else:
                    self.misses += 1
                    if not locked:
                        logger.warning(
                            "%s: another process fetches a file but makes no progress, so it is fetched here, too.",
                            self.folder,
                        )
                    self._write(key, length, chunks())
        except OSError as error:
            text = f"{self.folder}: a file of {length} bytes cannot be written: {error.strerror or error}."
            raise DataError(f"{text} Set cache.dir to a directory on a disk with enough space.") from error
        return self._entry(key)

    def check_fits(self, length: int) -> None:
        """Raise a `DataError` if an entry of this length exceeds the limit."""
        if length + SEAL.size > self.limit_bytes:
            text = f"{self.folder}: an entry of {length} bytes exceeds the limit of {self.limit_bytes} bytes."
            needed_gb = (length + SEAL.size) / 1e9
            raise DataError(f"{text} Set cache.limit_gb to at least {needed_gb:.3g}, or more, to hold all data.")

    def find(self, key: str, warn: bool = True) -> memoryview | None:
        """Return an entry as a view of a memory map; None if it is missing or damaged.

        If too many maps are open, the entry is copied into memory.
        """
        path = self._entry(key)
        try:
            with path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                inode = status.st_ino
                is_copied = len(_MAPS) >= MAX_MAPS and status.st_size <= MAX_COPY_BYTES
                data = memoryview(file.read() if is_copied else map_file(file))
                if not is_copied:
                    _MAPS.add(cast(mmap.mmap, data.obj))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            data, inode = memoryview(b""), -1
        if self._whole.get(key) != inode and not _is_whole(key, data):
            if warn:
                logger.warning("%s: the cached copy is damaged; fetching it again.", path)
            return None
        self._whole[key] = inode
        with contextlib.suppress(OSError):
            os.utime(path)
        return data[: -SEAL.size]

    def holds(self, key: str) -> bool:
        """Return whether an entry exists; it may be damaged."""
        return self._entry(key).exists()

    # -- writing ------------------------------------------------------------------------------------

    def keep(self, key: str, data: bytes | memoryview) -> None:
        """Write an entry that fits the limit.

        After a disk error, nothing is written for `RETRY_S` seconds.
        """
        if time.monotonic() < self._paused_until or len(data) + SEAL.size > self.limit_bytes:
            return
        try:
            self._write(key, len(data), [data])
        except OSError as error:
            self._give_up(error)
        else:
            self._go_on()

    def _give_up(self, error: OSError) -> None:
        """Pause writing after a disk error.

        Only the first of several errors in a row is logged. Several threads may call this method.
        """
        with self._pausing:
            self._paused_until = time.monotonic() + RETRY_S
            is_known, self._is_warned = self._is_warned, True
        if not is_known:
            text = "%s: cannot write to the cache: %s. Retrying every %g s."
            logger.warning(text, self.folder, error.strerror or error, RETRY_S)

    def _go_on(self) -> None:
        """Record that a write succeeded, unless it began before the pause."""
        with self._pausing:
            if time.monotonic() >= self._paused_until:
                self._is_warned = False

    def _write(self, key: str, length: int, chunks: Iterable[bytes | memoryview]) -> None:
        path, file = self._entry(key), self._reserve(key, length + SEAL.size)
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

    # -- the directory -----------------------------------------------------------------------------

    def _claim(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kind := network_filesystem(self.folder):
            raise DataError(
                f"{self.folder}: this directory cannot be used as a cache: it is on a network filesystem ({kind}). "
                "Hosts would delete files that other hosts read, and the cache would hardly be faster. Set cache.dir "
                "or SINGA_DASK_CACHE to a directory on a local disk."
            )
        names = {*os.listdir(self.folder)} - {*OTHERS}
        if MARKER not in names and names:
            text = f"{self.folder}: this is not a cache of singa-dask: it holds {min(names)}, but no {MARKER}."
            raise DataError(f"{text} Set cache.dir to an empty or a new directory.")
        # write the marker first, so that other processes never see a cache folder without a marker
        (self.folder / MARKER).touch()
        for name in ("entries", "locks", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)

    def _entry(self, key: str) -> Path:
        """Return the path of an entry."""
        return self.folder / "entries" / key[:2] / key

    def _reserve(self, key: str, size: int) -> IO[bytes]:
        """Make room for an entry, and return a locked temporary file.

        Temporary files without a lock belong to dead processes, and are deleted.
        """
        with self._usage() as usage:
            if usage is None:
                raise OSError(errno.EBUSY, f"locked for more than {WAIT_S:g} s")
            held = _count(usage)
            if held + size > self.limit_bytes:
                held = self._evict(self.limit_bytes - max(size, self.limit_bytes // SLACK))
            if held + size > self.limit_bytes:
                raise OSError(errno.ENOSPC, f"{held} bytes are in use and cannot be evicted")
            file = (self.folder / "tmp" / f"{key}.{secrets.token_hex(8)}.tmp").open("xb")
            try_lock(file)
            # set the full size now, so that other processes that sum up file sizes count the whole entry
            file.truncate(size)
            _set_count(usage, held + size)
        return file

    def _release(self, size: int) -> None:
        """Release the space reserved for an entry that was not written."""
        with self._usage() as usage:
            if usage is not None:
                _set_count(usage, max(0, _count(usage) - size))

    def _evict(self, target: int) -> int:
        """Delete the oldest entries until at most ``target`` bytes are left; return the number of bytes left.

        Existing memory maps remain valid.
        """
        self._delete_leftovers()
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
        """Yield path, size in bytes and time of last use of all entries."""
        for name, pattern in (("entries", KEY), ("tmp", LEFTOVER)):
            for folder, _, files in os.walk(self.folder / name):
                for file in filter(pattern.fullmatch, files):
                    path = Path(folder, file)
                    with contextlib.suppress(FileNotFoundError):
                        status = path.stat()
                        yield path, status.st_size, status.st_mtime_ns

    def _delete_leftovers(self) -> None:
        """Delete the temporary files of dead processes."""
        delete_unlocked(path for path in (self.folder / "tmp").iterdir() if LEFTOVER.fullmatch(path.name))

    # -- locks --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lock(self, key: str, wait_s: float) -> Iterator[bool]:
        """Hold the lock of a key; yield False if another holder makes no progress for ``wait_s`` seconds.

        Raises
        ------
        OSError
            The directory is missing or cannot be written.
        """
        with (self.folder / "locks" / key[:2]).open("ab") as file:
            yield wait_for_lock(file, wait_s, lambda: self._progress(key[:2]))

    def _progress(self, prefix: str) -> list[tuple[str, int]]:
        """Return (name, time of last write) of the temporary files whose key begins with ``prefix``."""
        written = []
        for path in (self.folder / "tmp").glob(f"{prefix}*"):
            with contextlib.suppress(FileNotFoundError):
                written.append((path.name, path.stat().st_mtime_ns))
        return written

    @contextlib.contextmanager
    def _usage(self) -> Iterator[IO[bytes] | None]:
        """Hold the lock of the whole cache; yield the usage file, or None after a timeout."""
        descriptor = os.open(self.folder / "usage", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            yield file if wait_for_lock(file, WAIT_S) else None

    @contextlib.contextmanager
    def _try_lock(self, key: str) -> Iterator[bool]:
        """Hold the lock of a key; yield False after a timeout or a disk error."""
        with contextlib.ExitStack() as held:
            try:
                locked = held.enter_context(self._lock(key, WAIT_S))
            except OSError as error:
                self._give_up(error)
                locked = False
            yield locked


def _count(usage: IO[bytes]) -> int:
    data = os.pread(usage.fileno(), COUNTER.size, 0)
    return int(COUNTER.unpack(data)[0]) if len(data) == COUNTER.size else 0


def _set_count(usage: IO[bytes], held: int) -> None:
    os.pwrite(usage.fileno(), COUNTER.pack(held), 0)


def _is_sealed(path: Path) -> bool:
    """Return whether a file ends with a seal for its name. Only such files may be deleted."""
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
    if (magic, name, length) != (MAGIC, bytes.fromhex(key), n):
        return False
    actual = 0
    for start in range(0, n, PIECE_BYTES):
        piece = data[start : min(start + PIECE_BYTES, n)]
        actual = checksum_of(piece, actual)
        note_read(len(piece))
    return bool(actual == crc)
