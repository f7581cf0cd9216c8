"""Calls of a client that may hang, and errors that may be anything: made to end, and made `OSError`."""

from __future__ import annotations

import errno
import queue
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Calls", "os_error", "with_errno"]

Result = TypeVar("Result")

# What the NameNode says by the name of a Java class, where the client does not tell.
KINDS = (
    ("AccessControlException", PermissionError, errno.EACCES),
    ("PathIsNotEmptyDirectoryException", OSError, errno.ENOTEMPTY),
    ("FileAlreadyExistsException", FileExistsError, errno.EEXIST),
    ("FileNotFoundException", FileNotFoundError, errno.ENOENT),
)


class Calls:
    """Threads that call what may hang, so that the caller need not wait for it."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Any]] = []

    def call(self, function: Callable[[], Result], seconds: float) -> Result:
        """Return what the function returns or raise what it raises; `queue.Empty` after ``seconds``."""
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
            # hold nothing while there is nothing to do
            del function, answers, answer


def os_error(error: BaseException, where: str) -> OSError:
    """Return what hdfs-native raised as an `OSError` whose text begins with ``where``."""
    text = str(error)
    # the rest is a Java stack
    said = re.split(r"\\n|\n", text)[0].removesuffix('")')
    if isinstance(error, OSError):
        kind: type[OSError] = type(error)
        number = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno or errno.EIO
        return with_errno(kind, number, f"{where}: {said}")
    for name, kind, number in KINDS:
        if name in text:
            return with_errno(kind, number, f"{where}: {said}")
    return with_errno(OSError, errno.EIO, f"{where}: {said}")


def with_errno(kind: type[OSError], number: int, text: str) -> OSError:
    """Return an error that has a number, and is shown as its text alone."""
    # with the number as an argument the text would be shown as "[Errno ...] ..."
    error = kind(text)
    error.errno = number
    return error
