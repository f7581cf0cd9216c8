"""HdfsReader: reads ranges of one file on HDFS, and tries again where a read fails or a DataNode hangs."""

from __future__ import annotations

import errno
import time

import hdfs_native

from singa_dask.data.fs.hdfs_calls import with_errno
from singa_dask.data.fs.hdfs_connection import IO_DEADLINE_S, Connection
from singa_dask.data.fs.patience import repeated

__all__ = ["HdfsReader"]

# Delays before a read is repeated.
BACK_OFF_S = (0.1, 0.4, 1.6)


class HdfsReader:
    """Reads ranges of one file; can be used by several threads.

    The client reads the replicas of a block in the order in which the NameNode names them, and goes on with the next
    one if a DataNode fails or sends nothing. Then the file is opened again: the NameNode shuffles replicas that are
    equally far. A reader of its own therefore is the way to read a range from another replica.

    Parameters
    ----------
    connection : Connection
    path : str
    deadline_s : float
        Of the NameNode.

    Attributes
    ----------
    size : int
        Bytes.
    """

    def __init__(self, connection: Connection, path: str, deadline_s: float) -> None:
        self._connection, self._path, self._deadline_s = connection, path, deadline_s
        self.size = self._modified = -1
        # the client's reader, and how long it waits for a DataNode
        self._opened: tuple[hdfs_native.FileReader, float] | None = None
        self._open(connection.read_idle_s(0))

    def _open(self, idle_s: float) -> hdfs_native.FileReader:
        opened = self._opened
        if opened is not None and opened[1] == idle_s:
            return opened[0]
        modified, reader = self._connection.ask(self._path, self._ask_for_file, self._deadline_s, idle_s=idle_s)
        if self.size >= 0 and (self.size, self._modified) != (len(reader), modified):
            text = f"{self._connection.root}{self._path}: the file was replaced while it was read."
            raise with_errno(OSError, errno.ESTALE, text)
        self.size, self._modified = len(reader), modified
        self._opened = reader, idle_s
        return reader

    def _ask_for_file(self, client: hdfs_native.Client) -> tuple[int, hdfs_native.FileReader]:
        return client.get_file_info(self._path).modification_time, client.read(self._path)

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
        return repeated(lambda attempt: self._read(offset, length, attempt), BACK_OFF_S)

    def _read(self, offset: int, length: int, attempt: int) -> bytes:
        idle_s = self._connection.read_idle_s(attempt)
        reader = self._open(idle_s)
        began = time.monotonic()
        try:
            data = self._connection.guarded(
                self._path, offset, IO_DEADLINE_S, lambda: reader.read_range(offset, length)
            )
        except OSError:
            self._opened = None
            raise
        if self._connection.note_read(time.monotonic() - began, idle_s):
            self._opened = None
        return data
