"""Part files on the hosts of Dask workers, at ``dask://TOKEN/part-00003.arrow``.

A `Catalog` lists the files of a dataset and their hosts. While it is mounted in a process, its files are read like any
others: those of this host are local files, ranges of the others come from a function that the run time gives, and are
kept in a directory of this host.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

from singa_dask.data.fs.range_file import RangeFile
from singa_dask.errors import DataError

__all__ = [
    "SCHEME",
    "Catalog",
    "Fetch",
    "HostFileSystem",
    "PartFile",
    "cache_of",
    "dataset_of",
    "local_path",
    "mounted",
]

SCHEME = "dask://"


class PartFile(NamedTuple):
    """A file on the host of a Dask worker.

    Attributes
    ----------
    name : str
        ``part-00003.arrow``.
    host : str
        Host of the address of the Dask worker.
    worker : str
        Address of the Dask worker that wrote the file. The file stays when that process ends.
    path : str
        Local path on that host.
    size : int
        Bytes.
    n : int
        Number of records.
    """

    name: str
    host: str
    worker: str
    path: str
    size: int
    n: int


class Catalog(NamedTuple):
    """The files of a dataset, in the order of its partitions.

    Attributes
    ----------
    dataset : str
        Name of the dataset, for errors.
    token : str
        Names these files of the dataset; no other dataset has it.
    files : tuple of PartFile
    """

    dataset: str
    token: str
    files: tuple[PartFile, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Catalog:
        """Make one of its `message`."""
        dataset, token, files = values
        return cls(dataset, token, tuple(PartFile(*file) for file in files))

    def message(self) -> list[Any]:
        """Return the catalog as plain values."""
        return [self.dataset, self.token, [list(file) for file in self.files]]

    @property
    def url(self) -> str:
        """Pattern that matches all files."""
        return f"{SCHEME}{self.token}/part-*{posixpath.splitext(self.files[0].name)[1]}"


Fetch = Callable[[Catalog, PartFile, int, int], bytes]
"""(catalog, file, offset, length) returns bytes of a file on another host."""


class _Mount:
    """A catalog that this process can read."""

    def __init__(self, catalog: Catalog, fetch: Fetch, cache: Path | None) -> None:
        self.catalog = catalog
        self.cache = cache
        self.files = {file.name: file for file in catalog.files}
        self.fetch = fetch


# by token: a process may have several jobs, or lives of one, that read the same files
_MOUNTS: dict[str, list[_Mount]] = {}
_MOUNTING = threading.Lock()


@contextlib.contextmanager
def mounted(
    catalogs: Iterable[Catalog], fetch: Fetch, cache: Callable[[Catalog], Path | None] = lambda _: None
) -> Iterator[None]:
    """Make the files of catalogs readable in this process, as long as the context lasts.

    Parameters
    ----------
    catalogs : iterable of Catalog
    fetch : callable
        Reads a range of a file on another host.
    cache : callable
        Returns the directory that keeps what was read of other hosts, if there is to be one.
    """
    mounts = [_Mount(catalog, fetch, cache(catalog)) for catalog in catalogs]
    with _MOUNTING:
        for mount in mounts:
            _MOUNTS.setdefault(mount.catalog.token, []).append(mount)
    try:
        yield
    finally:
        with _MOUNTING:
            for mount in mounts:
                _MOUNTS[mount.catalog.token].remove(mount)
                if not _MOUNTS[mount.catalog.token]:
                    del _MOUNTS[mount.catalog.token]


def dataset_of(url: str) -> str:
    """Return the name of the dataset that ``dask://NAME`` asks for; empty if a URL is no such name."""
    name = url.removeprefix(SCHEME).rstrip("/")
    return name if url.startswith(SCHEME) and "/" not in name else ""


def local_path(url: str) -> Path | None:
    """Return the path of a part file on this host; None if it is on another one."""
    file = _find(url.removeprefix(SCHEME))[1]
    return Path(file.path) if file is not None and _is_here(file) else None


def cache_of(url: str) -> dict[str, Any] | None:
    """Return the settings of the cache of a part file, if none are given; None if it has no cache."""
    mount = _find(url.removeprefix(SCHEME))[0] if url.startswith(SCHEME) else None
    return None if mount is None or mount.cache is None else {"dir": str(mount.cache)}


def _find(path: str) -> tuple[_Mount | None, PartFile | None]:
    """Return the mount of a path and the file there, None for those that do not exist."""
    token, _, name = path.strip("/").partition("/")
    mounts = _MOUNTS.get(token)
    return (mounts[-1], mounts[-1].files.get(name)) if mounts else (None, None)


def _mount_of(path: str) -> _Mount:
    mount = _find(path)[0]
    if mount is None:
        name = path.strip("/").partition("/")[0]
        raise DataError(
            f"{SCHEME}{path}: there is no dataset {name!r} here. Give it from Python: singa_dask.train(job, "
            f"data={{{name!r}: ...}}); or publish it on a Dask cluster, client.publish_dataset(..., name={name!r}), "
            "and run the job there: --scheduler, or client=."
        )
    return mount


def _is_here(file: PartFile) -> bool:
    """Return whether a file is on this host: then its path exists, and no other file has it."""
    try:
        return Path(file.path).stat().st_size == file.size
    except OSError:
        return False


class HostFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """The part files of the mounted catalogs; fsspec implements the other methods with these. It is read-only."""

    protocol = "dask"
    root_marker = ""

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, type and size; ``etag`` as versions of a file have different tokens."""
        path = self._strip_protocol(path)
        mount = _mount_of(path)
        file = _find(path)[1]
        if file is not None:
            return _entry(mount.catalog, file)
        if path.strip("/") != mount.catalog.token:
            raise FileNotFoundError(f"{SCHEME}{path}")
        return {"name": path, "size": 0, "type": "directory"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return the files of a token."""
        path = self._strip_protocol(path)
        mount = _mount_of(path)
        found = self.info(path)
        if found["type"] == "directory":
            entries: list[Mapping[str, Any]] = [_entry(mount.catalog, file) for file in mount.catalog.files]
        else:
            entries = [found]
        return [entry if detail else entry["name"] for entry in entries]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return a range of a file, as long as the file has it."""
        path = self._strip_protocol(path)
        size, mount = self.info(path)["size"], _mount_of(path)
        file = _find(path)[1]
        if file is None:
            raise IsADirectoryError(f"{SCHEME}{path}")
        low, high, _step = slice(start, end).indices(size)
        if high <= low:
            return b""
        if not _is_here(file):
            return mount.fetch(mount.catalog, file, low, high - low)
        with Path(file.path).open("rb") as opened:
            opened.seek(low)
            return opened.read(high - low)

    def get_block_locations(self, path: str, start: int = 0, length: int | None = None) -> list[dict[str, Any]]:
        """Return the host of a file, in the format of hdfs3."""
        path = self._strip_protocol(path)
        size = self.info(path)["size"]
        file = _find(path)[1]
        end = size if length is None else min(start + length, size)
        return [] if file is None else [{"hosts": [file.host], "offset": start, "length": end - start}]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise OSError("part files of a dataset cannot be written")
        return io.BufferedReader(RangeFile(_Whole(self, path, self.info(path)["size"])))


class _Whole:
    """A file as a source of ranges."""

    def __init__(self, filesystem: HostFileSystem, path: str, size: int) -> None:
        self._filesystem, self._path, self.size = filesystem, path, size

    def read(self, offset: int, length: int) -> bytes:
        return self._filesystem.cat_file(self._path, offset, offset + length)


def _entry(catalog: Catalog, file: PartFile) -> dict[str, Any]:
    return {"name": f"{catalog.token}/{file.name}", "size": file.size, "type": "file", "etag": catalog.token}


fsspec.register_implementation("dask", HostFileSystem, clobber=True)
