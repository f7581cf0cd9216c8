"""HdfsConnection: the clients of this process for one HDFS cluster, shared by all threads.

Compared with plain hdfs-native:

- every call has a deadline;
- a hanging DataNode is abandoned after some seconds, and is then avoided;
- if a NameNode hangs, the other NameNode of an HA pair is used;
- every error is an `OSError` that names URL and offset;
- use in a forked child process is refused.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import TYPE_CHECKING

from singa_dask.fs.client_errors import with_errno
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.fs.hdfs.hadoop_conf import ha_namenodes, hadoop_settings, name_service
from singa_dask.fs.hdfs.native_errors import (
    DATANODES_FAILED,
    GSSAPI_LIBRARY,
    NEEDS_KERBEROS,
    REFUSED,
    os_error,
)
from singa_dask.fs.retry import Result, repeated
from singa_dask.lazy import LazyModule

if TYPE_CHECKING:
    import hdfs_native
else:
    hdfs_native = LazyModule("hdfs_native")

IO_DEADLINE_S = 60.0
IDLE_KEY = "dfs.client.socket-timeout"
# Seconds without data after which an attempt switches to the next replica, one value for each attempt.
READ_IDLE_S = (4.0, 4.0, 15.0, 15.0)
# Timeout for a DataNode that is known to hang. Each file with a block on this DataNode waits this long once.
HURRIED_IDLE_S = 0.3
HURRIED_FOR_S = 60.0
# longer than for a read, because a DataNode syncs a block to disk before it acknowledges the end of the block
WRITE_IDLE_S = 5.0
# default port of a NameNode, and seconds to wait for the first connection to a NameNode
DEFAULT_PORT, CONNECT_S = 8020, 1.0
# share of the deadline during which a refused connection is retried, and seconds between two attempts
CONNECT_SHARE, CONNECT_PAUSE_S = 0.8, 0.2
# environment variables that hdfs-native reads
TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
ENVIRONMENT = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER", TOKEN_FILE, "HADOOP_USER_NAME", "KRB5CCNAME")

# id of the process that first used HDFS; forked children inherit this value
_USED_BY: dict[str, int] = {}
# connections are never freed: freeing one in a forked child would wait for threads that the child does not have
_CONNECTIONS: dict[tuple[object, ...], HdfsConnection] = {}
_LOCK = threading.Lock()
# calls run in threads, so that the caller can stop waiting for a call that hangs
_CALLS = DaemonThreads(1 << 16, "hdfs-call")


def check_gssapi(where: str) -> None:
    """Raise `ImportError` if the Kerberos library is missing, because hdfs-native would hang."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(GSSAPI_LIBRARY)
    except OSError as error:
        text = f"{where}: Kerberos needs {GSSAPI_LIBRARY} (Debian: apt-get install libgssapi-krb5-2): {error}."
        raise ImportError(text) from error


def check_credentials(kerberos: Mapping[str, str | None]) -> None:
    """Raise `PermissionError` if a keytab or token file is unusable.

    hdfs-native would report a missing ticket instead.
    """
    keytab, tokens = kerberos.get("kerberos_keytab"), os.environ.get(TOKEN_FILE)
    for name, path, begin in (("kerberos_keytab", keytab, b"\5\2"), (TOKEN_FILE, tokens, b"HDTS")):
        if not path:
            continue
        try:
            with open(path.removeprefix("FILE:"), "rb") as file:
                said = "" if file.read(len(begin)) == begin else "not a file of this kind"
        except OSError as error:
            said = error.strerror or str(error)
        if said:
            raise with_errno(PermissionError, errno.EACCES, f"{name}: {path}: {said}, on host {socket.gethostname()}.")


class HdfsConnection:
    """The clients for an HDFS cluster. Call `connection` to get a connection.

    Parameters
    ----------
    root : str
        ``scheme://netloc`` of the URL; an empty ``netloc`` means ``fs.defaultFS``.
    config : mapping
        Hadoop settings.
    config_dir : str or None
        Directory of core-site.xml and hdfs-site.xml.
    kerberos : mapping
        Keyword arguments of hdfs-native.
    deadline_s : float
        Maximum time for one call of a NameNode, in seconds.

    Attributes
    ----------
    netloc : str
    settings : dict of str to str
        Hadoop's configuration, updated with ``config``.
    """

    def __init__(
        self,
        root: str,
        config: Mapping[str, str],
        config_dir: str | None,
        kerberos: Mapping[str, str | None],
        deadline_s: float = 10.0,
    ) -> None:
        self.root, self.deadline_s = root, deadline_s
        self._config, self._config_dir, self._kerberos = dict(config), config_dir, dict(kerberos)
        # (order of the NameNodes, `idle_s`) -> client
        self._clients: dict[tuple[tuple[str, ...], float], hdfs_native.Client] = {}
        self._hurried_until = 0.0
        self._has_answered = False
        self.settings = settings = {**hadoop_settings(config_dir), **config}
        self.netloc = root.partition("://")[2]
        self._service = name_service(self.netloc, settings)
        self._namenodes = ha_namenodes(self._service, settings)
        self._uses_kerberos = settings.get("hadoop.security.authentication", "simple") == "kerberos"

    def client(self, idle_s: float) -> hdfs_native.Client:
        """Return a client that abandons a DataNode after ``idle_s`` seconds without data."""
        with _LOCK:
            key = self._namenodes, idle_s
            if key not in self._clients:
                if self._uses_kerberos:
                    check_gssapi(self.root)
                    check_credentials(self._kerberos)
                config = {IDLE_KEY: str(int(1000 * idle_s)), **self._config}
                if self._namenodes:
                    config[f"dfs.ha.namenodes.{self._service}"] = ",".join(self._namenodes)
                url = self.root if self.netloc else None
                self._clients[key] = hdfs_native.Client(url, config, self._config_dir, **self._kerberos)
            return self._clients[key]

    def _use_other_namenode(self, order: tuple[str, ...]) -> None:
        """Send later calls to another NameNode, unless another thread has already changed the ``order``."""
        with _LOCK:
            if order == self._namenodes:
                self._namenodes = (*order[1:], *order[:1])

    # -- hanging DataNodes -------------------------------------------------------------------------------

    def read_idle_s(self, attempt: int) -> float:
        """Return how many seconds a read waits for data from one DataNode."""
        if attempt == 0 and time.monotonic() < self._hurried_until:
            return HURRIED_IDLE_S
        return READ_IDLE_S[min(attempt, len(READ_IDLE_S) - 1)]

    def note_read(self, seconds: float, idle_s: float) -> bool:
        """Record the duration of a read; return whether the read may have abandoned a DataNode."""
        hung = seconds >= idle_s
        if hung:
            self._hurried_until = time.monotonic() + HURRIED_FOR_S
        return hung

    # -- calls ----------------------------------------------------------------------------------------------

    def ask(
        self,
        path: str,
        function: Callable[[hdfs_native.Client], Result],
        idle_s: float = WRITE_IDLE_S,
        repeatable: bool = True,
    ) -> Result:
        """Call the NameNode for a path. If it does not answer, call the other NameNodes of an HA group.

        Parameters
        ----------
        path : str
        function : callable
            Function that takes a client, and makes the call.
        idle_s : float
            See `client`.
        repeatable : bool
            Whether the call may be executed twice.
        """

        def call() -> Result:
            self._check_address()
            return function(self.client(idle_s))

        for _ in self._namenodes[1:]:
            order = self._namenodes
            try:
                return self.guarded(path, None, call)
            except TimeoutError:
                self._use_other_namenode(order)
                if not repeatable:
                    raise
        return self.guarded(path, None, call)

    def _check_address(self) -> None:
        """Raise an `OSError` if the host of the URL is unknown or refuses connections.

        The errors of hdfs-native do not name these causes. A refused connection is retried for most of the deadline,
        because the NameNode may be restarting. Names of HA groups and of mount tables are not checked, nor is a
        NameNode that has answered before.
        """
        place = urllib.parse.urlsplit(f"//{self._service}")
        is_table = any(key.startswith(f"fs.viewfs.mounttable.{place.hostname}.") for key in self.settings)
        if self._has_answered or self._namenodes or not place.hostname or is_table or self.root.startswith("viewfs:"):
            return
        port, seconds = place.port or DEFAULT_PORT, CONNECT_SHARE * self.deadline_s

        def connect(_: int) -> None:
            socket.create_connection((place.hostname, port), min(CONNECT_S, self.deadline_s)).close()

        try:
            repeated(connect, [CONNECT_PAUSE_S] * math.ceil(seconds / CONNECT_PAUSE_S), seconds)
        except socket.gaierror as error:
            if error.errno != socket.EAI_AGAIN:
                text = f"unknown host {place.hostname!r}. Is its name right? If it is the name of an HA group, "
                text += "set HADOOP_CONF_DIR to the cluster's configuration."
                raise with_errno(OSError, errno.EHOSTUNREACH, text) from error
        except ConnectionRefusedError as error:
            text = f"connection refused by {place.hostname}:{port}. Is the NameNode up, and is this its RPC port?"
            raise with_errno(ConnectionRefusedError, errno.ECONNREFUSED, text) from error
        except OSError:
            pass  # hdfs-native tries for longer, and may still succeed

    def guarded(self, path: str, offset: int | None, function: Callable[[], Result]) -> Result:
        """Call a function in another thread, and convert its errors and a timeout to an `OSError`.

        Parameters
        ----------
        path : str
        offset : int or None
            Position in the file. None for a call of the NameNode; its deadline is ``deadline_s``.
        function : callable

        Raises
        ------
        OSError
            The call failed. Also raised in a forked child if its parent has used HDFS, because the two processes would
            receive each other's answers.
        """
        _refuse_fork(self.root)
        where = f"{self.root}{path}" if offset is None else f"{self.root}{path}, offset {offset}"
        seconds = self.deadline_s if offset is None else IO_DEADLINE_S
        call = _CALLS.future(function)
        if not wait([call], seconds).done:
            text = f"{where}: no answer within {seconds:g} s."
            if offset is None:
                text += f" Is the NameNode of {self.root} up, and is its address right?"
                if self._uses_kerberos:
                    text += " Does the KDC of Kerberos answer?"
                elif not self._has_answered:
                    text += f" {NEEDS_KERBEROS}"
            raise with_errno(TimeoutError, errno.ETIMEDOUT, text)
        try:
            result = call.result()
        except BaseException as error:
            # a PanicException of the Rust library is not a subclass of Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise self._advised(os_error(error, where)) from error
        self._has_answered = True
        return result

    def _advised(self, error: OSError) -> OSError:
        """Add advice to an error that may come from authentication; mark refusals of a NameNode as permanent."""
        text = str(error)
        if not self._uses_kerberos:
            if self._has_answered or REFUSED not in text:
                return error
            text = f"{text}. The NameNode closed the connection. {NEEDS_KERBEROS}"
            return with_errno(ConnectionResetError, errno.ECONNRESET, text)
        if isinstance(error, PermissionError) and ": Kerberos: " in text:
            text += f" {self._hint()}"
        elif "SecretManager$InvalidToken" in text:
            text += f". Write a new delegation token to {os.environ.get(TOKEN_FILE)} with hdfs fetchdt."
        elif DATANODES_FAILED in text and "dfs.data.transfer.protection" not in self.settings:
            text += " If the cluster has dfs.data.transfer.protection, set it in storage_options as it is there."
        return with_errno(type(error), error.errno or errno.EIO, text)

    def _hint(self) -> str:
        """Return advice on missing or rejected credentials."""
        principal, keytab = (self._kerberos.get(f"kerberos_{name}") for name in ("principal", "keytab"))
        if keytab:
            return f"Does the KDC know {principal}, and does klist -kt {keytab} list its present key?"
        hint = "Get a ticket with kinit (klist lists yours), or set kerberos_principal and kerberos_keytab in "
        hint += "storage_options."
        if path := os.environ.get(TOKEN_FILE):
            hint += (
                f" {TOKEN_FILE}: {path} has no token for the service {self._service} that is valid for another minute. "
                "A token must name the service as the URL does, by host name or by IP address "
                "(hadoop.security.token.service.use_ip)."
            )
        return hint


def connection(
    root: str, config: Mapping[str, str], config_dir: str | None, kerberos: Mapping[str, str | None], deadline_s: float
) -> HdfsConnection:
    """Return the `HdfsConnection` of this process for these parameters, shared by all threads."""
    _refuse_fork(root)
    environment = tuple(os.environ.get(name) for name in ENVIRONMENT)
    key = (root, deadline_s, config_dir, *sorted(config.items()), *sorted(kerberos.items()), environment)
    with _LOCK:
        if key not in _CONNECTIONS:
            _CONNECTIONS[key] = HdfsConnection(root, config, config_dir, kerberos, deadline_s)
        return _CONNECTIONS[key]


def _refuse_fork(root: str) -> None:
    if _USED_BY.setdefault("pid", os.getpid()) != os.getpid():
        text = "HDFS was used before this process was forked. Start processes with spawn or forkserver instead."
        raise with_errno(OSError, errno.ENOTSUP, f"{root}: {text}")
