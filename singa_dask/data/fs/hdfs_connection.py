"""Connection: the clients of this process for one HDFS cluster, shared by all threads.

It adds what hdfs-native lacks: use in a forked child is refused, every call has a deadline, a DataNode that hangs is
given up after some seconds and then avoided, a NameNode that hangs is left for the other one, and every error is an
`OSError` that names the URL (and the offset).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import math
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import hdfs_native

from singa_dask.data.fs import hdfs_blocks
from singa_dask.errors import DataError
from singa_dask.gate import pause

Result = TypeVar("Result")

IO_DEADLINE_S = 60.0
# errors after which a call may succeed if it is repeated
TRANSIENT = (errno.EIO, errno.ETIMEDOUT)
IDLE_KEY = "dfs.client.socket-timeout"
# Seconds without data after which a DataNode is given up and the next replica is read, by number of the attempt.
READ_IDLE_S = (4.0, 4.0, 15.0, 15.0)
# The same while a DataNode is known to hang: each file that has a block there costs so much, once.
HURRIED_IDLE_S = 0.3
HURRIED_FOR_S = 60.0
# A DataNode synchronises a block to its disk before it acknowledges the end.
WRITE_IDLE_S = 5.0
# what hdfs-native says if the NameNode closes the connection, as it does to a client without Kerberos
REFUSED = "RPC listener disconnected"
# variables that hdfs-native reads
ENVIRONMENT = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER", "HADOOP_TOKEN_FILE_LOCATION", "HADOOP_USER_NAME")

# The first process among forks of each other that used HDFS.
_USED_BY: dict[str, int] = {}
# Never freed: freeing the last reference in a forked child would wait for threads that do not exist there.
_CONNECTIONS: dict[tuple[object, ...], Connection] = {}
_LOCK = threading.Lock()
# Java exceptions of the NameNode that the client does not convert
KINDS = (
    ("AccessControlException", PermissionError, errno.EACCES),
    ("PathIsNotEmptyDirectoryException", OSError, errno.ENOTEMPTY),
    ("FileAlreadyExistsException", FileExistsError, errno.EEXIST),
    ("FileNotFoundException", FileNotFoundError, errno.ENOENT),
    ("InvalidArgument", OSError, errno.EINVAL),
)
GSSAPI = re.compile(
    r'GSSAPIError\(.*?, "(?:[^"]*\.? ?Minor code may provide more information|[^":]*): ([^"]*)', re.DOTALL
)
GSSAPI_LIBRARY = "libgssapi_krb5.so.2"
# another attempt may succeed: the KDC did not answer
KDC_SILENT = ("Cannot contact any KDC", "Resource temporarily unavailable")
LOG = logging.getLogger(__name__)
# Delays before a call is repeated; failures later than `WITHIN_S` after the first call are final.
BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, *[8.0] * 8)
WITHIN_S = 120.0


class Calls:
    """Runs calls in worker threads, so that the caller can stop waiting for one that hangs."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Any]] = []

    def call(self, function: Callable[[], Result], seconds: float) -> Result:
        """Return or raise what the function returns or raises; raise `queue.Empty` after ``seconds``."""
        answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(jobs,), name="hdfs-call", daemon=True).start()
        jobs.put((function, answers))
        result, error = answers.get(timeout=seconds)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _work(self, jobs: queue.SimpleQueue[Any]) -> None:
        while True:
            function, answers = jobs.get()
            try:
                answer: tuple[Any, BaseException | None] = (function(), None)
            except BaseException as error:
                answer = (None, error)
            self._idle.append(jobs)
            answers.put(answer)
            # drop the references while waiting for the next call
            del function, answers, answer


def os_error(error: BaseException, where: str) -> OSError:
    """Convert an error of hdfs-native to an `OSError` whose text begins with ``where``."""
    text = str(error)
    # the rest is a Java stack trace
    said = re.split(r"\\n|\n", text)[0].removesuffix('")')
    if isinstance(error, OSError):
        kind: type[OSError] = type(error)
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno or errno.EIO
        return with_errno(kind, number, f"{where}: {said}")
    if match := GSSAPI.search(text):
        return _kerberos_error(match[1], where)
    for name, kind, number in KINDS:
        if name in text:
            return with_errno(kind, number, f"{where}: {said}")
    return with_errno(OSError, errno.EIO, f"{where}: {said}")


def check_gssapi(where: str) -> None:
    """Raise `ImportError` if the library for Kerberos is missing, without which hdfs-native never answers."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(GSSAPI_LIBRARY)
    except OSError as error:
        text = f"{where}: Kerberos needs {GSSAPI_LIBRARY} (Debian: apt-get install libgssapi-krb5-2): {error}."
        raise ImportError(text) from error


def _kerberos_error(said: str, where: str) -> OSError:
    text = f"{where}: Kerberos: {said}."
    if any(each in said for each in KDC_SILENT):
        return with_errno(OSError, errno.EIO, text)
    hint = (
        "Get a ticket with kinit (klist lists yours), or set kerberos_principal and kerberos_keytab in storage_options."
    )
    return with_errno(PermissionError, errno.EACCES, f"{text} {hint}")


def with_errno(kind: type[OSError], number: int, text: str) -> OSError:
    """Return an `OSError` with an errno that is displayed as its text only."""
    # with errno as an argument the text would be "[Errno ...] ..."
    error = kind(text)
    error.errno = number
    return error


class Connection:
    """The clients of a cluster; see `connection`.

    Parameters
    ----------
    root : str
        ``scheme://netloc``, for messages.
    netloc : str
        Of the URL; empty for ``fs.defaultFS``.
    config : mapping
        Hadoop's settings.
    config_dir : str or None
        Directory of core-site.xml and hdfs-site.xml.
    kerberos : mapping
        Keyword arguments of hdfs-native.
    """

    def __init__(
        self,
        root: str,
        netloc: str,
        config: Mapping[str, str],
        config_dir: str | None,
        kerberos: Mapping[str, str | None],
    ) -> None:
        self.root = root
        self._netloc, self._config, self._config_dir, self._kerberos = netloc, dict(config), config_dir, dict(kerberos)
        # by the order of the NameNodes and by `idle_s`
        self._clients: dict[tuple[tuple[str, ...], float], hdfs_native.Client] = {}
        self._calls = Calls()
        self._hurried_until = 0.0
        self._has_answered = False
        settings = {**hdfs_blocks.hadoop_settings(config_dir), **config}
        self._service = hdfs_blocks.name_service(netloc, settings)
        self._namenodes = hdfs_blocks.ha_namenodes(self._service, settings)
        self._uses_kerberos = settings.get("hadoop.security.authentication", "simple") == "kerberos"

    def client(self, idle_s: float) -> hdfs_native.Client:
        """Return a client that gives up a DataNode after ``idle_s`` without data."""
        with _LOCK:
            key = self._namenodes, idle_s
            if key not in self._clients:
                if self._uses_kerberos:
                    check_gssapi(self.root)
                config = {IDLE_KEY: str(int(1000 * idle_s)), **self._config}
                if self._namenodes:
                    config[f"dfs.ha.namenodes.{self._service}"] = ",".join(self._namenodes)
                url = self.root if self._netloc else None
                self._clients[key] = hdfs_native.Client(url, config, self._config_dir, **self._kerberos)
            return self._clients[key]

    def _use_other_namenode(self, order: tuple[str, ...]) -> None:
        """Let the next calls begin with another NameNode, unless another thread has changed ``order`` already."""
        with _LOCK:
            if order == self._namenodes:
                self._namenodes = (*order[1:], *order[:1])

    # -- DataNodes that hang -----------------------------------------------------------------------------

    def read_idle_s(self, attempt: int) -> float:
        """Return for how long a read waits for data of one DataNode."""
        if attempt == 0 and time.monotonic() < self._hurried_until:
            return HURRIED_IDLE_S
        return READ_IDLE_S[min(attempt, len(READ_IDLE_S) - 1)]

    def note_read(self, seconds: float, idle_s: float) -> bool:
        """Note how long a read took; return whether a DataNode may have been given up, which is then avoided."""
        hung = seconds >= idle_s
        if hung:
            self._hurried_until = time.monotonic() + HURRIED_FOR_S
        return hung

    # -- calls ----------------------------------------------------------------------------------------------

    def ask(
        self,
        path: str,
        function: Callable[[hdfs_native.Client], Result],
        seconds: float,
        idle_s: float = READ_IDLE_S[0],
        repeatable: bool = True,
    ) -> Result:
        """Call the NameNode about a path. If it does not answer, the other ones of an HA pair are asked.

        Parameters
        ----------
        path : str
        function : callable
            Is passed a client.
        seconds : float
            Deadline of each NameNode.
        idle_s : float
            Of the client, see `client`.
        repeatable : bool
            Whether the call may be executed twice.
        """
        for _ in self._namenodes[1:]:
            order = self._namenodes
            try:
                return self.guarded(path, None, seconds, lambda: function(self.client(idle_s)))
            except TimeoutError:
                self._use_other_namenode(order)
                if not repeatable:
                    raise
        return self.guarded(path, None, seconds, lambda: function(self.client(idle_s)))

    def guarded(self, path: str, offset: int | None, seconds: float, function: Callable[[], Result]) -> Result:
        """Call a function in another thread; convert what it raises, and a timeout, to an `OSError`.

        Raises
        ------
        OSError
            Also if this process was forked from one that has used HDFS. The client's connections would be shared, and
            parent and child would receive each other's answers.
        """
        _refuse_fork(self.root)
        where = f"{self.root}{path}" if offset is None else f"{self.root}{path}, offset {offset}"
        try:
            result = self._calls.call(function, seconds)
        except queue.Empty:
            text = f"{where}: no answer within {seconds:g} s."
            if offset is None:
                text += f" Is the NameNode of {self.root} up, and its address right?"
                text += " Does the KDC of Kerberos answer?" if self._uses_kerberos else ""
            raise with_errno(TimeoutError, errno.ETIMEDOUT, text) from None
        except BaseException as error:
            # a panic of the Rust library is not an Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise self._without_kerberos(os_error(error, where)) from error
        self._has_answered = True
        return result

    def _without_kerberos(self, error: OSError) -> OSError:
        """Add a hint to an error, and make it final, if the NameNode may have refused a client without Kerberos."""
        if self._has_answered or self._uses_kerberos or REFUSED not in str(error):
            return error
        text = (
            f"{error}. The NameNode closed the connection. If it requires Kerberos, set HADOOP_CONF_DIR to the "
            "cluster's configuration, or hadoop.security.authentication: kerberos in storage_options."
        )
        return with_errno(ConnectionResetError, errno.ECONNRESET, text)


def connection(
    root: str, netloc: str, config: Mapping[str, str], config_dir: str | None, kerberos: Mapping[str, str | None]
) -> Connection:
    """Return the connection of this process for these parameters of a `Connection`, the same one in all threads."""
    _refuse_fork(root)
    environment = tuple(os.environ.get(name) for name in ENVIRONMENT)
    key = (root, config_dir, *sorted(config.items()), *sorted(kerberos.items()), environment)
    with _LOCK:
        if key not in _CONNECTIONS:
            _CONNECTIONS[key] = Connection(root, netloc, config, config_dir, kerberos)
        return _CONNECTIONS[key]


def _refuse_fork(root: str) -> None:
    if _USED_BY.setdefault("pid", os.getpid()) != os.getpid():
        text = "HDFS was used before this process was forked. Start processes with spawn or forkserver instead."
        raise with_errno(OSError, errno.ENOTSUP, f"{root}: {text}")


def patiently(function: Callable[[], Result]) -> Result:
    """Call a function; repeat it for up to two minutes if it fails because servers do not answer.

    Raises
    ------
    OSError, DataError
        The last one, or the first one that a repetition would not mend.
    """
    return repeated(lambda attempt: function(), BACK_OFF_S, WITHIN_S, logging.WARNING)


def repeated(
    function: Callable[[int], Result],
    delays_s: Sequence[float],
    within_s: float = math.inf,
    level: int = logging.DEBUG,
) -> Result:
    """Call a function; repeat it after each of some delays if it fails because servers do not answer.

    Parameters
    ----------
    function : callable
        Is passed the number of the attempt, from 0 on.
    delays_s : sequence of float
        There is no event to wait for: the servers may be restarting.
    within_s : float
        Failures that come more than so many seconds after the first call are final.
    level : int
        Of `logging`, at which each failure is logged that is followed by a repetition.

    Raises
    ------
    OSError, DataError
        The last one, or the first one that a repetition would not mend.
    """
    began = time.monotonic()
    for attempt, delay_s in enumerate(delays_s):
        try:
            return function(attempt)
        except (OSError, DataError) as error:
            cause = error.__cause__ if isinstance(error, DataError) else error
            is_transient = isinstance(cause, OSError) and cause.errno in TRANSIENT
            if not is_transient or time.monotonic() - began > within_s:
                raise
            LOG.log(level, "%s This is tried again, attempt %d.", error, attempt + 2)
        pause(delay_s)
    return function(len(delays_s))
