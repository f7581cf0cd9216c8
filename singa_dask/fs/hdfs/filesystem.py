"""HdfsFileSystem: an fsspec filesystem for HDFS. Writes are atomic, and are retried from the start."""

from __future__ import annotations

import errno
import io
import itertools
import logging
import posixpath
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

import fsspec

from singa_dask.fs.client_errors import with_errno
from singa_dask.fs.hdfs.block_locations import block_locations, web_addresses
from singa_dask.fs.hdfs.connection import HdfsConnection, connection
from singa_dask.fs.hdfs.hadoop_conf import user_name
from singa_dask.fs.range_file import RangeFile
from singa_dask.fs.retry import patiently, repeated
from singa_dask.lazy import LazyModule

if TYPE_CHECKING:
    import hdfs_native
else:
    hdfs_native = LazyModule("hdfs_native")

logger = logging.getLogger(__name__)

CHUNK_BYTES = 4 << 20
# From attempt ONE_BLOCK_FROM on, files of up to MAX_BLOCK_BYTES are written as one block, because each additional block
# may be placed on the failing DataNode.
ONE_BLOCK_FROM, MAX_BLOCK_BYTES = 2, 1 << 30
# block sizes must be multiples of the number of bytes per checksum
BLOCK_MULTIPLE = 1 << 20
# cell size of Hadoop's only erasure coding policy with XOR
XOR_CELL_BYTES = 1 << 20
# seconds to wait before each retry of a read
BACK_OFF_S = (0.1, 0.4, 1.6)


class HdfsReader:
    """A thread-safe reader of ranges of one file.

    The client tries the replicas of a block in the NameNode's order. After a failure, the file is opened again. As the
    NameNode shuffles replicas at equal distance, the new reader is likely to use another replica.

    Attributes
    ----------
    size : int
        Length of the file in bytes.
    modified : int
        Modification time, by the clock of the NameNode.
    """

    def __init__(self, connection: HdfsConnection, path: str) -> None:
        self._connection, self._path = connection, path
        self.size = self.modified = -1
        # the reader of hdfs-native, and its timeout for a DataNode
        self._opened: tuple[hdfs_native.FileReader, float] | None = None
        self._open(connection.read_idle_s(0))

    def _open(self, idle_s: float) -> hdfs_native.FileReader:
        opened = self._opened
        if opened is not None and opened[1] == idle_s:
            return opened[0]
        modified, reader = self._connection.ask(
            self._path,
            lambda client: (client.get_file_info(self._path).modification_time, client.read(self._path)),
            idle_s,
        )
        if self.size >= 0 and (self.size, self.modified) != (len(reader), modified):
            text = f"{self._connection.root}{self._path}: the file was replaced while it was read."
            raise with_errno(OSError, errno.ESTALE, text)
        self.size, self.modified = len(reader), modified
        self._opened = reader, idle_s
        return reader

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on, or fewer at the end of the file.

        Raises
        ------
        OSError
            All retries failed. The message names URL and offset.
        """
        offset = max(offset, 0)
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        return repeated(lambda attempt: self._read(offset, length, attempt), BACK_OFF_S)

    def _read(self, offset: int, length: int, attempt: int) -> bytes:
        idle_s = self._connection.read_idle_s(attempt)
        reader = self._open(idle_s)
        began = time.monotonic()
        try:
            data = self._connection.guarded(self._path, offset, lambda: reader.read_range(offset, length))
        except OSError:
            self._opened = None
            raise
        if self._connection.note_read(time.monotonic() - began, idle_s):
            self._opened = None
        return data


class HdfsFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """An HDFS filesystem on hdfs-native.

    Parameters
    ----------
    netloc : str
        ``host:port`` of the NameNode, or a name in the Hadoop configuration (HA, viewfs); empty for ``fs.defaultFS``.
    scheme : {"hdfs", "viewfs"}
    deadline_s : float
        Maximum time for one call of the NameNode, in seconds.
    http : str, optional
        ``http://host:port`` of the NameNode, for block locations. The default comes from the configuration.
    config_dir : str, optional
        Directory of core-site.xml and hdfs-site.xml. The default comes from ``HADOOP_CONF_DIR`` or ``HADOOP_HOME``.
    kerberos_principal, kerberos_keytab, kerberos_cache : str, optional
        Credentials for hdfs-native. Delegation tokens in ``HADOOP_TOKEN_FILE_LOCATION`` are used, too.
    config
        Hadoop settings, whose names contain dots: ``{"dfs.replication": 2}``.

    Raises
    ------
    ValueError
        An option is unknown.
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
                "kerberos_cache, kerberos_keytab, kerberos_principal, and Hadoop settings, such as dfs.replication."
            )
        self.root = f"{scheme}://{netloc}"
        self.deadline_s = float(deadline_s)
        self._http, self._config_dir = http, config_dir
        self._config = {name: str(value) for name, value in config.items()}
        self._kerberos = {
            "kerberos_principal": kerberos_principal,
            "kerberos_keytab": kerberos_keytab,
            "kerberos_cache": kerberos_cache,
        }

    @property
    def _connection(self) -> HdfsConnection:
        """The connection of this process.

        It is replaced when the user or the ticket in the environment changes.
        """
        return connection(self.root, self._config, self._config_dir, self._kerberos, self.deadline_s)

    # -- fsspec ---------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(member) for member in path]
        match = re.fullmatch(r"(?:hdfs|viewfs)://[^/]*(/.*)?", str(path), re.DOTALL)
        return ((match[1] if match else str(path)) or "/").rstrip("/") or "/"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return _entry(self._connection.ask(path, lambda client: client.get_file_info(path)))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        statuses = self._connection.ask(path, lambda client: list(client.list_status(path)))
        return [_entry(status) if detail else status.path for status in statuses]

    def isdir(self, path: str) -> bool:
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def makedirs(self, path: str, exist_ok: bool = True) -> None:
        """Create a directory and its parents.

        Existing directories are never an error; ``exist_ok`` is ignored.
        """
        path = self._strip_protocol(path)
        mode = 0o777 & ~_umask(self._connection.settings)
        self._connection.ask(path, lambda client: client.mkdirs(path, mode, True))

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Rename; an existing file at ``path2`` is replaced atomically."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self._connection.ask(source, lambda client: client.rename(source, target, True), repeatable=False)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        path = self._strip_protocol(path)
        if not self._connection.ask(path, lambda client: client.delete(path, recursive), repeatable=False):
            raise with_errno(FileNotFoundError, errno.ENOENT, f"{self.root}{path}: no such file or directory.")

    def put_file(self, lpath: str, rpath: str, *, check: Callable[[], None] = lambda: None, **_: Any) -> None:
        """Copy a local file atomically: write it under a temporary name, and rename it.

        After a failure of a DataNode or NameNode, the copy is retried from the start. ``check`` is called just before
        the rename, and may raise an error.
        """
        target = self._strip_protocol(rpath)
        folder, name = posixpath.split(target)
        attempts, failed = itertools.count(), list[str]()

        def write() -> None:
            self.makedirs(folder)
            failed.append(posixpath.join(folder, f".{name}.{secrets.token_hex(8)}.tmp"))
            self._write_once(source, failed[-1], next(attempts))
            check()
            self.mv(failed[-1], target)
            failed.pop()

        with open(lpath, "rb") as source:
            try:
                patiently(write)
            finally:
                self._remove_failed(failed)

    def _write_once(self, source: IO[bytes], path: str, attempt: int) -> None:
        block_bytes = None
        if attempt >= ONE_BLOCK_FROM:
            n_bytes = min(source.seek(0, io.SEEK_END), MAX_BLOCK_BYTES)
            block_bytes = -(-max(n_bytes, 1) // BLOCK_MULTIPLE) * BLOCK_MULTIPLE
        source.seek(0)
        output = _Output(self._connection, path, self._writer(path, "wb", block_bytes))
        try:
            while chunk := source.read(CHUNK_BYTES):
                output.write(chunk)
        except BaseException:
            output.abandon()
            raise
        output.close()

    def _remove_failed(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self._connection.ask(path, lambda client, path=path: client.delete(path, False))  # type: ignore[misc]
            except PermissionError:
                # if this user may not remove the temporary file, this user did not create it
                return
            except OSError as error:
                logger.warning("%s The temporary file stays.", error)
                # stop here, because further deletions would time out, too
                return

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        reader = self.reader(path)
        first, last, _step = slice(start, end).indices(reader.size)
        return reader.read(first, last - first)

    def reader(self, path: str) -> HdfsReader:
        """Open a file for ranged reads."""
        return HdfsReader(self._connection, self._strip_protocol(path))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            reader = self.reader(path)
            return io.BufferedReader(RangeFile(reader.read, reader.size), CHUNK_BYTES)
        if mode in ("wb", "ab", "xb"):
            return io.BufferedWriter(_Output(self._connection, path, self._writer(path, mode)), CHUNK_BYTES)
        raise ValueError(f"mode {mode!r}: files on HDFS are read (rb), written (wb, xb) or appended to (ab).")

    def _writer(self, path: str, mode: str, block_bytes: int | None = None) -> hdfs_native.FileWriter:
        # pass these settings, because hdfs-native ignores the configuration and uses the NameNode's defaults
        replication, block_size = (self._config.get(name) for name in ("dfs.replication", "dfs.blocksize"))
        options = hdfs_native.WriteOptions(
            overwrite=mode != "xb",
            permission=0o666 & ~_umask(self._connection.settings),
            replication=int(replication) if replication else None,
            block_size=max(block_bytes or 0, int(block_size or 0)) or None,
        )
        return self._connection.ask(
            path,
            lambda client: client.append(path) if mode == "ab" else client.create(path, options),
            repeatable=mode == "wb",
        )

    def get_block_locations(self, path: str) -> list[dict[str, Any]]:
        """Return the hosts that store each block of a file; see `fs.get_block_locations`."""
        cluster = self._connection
        addresses = [self._http] if self._http else web_addresses(cluster.netloc, cluster.settings)
        path = self._strip_protocol(path)
        return block_locations(addresses, path, self.info(path)["size"], user_name())


class _Output(io.RawIOBase):
    """A Python file object on a writer of hdfs-native."""

    def __init__(self, connection: HdfsConnection, path: str, writer: hdfs_native.FileWriter) -> None:
        self._connection, self._path, self._writer, self._at = connection, path, writer, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = bytes(data)
        self._connection.guarded(self._path, self._at, lambda: self._writer.write(view))
        self._at += len(view)
        return len(view)

    def abandon(self) -> None:
        """Close the file object without completing the file, which could wait for failing DataNodes."""
        # close the file here: garbage collection would complete it in an arbitrary thread and without a deadline
        io.RawIOBase.close(self._writer)
        super().close()

    def close(self) -> None:
        if not self.closed:
            try:
                self._connection.guarded(self._path, self._at, self._writer.close)
            finally:
                self.abandon()
            _refuse_xor(self._connection, self._path)


def _refuse_xor(cluster: HdfsConnection, path: str) -> None:
    """Delete a file with an XOR erasure code and raise an error: hdfs-native 0.14.7 writes wrong parity.

    The erasure code is inferred from the space that the file takes. For a long file, a Reed-Solomon code may need as
    much space for parity as XOR; for a short file, it needs more. So a short probe file distinguishes the two.
    """
    if not _looks_xor(cluster, path):
        return
    probe = f"{path}.probe"
    try:
        short = cluster.ask(probe, lambda client: client.create(probe, hdfs_native.WriteOptions(overwrite=True)))
        cluster.guarded(probe, 0, lambda: short.write(b"x"))
        cluster.guarded(probe, 0, short.close)
        if not _looks_xor(cluster, probe):
            return
    finally:
        cluster.ask(probe, lambda client: client.delete(probe, False))
    cluster.ask(path, lambda client: client.delete(path, False))
    raise with_errno(
        OSError,
        errno.ENOTSUP,
        f"{cluster.root}{path}: the directory has an XOR erasure coding policy, for which hdfs-native writes wrong "
        "parity: Hadoop would restore wrong bytes if a DataNode is lost. Write to a directory of replicated files or "
        "with a Reed-Solomon policy, or with client: webhdfs.",
    )


def _looks_xor(cluster: HdfsConnection, path: str) -> bool:
    """Return whether the space that a file takes fits Hadoop's erasure coding policy XOR-2-1-1024k."""
    summary = cluster.ask(path, lambda client: client.get_content_summary(path))
    whole, rest = divmod(summary.length, 2 * XOR_CELL_BYTES)
    parity = whole * XOR_CELL_BYTES + min(rest, XOR_CELL_BYTES)
    if not parity or summary.space_consumed - summary.length != parity:
        return False
    return (cluster.ask(path, lambda client: client.get_file_info(path)).replication or 0) <= 1


def _umask(settings: Mapping[str, str]) -> int:
    """Return the mask of Hadoop's ``fs.permissions.umask-mode``, octal or symbolic (``u=rwx,g=rx,o=``)."""
    text = settings.get("fs.permissions.umask-mode", "022")
    if re.fullmatch("[0-7]{1,4}", text):
        return int(text, 8) & 0o777
    if not re.fullmatch("[ugoa]*=[rwx-]*(,[ugoa]*=[rwx-]*)*", text):
        raise ValueError(f"fs.permissions.umask-mode: got {text!r}, expected a value such as 022 or u=rwx,g=rx,o=.")
    left = dict.fromkeys("ugo", 7)
    for who, what in re.findall("([ugoa]*)=([rwx-]*)", text):
        left |= dict.fromkeys(who.replace("a", "") or "ugo", sum(4 >> "rwx".index(each) for each in {*what} - {"-"}))
    return 0o777 - int("".join(map(str, left.values())), 8)


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
