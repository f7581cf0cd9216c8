"""Part files of datasets on the hosts of Dask workers, at ``dask://TOKEN/part-00003.arrow``.

A `Catalog` lists the files of a dataset and their hosts. A process that has mounted a catalog reads the files on its
own host directly. For files on other hosts, it requests ranges through a function of the runtime, and caches these
ranges in a directory on its own host.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

from singa_dask.errors import DataError
from singa_dask.fs.range_file import RangeFile

SCHEME = "dask://"


class PartFile(NamedTuple):
    """A file on the host of a Dask worker.

    Attributes
    ----------
    name : str
        ``part-00003.arrow``.
    host : str
        Host in the address of the Dask worker.
    worker : str
        Address of the Dask worker that wrote the file. The file remains when this worker process ends.
    path : str
        Local path on that host.
    size : int
        Length of the file in bytes.
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
        Unique name of this set of files.
    files : tuple of PartFile
    """

    dataset: str
    token: str
    files: tuple[PartFile, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Catalog:
        """Return the catalog from the values that `message` returned."""
        dataset, token, files = values
        return cls(dataset, token, tuple(PartFile(*file) for file in files))

    def message(self) -> list[Any]:
        """Return the catalog as plain values, which a message can contain."""
        return [self.dataset, self.token, [list(file) for file in self.files]]

    @property
    def url(self) -> str:
        """Pattern that matches all files."""
        return f"{SCHEME}{self.token}/part-*{posixpath.splitext(self.files[0].name)[1]}"


Fetch = Callable[[Catalog, PartFile, int, int], bytes]
"""Takes (catalog, file, offset, length) and returns bytes of a file on another host."""


class _Mount(NamedTuple):
    """A mounted catalog."""

    catalog: Catalog
    files: dict[str, PartFile]
    fetch: Fetch
    cache: Path | None


# token -> mounts of the token; there are several if several jobs, or a restarted job, read the same files
_MOUNTS: dict[str, list[_Mount]] = {}
_MOUNTING = threading.Lock()


@contextlib.contextmanager
def mounted(
    catalogs: Iterable[Catalog], fetch: Fetch, cache: Callable[[Catalog], Path | None] = lambda _: None
) -> Iterator[None]:
    """Make the files of catalogs readable in this process during the context.

    Parameters
    ----------
    catalogs : iterable of Catalog
    fetch : callable
        See `Fetch`.
    cache : callable
        Returns the directory that caches reads from other hosts, or None.
    """
    mounts = [
        _Mount(catalog, {file.name: file for file in catalog.files}, fetch, cache(catalog)) for catalog in catalogs
    ]
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
    """Return the name in a URL ``dask://NAME``; empty for other URLs."""
    name = url.removeprefix(SCHEME).rstrip("/")
    return name if url.startswith(SCHEME) and "/" not in name else ""


def local_path(url: str) -> Path | None:
    """Return the path of a part file on this host, or None."""
    mount, name = _look_up(url)
    file = mount and mount.files.get(name)
    return Path(file.path) if file is not None and _is_here(file) else None


def cache_of(url: str) -> dict[str, Any] | None:
    """Return the default cache settings of a part file; None if it has no cache."""
    mount = _look_up(url)[0] if url.startswith(SCHEME) else None
    return None if mount is None or mount.cache is None else {"dir": str(mount.cache)}


def _look_up(url: str) -> tuple[_Mount | None, str]:
    """Return the mount and the file name for a URL or path.

    The mount is None if the token is not mounted. The file name is empty for a directory.
    """
    token, _, name = url.removeprefix(SCHEME).strip("/").partition("/")
    mounts = _MOUNTS.get(token)
    return mounts[-1] if mounts else None, name


def _is_here(file: PartFile) -> bool:
    """Return whether this host has a file with the path and size of a part file."""
    try:
        return Path(file.path).stat().st_size == file.size
    except OSError:
        return False


class HostFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A read-only fsspec filesystem with the part files of mounted catalogs."""

    protocol = "dask"
    root_marker = ""

    def _find(self, path: str) -> tuple[_Mount, PartFile | None]:
        """Return the mount and the file of a path; the file is None for a directory."""
        path = self._strip_protocol(path)
        mount, name = _look_up(path)
        if mount is None:
            token = path.partition("/")[0]
            raise DataError(
                f"{SCHEME}{path}: there is no dataset {token!r} here. Pass it from Python: singa_dask.train(job, "
                f"data={{{token!r}: ...}}); or publish it on a Dask cluster, client.publish_dataset(..., "
                f"name={token!r}), and run the job there with --scheduler or client=."
            )
        if name and name not in mount.files:
            raise FileNotFoundError(f"{SCHEME}{path}")
        return mount, mount.files.get(name)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, type, size, and the token as ``etag``."""
        mount, file = self._find(path)
        token = mount.catalog.token
        if file is None:
            return {"name": token, "size": 0, "type": "directory"}
        return {"name": f"{token}/{file.name}", "size": file.size, "type": "file", "etag": token}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return the files of a token."""
        mount, file = self._find(path)
        names = [f"{mount.catalog.token}/{name}" for name in (mount.files if file is None else [file.name])]
        return [self.info(name) for name in names] if detail else names

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return a range of a file. A range that exceeds the file is cut off at the end of the file."""
        mount, file = self._find(path)
        if file is None:
            raise IsADirectoryError(f"{SCHEME}{path}")
        low, high, _step = slice(start, end).indices(file.size)
        if high <= low:
            return b""
        if not _is_here(file):
            return mount.fetch(mount.catalog, file, low, high - low)
        with Path(file.path).open("rb") as opened:
            opened.seek(low)
            return opened.read(high - low)

    def get_block_locations(self, path: str) -> list[dict[str, Any]]:
        """Return the host of a file; see `fs.get_block_locations`."""
        file = self._find(path)[1]
        return [] if file is None else [{"hosts": [file.host], "offset": 0, "length": file.size}]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise OSError("part files of a dataset cannot be written")
        size = self.info(path)["size"]
        return io.BufferedReader(RangeFile(lambda offset, n: self.cat_file(path, offset, offset + n), size))


fsspec.register_implementation("dask", HostFileSystem, clobber=True)
