"""Cache of remote data on a local disk: one file per entry, shared by the processes of a host."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from singa_dask.data.fs.cache_folder import SEAL, CachedFile, CacheFolder, is_whole, seal_of
from singa_dask.data.fs.checksum import checksum_of
from singa_dask.data.fs.mapped_file import map_file
from singa_dask.errors import DataError

LOG = logging.getLogger(__name__)

DEFAULT_LIMIT_GB = 20.0
# seconds for which a block that another process fetches is waited for
WAIT_S = 10.0
# seconds without progress after which another process that fetches a file is no longer waited for
STALL_S = 120.0
# seconds until writing is tried again after an error of the disk
RETRY_S = 60.0
# maximum number of maps, beyond which entries of up to MAX_COPY_BYTES are copied
MAX_MAPS = 256
MAX_COPY_BYTES = 1 << 26


def key_of(*parts: Any) -> str:
    """Return the key of an entry described by these parts: 64 hexadecimal digits."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def default_folder() -> str:
    """Return the default directory of the cache."""
    return os.environ.get("SINGA_DASK_CACHE") or os.path.join("~", ".cache", "singa-dask")


_OPEN: dict[tuple[str, int], Cache] = {}
_OPENING = threading.Lock()
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
    with _OPENING:  # files of a store are opened in several threads
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
        The directory cannot be written, contains other files, or is on a network file system.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.hits = self.misses = 0
        # after an error of the disk nothing is written until this time
        self._paused_until = 0.0
        self._is_warned = False
        self._pausing = threading.Lock()
        # key -> inode of the file whose checksum was verified
        self._whole: dict[str, int] = {}
        self._folder = CacheFolder(folder, limit_bytes)

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

    def file(self, key: str, length: int, chunks: Callable[[], Iterable[bytes]]) -> CachedFile:
        """Return an entry as an open file, for readers that need one. It is not evicted until it is closed.

        While another process fetches the entry, this one waits as long as there is progress. If the other one ends, or
        makes no progress for `STALL_S` seconds, the entry is fetched here.

        Raises
        ------
        DataError
            The entry exceeds the limit, or the disk is full.
        """
        self.check_fits(length)
        pin: CachedFile | None = None
        try:
            pin = self._folder.pin(key)
            with self._folder.lock(key, STALL_S) as locked:
                if self.find(key) is not None:
                    self.hits += 1
                else:
                    self.misses += 1
                    if not locked:
                        LOG.warning(
                            "%s: another process fetches a file, but makes no progress. It is fetched here, too.",
                            self.folder,
                        )
                    self._write(key, length, chunks())
            return pin
        except BaseException as error:
            if pin is not None:
                pin.close()
            if not isinstance(error, OSError):
                raise
            text = f"{self.folder}: a file of {length} bytes cannot be written: {error.strerror or error}."
            raise DataError(f"{text} Set cache.dir to a directory on a disk with enough space.") from error

    def check_fits(self, length: int) -> None:
        """Raise a `DataError` if an entry of this length exceeds the limit."""
        if length + SEAL.size > self.limit_bytes:
            text = f"{self.folder}: an entry of {length} bytes exceeds the limit of {self.limit_bytes} bytes."
            needed_gb = (length + SEAL.size) / 1e9
            raise DataError(f"{text} Set cache.limit_gb to at least {needed_gb:.3g}, better more, to hold all data.")

    def find(self, key: str, warn: bool = True) -> memoryview | None:
        """Return an entry as a view of a memory map (a copy if too many are open); None if missing or damaged."""
        path = self._folder.entry(key)
        try:
            with path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                inode = status.st_ino
                is_copied = len(_MAPS) >= MAX_MAPS and status.st_size <= MAX_COPY_BYTES
                data = memoryview(file.read()) if is_copied else _mapped(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            data, inode = memoryview(b""), -1
        if self._whole.get(key) != inode and not is_whole(key, data):
            if warn:
                LOG.warning("%s: damaged, will be fetched again.", path)
            return None
        self._whole[key] = inode
        with contextlib.suppress(OSError):
            os.utime(path)
        return data[: -SEAL.size]

    def holds(self, key: str) -> bool:
        """Return whether there is an entry; it may still be damaged."""
        return self._folder.entry(key).exists()

    # -- writing ------------------------------------------------------------------------------------

    def keep(self, key: str, data: bytes | memoryview) -> None:
        """Write an entry if it fits the limit. After an error of the disk, nothing is written for `RETRY_S` seconds."""
        if time.monotonic() < self._paused_until or len(data) + SEAL.size > self.limit_bytes:
            return
        try:
            self._write(key, len(data), [data])
        except OSError as error:
            self._give_up(error)
        else:
            self._go_on()

    def _give_up(self, error: OSError) -> None:
        """Pause writing, with one warning until it works again. Many threads write at the same time."""
        with self._pausing:
            self._paused_until = time.monotonic() + RETRY_S
            is_known, self._is_warned = self._is_warned, True
        if not is_known:
            text = "%s: the cache is not written: %s. It is tried again every %g s."
            LOG.warning(text, self.folder, error.strerror or error, RETRY_S)

    def _go_on(self) -> None:
        """Take note that writing works, unless that began before the pause."""
        with self._pausing:
            if time.monotonic() >= self._paused_until:
                self._is_warned = False

    def _write(self, key: str, length: int, chunks: Iterable[bytes | memoryview]) -> None:
        path, file = self._folder.entry(key), self._folder.reserve(key, length + SEAL.size)
        try:
            with file:
                crc = n = 0
                for chunk in chunks:
                    file.write(chunk)
                    crc, n = checksum_of(chunk, crc), n + len(chunk)
                if n != length:
                    raise DataError(f"{path}: fetched {n} bytes, expected {length}.")
                file.write(seal_of(key, length, crc))
                file.flush()
                path.parent.mkdir(exist_ok=True)
                os.replace(file.name, path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            self._folder.release(length + SEAL.size)
            raise

    # -- locks --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _lock(self, key: str, wait_s: float) -> Iterator[bool]:
        """Hold the lock of a key; yields False if it could not be acquired in time."""
        with contextlib.ExitStack() as held:
            try:
                locked = held.enter_context(self._folder.lock(key, wait_s))
            except OSError as error:
                self._give_up(error)
                locked = False
            yield locked


def _mapped(file: IO[bytes]) -> memoryview:
    data = map_file(file)
    _MAPS.add(cast(mmap.mmap, data.obj))
    return data
