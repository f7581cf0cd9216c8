"""HdfsConnection: the clients of this process for one HDFS cluster, shared by all threads.

It adds what hdfs-native lacks: use in a forked child is refused, every call has a deadline, a DataNode that hangs is
given up after some seconds and then avoided, a NameNode that hangs is left for the other one, and every error is an
`OSError` that names the URL (and the offset). Block locations, which it does not provide either, are requested from the
NameNode's WebHDFS: they are hints for the placement of work, so a missing answer is not an error.
"""

from __future__ import annotations

import ctypes
import errno
import getpass
import json
import logging
import math
import os
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, TypeVar

import hdfs_native

from singa_dask.cancellation import pause
from singa_dask.errors import DataError
from singa_dask.fs.io_threads import DaemonThreads
from singa_dask.lazy import LazyModule

logger = logging.getLogger(__name__)

http_client, request = LazyModule("http.client"), LazyModule("urllib.request")
ElementTree = LazyModule("xml.etree.ElementTree")

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
NEEDS_KERBEROS = (
    "If it requires Kerberos, set HADOOP_CONF_DIR to the cluster's configuration, or hadoop.security.authentication: "
    "kerberos in storage_options."
)
# variables that hdfs-native reads
TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
ENVIRONMENT = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_PROXY_USER", TOKEN_FILE, "HADOOP_USER_NAME", "KRB5CCNAME")

# The first process among forks of each other that used HDFS.
_USED_BY: dict[str, int] = {}
# Never freed: freeing the last reference in a forked child would wait for threads that do not exist there.
_CONNECTIONS: dict[tuple[object, ...], HdfsConnection] = {}
_LOCK = threading.Lock()
# Java exceptions of the NameNode that the client does not convert
KINDS = (
    ("AccessControlException", PermissionError, errno.EACCES),
    ("PathIsNotEmptyDirectoryException", OSError, errno.ENOTEMPTY),
    ("FileAlreadyExistsException", FileExistsError, errno.EEXIST),
    ("FileNotFoundException", FileNotFoundError, errno.ENOENT),
    ("InvalidArgument", OSError, errno.EINVAL),
    ("SecretManager$InvalidToken", PermissionError, errno.EACCES),
)
# what the client says of a file with erasure coding
CODES = ("ErasureCodingError", "UnsupportedErasureCodingPolicy")
NOT_RESTORED = (
    ". DataNodes of this file do not answer, and what they hold is not restored from its erasure coding. hdfs-native "
    "restores Reed-Solomon codes while enough DataNodes answer, and no XOR. Start them, or, if Hadoop wrote the file, "
    "read it with client: webhdfs."
)
GSSAPI = re.compile(
    r'GSSAPIError\(.*?, "(?:[^"]*\.? ?Minor code may provide more information|[^":]*): ([^"]*)', re.DOTALL
)
# The client appends all that it knows of the DataNodes.
DATANODES_FAILED = "All DataNodes failed"
GSSAPI_LIBRARY = "libgssapi_krb5.so.2"
# another attempt may succeed: the KDC did not answer
KDC_SILENT = ("Cannot contact any KDC", "Resource temporarily unavailable")
# Delays before a call is repeated; failures later than `WITHIN_S` after the first call are final.
BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, *[8.0] * 8)
WITHIN_S = 120.0
# Calls run in threads of their own, so that the caller can stop waiting for one that hangs.
_CALLS = DaemonThreads(1 << 16, "hdfs-call")
# of Hadoop 3, and of Hadoop 2
WEB_PORTS = (9870, 50070)
# the public operation, since Hadoop 3.2, and the private one, since 2.0
OPERATIONS = ("GETFILEBLOCKLOCATIONS", "GET_BLOCK_LOCATIONS")
# seconds: to connect, to answer, and until an address that did not answer is asked again
CONNECT_WITHIN_S, ANSWER_WITHIN_S, SILENT_FOR_S = 1.0, 10.0, 600.0
# by address, a value of time.monotonic
_SILENT_UNTIL: dict[str, float] = {}


def os_error(error: BaseException, where: str) -> OSError:
    """Convert an error of hdfs-native to an `OSError` whose text begins with ``where``."""
    text = str(error)
    said = _said(text)
    if isinstance(error, OSError):
        kind: type[OSError] = type(error)
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno or errno.EIO
        return with_errno(kind, number, f"{where}: {said}")
    if match := GSSAPI.search(text):
        text = f"{where}: Kerberos: {match[1]}."
        if any(silence in match[1] for silence in KDC_SILENT):
            return with_errno(OSError, errno.EIO, text)
        return with_errno(PermissionError, errno.EACCES, text)
    if DATANODES_FAILED in text:
        places = sorted(set(re.findall(r'ip_addr: \\*"([^"\\]*).*?xfer_port: (\d+)', text)))
        addresses = ", ".join(":".join(place) for place in places)
        return with_errno(OSError, errno.EIO, f"{where}: {DATANODES_FAILED}: {addresses}.")
    if any(name in text for name in CODES):
        return with_errno(OSError, errno.EIO, f"{where}: {said}{NOT_RESTORED}")
    for name, kind, number in KINDS:
        if name in text:
            return with_errno(kind, number, f"{where}: {said}")
    return with_errno(OSError, errno.EIO, f"{where}: {said}")


def _said(text: str) -> str:
    """Return the message of hdfs-native, ``RPCError("org.apache.NAME", "TEXT")``, as ``NAME: TEXT`` without a stack."""
    quoted = [re.sub(r"\\(.)", _unescaped, each) for each in re.findall(r'"((?:[^"\\]|\\.)*)"', text)]
    kind = re.match(r"(\w+)\(", text)
    if kind is None or len(quoted) != 1 + (kind[1] == "RPCError"):
        return re.split(r"\\n|\n", text)[0]
    name, message = kind[1], quoted[-1].partition("\n")[0]
    return f"{quoted[0].rpartition('.')[2] if name == 'RPCError' else name}: {message}"


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1])


def check_gssapi(where: str) -> None:
    """Raise `ImportError` if the library for Kerberos is missing, without which hdfs-native never answers."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(GSSAPI_LIBRARY)
    except OSError as error:
        text = f"{where}: Kerberos needs {GSSAPI_LIBRARY} (Debian: apt-get install libgssapi-krb5-2): {error}."
        raise ImportError(text) from error


def check_credentials(kerberos: Mapping[str, str | None]) -> None:
    """Raise `PermissionError` if a keytab or a file of tokens cannot be used; hdfs-native says that no ticket is there.

    Of a token file of another format hdfs-native reads on by a ticket, as if there was none.
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


def with_errno(kind: type[OSError], number: int, text: str) -> OSError:
    """Return an `OSError` with an errno that is displayed as its text only."""
    # with errno as an argument the text would be "[Errno ...] ..."
    error = kind(text)
    error.errno = number
    return error


class HdfsConnection:
    """The clients of a cluster; see `connection`.

    Parameters
    ----------
    root : str
        ``scheme://netloc`` of the URL; without ``netloc`` for ``fs.defaultFS``.
    config : mapping
        Hadoop's settings.
    config_dir : str or None
        Directory of core-site.xml and hdfs-site.xml.
    kerberos : mapping
        Keyword arguments of hdfs-native.
    deadline_s : float
        Maximum time for one call of a NameNode.

    Attributes
    ----------
    netloc : str
        Of the URL.
    settings : dict of str to str
        Those of Hadoop's configuration with those of ``config``.
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
        # by the order of the NameNodes and by `idle_s`
        self._clients: dict[tuple[tuple[str, ...], float], hdfs_native.Client] = {}
        self._hurried_until = 0.0
        self._has_answered = False
        self.settings = settings = {**hadoop_settings(config_dir), **config}
        self.netloc = root.partition("://")[2]
        self._service = name_service(self.netloc, settings)
        self._namenodes = ha_namenodes(self._service, settings)
        self._uses_kerberos = settings.get("hadoop.security.authentication", "simple") == "kerberos"

    def client(self, idle_s: float) -> hdfs_native.Client:
        """Return a client that gives up a DataNode after ``idle_s`` without data."""
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
        """Begin the next calls with another NameNode, unless another thread has changed ``order`` already."""
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
        idle_s: float = WRITE_IDLE_S,
        repeatable: bool = True,
    ) -> Result:
        """Call the NameNode about a path. If it does not answer, the other ones of an HA pair are asked.

        Parameters
        ----------
        path : str
        function : callable
            Is passed a client.
        idle_s : float
            Of the client, see `client`.
        repeatable : bool
            Whether the call may be executed twice.
        """
        for _ in self._namenodes[1:]:
            order = self._namenodes
            try:
                return self.guarded(path, None, lambda: function(self.client(idle_s)))
            except TimeoutError:
                self._use_other_namenode(order)
                if not repeatable:
                    raise
        return self.guarded(path, None, lambda: function(self.client(idle_s)))

    def guarded(self, path: str, offset: int | None, function: Callable[[], Result]) -> Result:
        """Call a function in another thread; convert what it raises, and a timeout, to an `OSError`.

        Parameters
        ----------
        path : str
        offset : int or None
            Where a DataNode reads or writes; None for a call of the NameNode, which has ``deadline_s``.
        function : callable

        Raises
        ------
        OSError
            Also if this process was forked from one that has used HDFS. The client's connections would be shared, and
            parent and child would receive each other's answers.
        """
        _refuse_fork(self.root)
        where = f"{self.root}{path}" if offset is None else f"{self.root}{path}, offset {offset}"
        seconds = self.deadline_s if offset is None else IO_DEADLINE_S
        call = _CALLS.future(function)
        if not wait([call], seconds).done:
            text = f"{where}: no answer within {seconds:g} s."
            if offset is None:
                text += f" Is the NameNode of {self.root} up, and its address right?"
                if self._uses_kerberos:
                    text += " Does the KDC of Kerberos answer?"
                elif not self._has_answered:
                    text += f" {NEEDS_KERBEROS}"
            raise with_errno(TimeoutError, errno.ETIMEDOUT, text)
        try:
            result = call.result()
        except BaseException as error:
            # a panic of the Rust library is not an Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise self._advised(os_error(error, where)) from error
        self._has_answered = True
        return result

    def _advised(self, error: OSError) -> OSError:
        """Add to an error what to do if authentication may be its cause; a repetition does not mend the NameNode's."""
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
        """Say where credentials may come from, or why those that are set are not taken."""
        principal, keytab = (self._kerberos.get(f"kerberos_{name}") for name in ("principal", "keytab"))
        if keytab:
            return f"Does the KDC know {principal}, and does klist -kt {keytab} list its present key?"
        hint = "Get a ticket with kinit (klist lists yours), or set kerberos_principal and kerberos_keytab in "
        hint += "storage_options."
        if path := os.environ.get(TOKEN_FILE):
            hint += (
                f" {TOKEN_FILE}: {path} has no token for the service {self._service}, valid for a minute more; a "
                "token names it as the URL does, by a name or by a number (hadoop.security.token.service.use_ip)."
            )
        return hint


def connection(
    root: str, config: Mapping[str, str], config_dir: str | None, kerberos: Mapping[str, str | None], deadline_s: float
) -> HdfsConnection:
    """Return the `HdfsConnection` of this process for these parameters, the same one in all threads."""
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
            logger.log(level, "%s This is tried again, attempt %d.", error, attempt + 2)
        pause(delay_s)
    return function(len(delays_s))


# -- what Hadoop's configuration and the NameNode's web server say ---------------------------------------------


def hadoop_settings(config_dir: str | None = None) -> dict[str, str]:
    """Return the settings in core-site.xml and hdfs-site.xml of a Hadoop configuration directory."""
    home = os.environ.get("HADOOP_HOME")
    directory = config_dir or os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    settings: dict[str, str] = {}
    if not directory:
        return settings
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(directory) / name
        if path.exists():
            for element in ElementTree.parse(path).iter("property"):
                settings[element.findtext("name", "").strip()] = element.findtext("value", "").strip()
    return settings


def name_service(netloc: str, settings: Mapping[str, str]) -> str:
    """Return the host and port of a URL, or the HA name; those of ``fs.defaultFS`` if the URL has none."""
    return netloc or urllib.parse.urlsplit(settings.get("fs.defaultFS", "")).netloc


def ha_namenodes(service: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the NameNodes of an HA name; empty if it is none."""
    names = settings.get(f"dfs.ha.namenodes.{service}", "").split(",")
    return tuple(name.strip() for name in names if name.strip())


def user_name() -> str:
    """Return the name of the user for HDFS. A container may run under a number without a name."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def web_addresses(netloc: str, settings: Mapping[str, str]) -> list[str]:
    """Return candidate web addresses of the NameNode, or of all NameNodes if ``netloc`` is an HA name."""
    netloc = name_service(netloc, settings)
    scheme = "https" if settings.get("dfs.http.policy") == "HTTPS_ONLY" else "http"
    key = f"dfs.namenode.{scheme}-address"
    names = ha_namenodes(netloc, settings)
    known = [settings.get(f"{key}.{netloc}.{name}") for name in names] or [settings.get(key)]
    configured = [f"{scheme}://{address}" for address in known if address]
    host = urllib.parse.urlsplit(f"//{netloc}").hostname
    guessed = [f"http://{host}:{port}" for port in WEB_PORTS] if host and not names else []
    return configured or guessed


def block_locations(addresses: Iterable[str], path: str, start: int, length: int, user: str) -> list[dict[str, Any]]:
    """Request block locations from each address in turn; returns the first answer, or an empty list.

    An address that did not answer is not asked again in this process for some minutes.

    Returns
    -------
    list of dict
        ``hosts`` (list of str), ``offset`` and ``length`` in bytes of each block that overlaps the range.
    """
    # a NameNode is not behind a proxy
    opener = request.build_opener(request.ProxyHandler({}))
    for address in addresses:
        if not _answers(address):
            continue
        for operation in OPERATIONS:
            query = urllib.parse.urlencode({"op": operation, "offset": start, "length": length, "user.name": user})
            url = f"{address.rstrip('/')}/webhdfs/v1{urllib.parse.quote(path)}?{query}"
            try:
                with opener.open(url, timeout=ANSWER_WITHIN_S) as answer:
                    return _parse(json.load(answer))
            except urllib.error.HTTPError as error:
                # it may support the other operation
                error.close()
            except (OSError, ValueError, KeyError, http_client.HTTPException):
                _SILENT_UNTIL[address] = time.monotonic() + SILENT_FOR_S
                break
    return []


def _answers(address: str) -> bool:
    """Return whether something listens at an address; a firewall may drop packets without a word."""
    if time.monotonic() < _SILENT_UNTIL.get(address, 0.0):
        return False
    parts = urllib.parse.urlsplit(address)
    try:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        socket.create_connection((parts.hostname or "", port), CONNECT_WITHIN_S).close()
    except (OSError, ValueError):
        _SILENT_UNTIL[address] = time.monotonic() + SILENT_FOR_S
        return False
    return True


def _parse(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "BlockLocations" in answer:
        return [
            {"hosts": list(block["hosts"]), "offset": int(block["offset"]), "length": int(block["length"])}
            for block in answer["BlockLocations"]["BlockLocation"]
        ]
    return [
        {
            "hosts": [location["hostName"] for location in block["locations"]],
            "offset": int(block["startOffset"]),
            "length": int(block["block"]["numBytes"]),
        }
        for block in answer["LocatedBlocks"]["locatedBlocks"]
    ]
