"""HdfsFileSystem: an fsspec filesystem on top of hdfs-native.

It adds what hdfs-native lacks: pickled filesystems open their own client, use in a forked child is refused, reads
stay within the file, every call has a deadline, and every error is an `OSError` that names the URL (and the offset).
"""

from __future__ import annotations

import errno
import getpass
import io
import os
import posixpath
import queue
import re
import secrets
import shutil
from collections.abc import Callable
from typing import IO, Any, TypeVar

import hdfs_native
from fsspec import AbstractFileSystem

from singa_dask.data.fs import hdfs_blocks
from singa_dask.data.fs.hdfs_calls import Calls, os_error, with_errno
from singa_dask.data.fs.range_file import RangeFile
from singa_dask.gate import pause

__all__ = ["HdfsFileSystem", "HdfsReader"]

Result = TypeVar("Result")

IO_DEADLINE_S = 60.0
# Delays before a read is retried. There is no event to wait for: the servers may be restarting.
BACK_OFF_S = (0.1, 0.4, 1.6)
CHUNK_BYTES = 4 << 20
# The first process among forks of each other that used HDFS.
_USED_BY: dict[str, int] = {}
# Never freed: freeing the last reference in a forked child would wait for threads that do not exist there.
_CLIENTS: list[hdfs_native.Client] = []


class HdfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem on HDFS, accessed by hdfs-native.

    Parameters
    ----------
    netloc : str
        ``host:port`` of the NameNode, or a name defined in the Hadoop configuration (HA, viewfs); empty for
        ``fs.defaultFS``.
    scheme : {"hdfs", "viewfs"}
    deadline_s : float
        Maximum time for one call of the NameNode.
    http : str, optional
        ``http://host:port`` of the NameNode, for block locations; taken from the configuration by default.
    config_dir : str, optional
        Directory of core-site.xml and hdfs-site.xml; by default from ``HADOOP_CONF_DIR`` or ``HADOOP_HOME``.
    kerberos_principal, kerberos_keytab, kerberos_cache : str, optional
        Passed to hdfs-native, as are delegation tokens in ``HADOOP_TOKEN_FILE_LOCATION``.
    config
        Hadoop's settings, whose names contain dots: ``{"dfs.replication": 2}``.

    Raises
    ------
    ValueError
        An option is unknown: it has no dot in its name and is not listed above.
    """

    protocol = ("hdfs", "viewfs")
    root_marker = "/"

    def __init__(
        self,
        netloc: str = "",
        scheme: str = "hdfs",
        *,
        deadline_s: float = 10.0,
        http: str | None = None,
        config_dir: str | None = None,
        kerberos_principal: str | None = None,
        kerberos_keytab: str | None = None,
        kerberos_cache: str | None = None,
        **config: Any,
    ) -> None:
        super().__init__()
        unknown = sorted(name for name in config if "." not in name)
        if unknown:
            raise ValueError(
                f"unknown storage options: {', '.join(unknown)}. Known: client, config_dir, deadline_s, http, "
                "kerberos_cache, kerberos_keytab, kerberos_principal, and Hadoop's settings, as dfs.replication."
            )
        self.root = f"{scheme}://{netloc}"
        self.deadline_s = float(deadline_s)
        self._netloc, self._http, self._config_dir = netloc, http, config_dir
        self._config = {name: str(value) for name, value in config.items()}
        self._kerberos = {
            "kerberos_principal": kerberos_principal,
            "kerberos_keytab": kerberos_keytab,
            "kerberos_cache": kerberos_cache,
        }
        self._own: tuple[hdfs_native.Client, Calls] | None = None

    # -- the client of this process ------------------------------------------------------------------

    def _here(self) -> tuple[hdfs_native.Client, Calls]:
        """Return the client of this process, and the threads that call it.

        Raises
        ------
        OSError
            This process was forked from one that has used HDFS. The client's connections would be shared, and parent
            and child would receive each other's answers.
        """
        pid = _USED_BY.setdefault("pid", os.getpid())
        if pid != os.getpid():
            text = "HDFS was used before this process was forked. Start processes with spawn or forkserver instead."
            raise with_errno(OSError, errno.ENOTSUP, f"{self.root}: {text}")
        if self._own is None:
            url = self.root if self._netloc else None
            client = hdfs_native.Client(url, self._config or None, self._config_dir, **self._kerberos)
            _CLIENTS.append(client)
            self._own = (client, Calls())
        return self._own

    def ask(self, path: str, function: Callable[[hdfs_native.Client], Result]) -> Result:
        """Call the NameNode about a path, with the deadline."""
        client, _ = self._here()
        return self.guarded(path, None, self.deadline_s, lambda: function(client))

    def guarded(self, path: str, offset: int | None, seconds: float, function: Callable[[], Result]) -> Result:
        """Call a function in another thread; convert what it raises, and a timeout, to an `OSError`."""
        where = f"{self.root}{path}" if offset is None else f"{self.root}{path}, offset {offset}"
        _, calls = self._here()
        try:
            return calls.call(function, seconds)
        except queue.Empty:
            text = f"{where}: no answer within {seconds:g} s."
            if offset is None:
                text += f" Is the NameNode of {self.root} up, and its address right?"
            raise with_errno(TimeoutError, errno.ETIMEDOUT, text) from None
        except BaseException as error:
            # a panic of the Rust library is not an Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise os_error(error, where) from error

    # -- fsspec ---------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        match = re.fullmatch(r"(?:hdfs|viewfs)://[^/]*(/.*)?", str(path), re.DOTALL)
        return ((match[1] if match else str(path)) or "/").rstrip("/") or "/"

    def unstrip_protocol(self, name: str) -> str:
        return f"{self.root}{self._strip_protocol(name)}"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return _entry(self.ask(path, lambda client: client.get_file_info(path)))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        found = self.ask(path, lambda client: list(client.list_status(path)))
        return [_entry(each) if detail else each.path for each in found]

    def exists(self, path: str, **_: Any) -> bool:
        # fsspec's version treats every error as "does not exist"
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isdir(self, path: str) -> bool:
        return self.exists(path) and bool(self.info(path)["type"] == "directory")

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        self.ask(path, lambda client: client.mkdirs(path, 0o755, create_parents))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not exist_ok and self.exists(path):
            raise with_errno(FileExistsError, errno.EEXIST, f"{self.unstrip_protocol(path)}: exists.")
        self.mkdir(path)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename; an existing file at ``path2`` is replaced atomically."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self.ask(source, lambda client: client.rename(source, target, True))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for each in path if isinstance(path, list) else [path]:
            self._delete(each, recursive)

    def rm_file(self, path: str) -> None:
        self._delete(path, False)

    def rmdir(self, path: str) -> None:
        self._delete(path, False)

    def _delete(self, path: str, recursive: bool) -> None:
        path = self._strip_protocol(path)
        if not self.ask(path, lambda client: client.delete(path, recursive)):
            raise with_errno(FileNotFoundError, errno.ENOENT, f"{self.root}{path}: no such file or directory.")

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        with self.open(path1) as source:
            self._write_whole(source, path2)

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Copy a local file atomically: a reader sees either the old content or the new."""
        with open(lpath, "rb") as source:
            self._write_whole(source, rpath)

    def _write_whole(self, source: IO[bytes], path: str) -> None:
        target = self._strip_protocol(path)
        folder, name = posixpath.split(target)
        temporary = posixpath.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
        try:
            with self.open(temporary, "wb") as file:
                shutil.copyfileobj(source, file, CHUNK_BYTES)
            self.mv(temporary, target)
        except BaseException:
            if self.exists(temporary):
                self.rm_file(temporary)
            raise

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        reader = self.reader(path)
        first, last, _step = slice(start, end).indices(reader.size)
        return reader.read(first, last - first)

    def reader(self, path: str) -> HdfsReader:
        """Open a file for ranged reads."""
        return HdfsReader(self, self._strip_protocol(path))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            return io.BufferedReader(RangeFile(self.reader(path)), CHUNK_BYTES)
        if mode in ("wb", "ab"):
            return io.BufferedWriter(_Output(self, path, self._writer(path, mode)), CHUNK_BYTES)
        raise ValueError(f"mode {mode!r}: files on HDFS are read (rb), written (wb) or appended to (ab).")

    def _writer(self, path: str, mode: str) -> hdfs_native.FileWriter:
        # hdfs-native takes the defaults of these from the NameNode, not from the configuration
        replication, block_size = (self._config.get(name) for name in ("dfs.replication", "dfs.blocksize"))
        options = hdfs_native.WriteOptions(
            overwrite=True,
            replication=int(replication) if replication else None,
            block_size=int(block_size) if block_size else None,
        )
        return self.ask(path, lambda client: client.create(path, options) if mode == "wb" else client.append(path))

    def get_block_locations(self, path: str, start: int = 0, length: int | None = None) -> list[dict[str, Any]]:
        """Return which hosts hold which bytes of a file; see `files.get_block_locations`."""
        settings = {**hdfs_blocks.hadoop_settings(self._config_dir), **self._config}
        addresses = [self._http] if self._http else hdfs_blocks.web_addresses(self._netloc, settings)
        path = self._strip_protocol(path)
        length = self.info(path)["size"] - start if length is None else length
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        return hdfs_blocks.block_locations(addresses, path, start, length, user, self.deadline_s)


class HdfsReader:
    """Reads ranges of one file; can be used by several threads.

    Attributes
    ----------
    size : int
        Bytes.
    """

    def __init__(self, filesystem: HdfsFileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path
        self.size = -1
        self._reader = self._open()
        self.size = len(self._reader)

    def _open(self) -> hdfs_native.FileReader:
        reader = self._filesystem.ask(self._path, lambda client: client.read(self._path))
        if self.size not in (-1, len(reader)):
            text = f"{self._filesystem.root}{self._path}: {len(reader)} bytes, but it had {self.size} when opened."
            raise with_errno(OSError, errno.ESTALE, text)
        return reader

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on, fewer at the end of the file.

        Raises
        ------
        OSError
            All retries failed. The error names URL and offset.
        """
        offset = max(offset, 0)
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        for wait_s in BACK_OFF_S:
            try:
                return self._read(offset, length)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                pause(wait_s)
                self._reader = self._open()
        return self._read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        reader = self._reader
        return self._filesystem.guarded(self._path, offset, IO_DEADLINE_S, lambda: reader.read_range(offset, length))


class _Output(io.RawIOBase):
    """A writer as a Python file object."""

    def __init__(self, filesystem: HdfsFileSystem, path: str, writer: hdfs_native.FileWriter) -> None:
        self._filesystem, self._path, self._writer, self._at = filesystem, path, writer, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = bytes(data)
        self._filesystem.guarded(self._path, self._at, IO_DEADLINE_S, lambda: self._writer.write(view))
        self._at += len(view)
        return len(view)

    def close(self) -> None:
        if not self.closed:
            try:
                self._filesystem.guarded(self._path, self._at, IO_DEADLINE_S, self._writer.close)
            finally:
                super().close()


def _entry(status: Any) -> dict[str, Any]:
    return {
        "name": status.path,
        "size": status.length,
        "type": "directory" if status.isdir else "file",
        "mtime": status.modification_time / 1000,
        "owner": status.owner,
        "group": status.group,
        "permission": status.permission,
        "replication": status.replication,
        "block_size": status.blocksize,
    }
