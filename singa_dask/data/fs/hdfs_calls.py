"""Calls with a timeout for a client that may hang, and conversion of its errors to `OSError`."""

from __future__ import annotations

import ctypes
import errno
import queue
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Calls", "check_gssapi", "os_error", "with_errno"]

Result = TypeVar("Result")

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
