"""All errors and warnings of this package.

::

    SingaError
    ├── ConfigError (ValueError)   a job file or a request is wrong                     exit 2
    │   └── UnusableCheckpointError   also a CheckpointError: the initial checkpoint    exit 2
    ├── ClusterError               no Dask cluster, or it cannot run the job            exit 3
    │   ├── NotNowError            no room; a queued job tries again                    exit 3
    │   ├── NoAnswerError          the scheduler does not answer                        exit 3
    │   ├── LeftQueueError         the job was stopped while queued                     exit by signal
    │   └── UnloadableError        a Dask process cannot load this package              exit 3
    ├── DataError (OSError)        records cannot be found, read or parsed              exit 1
    │   ├── MissingPackageError    a package that reads the records is not installed    exit 2
    │   └── NoFileError            a file that the user named does not exist            exit 2
    ├── CheckpointError            a checkpoint cannot be written, found or used        exit 1
    ├── PartError                  a user's part breaks the contract of its kind        exit 1
    ├── TakenOverError             another process has taken over a job or directory    exit 1
    │   └── ReplacedError          a newer process continues the same job               exit 1
    ├── CommError                  a message could not be sent or understood            exit 1
    ├── SchedulerError             the scheduler failed to answer, because of a bug     exit 1
    ├── DeviceMemoryError          a GPU has not enough free memory                     exit 1
    ├── UnitError                  a worker or server failed while running              exit 1
    │   ├── NumericError           a loss is not finite                                 exit 5
    │   └── LostUnitError          a process that hosted units is lost                  exit 4
    └── Aborted                    the job ends because another unit failed             exit 1
    FaultError (ValueError)        a record is invalid; the caller makes it a DataError
    DataWarning (UserWarning)      records can be read, but may not mean what was intended

Messages read ``where: what is wrong. What was expected or is known. [What to do.]``
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import ClassVar, NamedTuple

from singa_dask.redaction import redact

MORE_MEMORY = "Set a smaller batchsize, use more workers, or raise the limits of the process (ulimit -v, -u)."
NO_THREAD = ("can't start new thread", "can't allocate lock")
A_BUG = "This is a bug in singa-dask, not in your job. Please report it with the lines above."


class SingaError(Exception):
    """Base of all errors; ``exit_code`` is the exit status of the command line."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        """Return the message, without secrets in URLs and options."""
        return redact(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return the traceback for IPython, which shows only the lines of the user's code and the message."""
        shell = sys.modules["IPython"].get_ipython()
        shown = type(self).__new__(type(self))
        shown.args = self.args
        # skip the first frame, which belongs to IPython
        lines: list[str] = shell.InteractiveTB.structured_traceback(
            type(self), shown, _own_frames(self.__traceback__), tb_offset=1
        )
        return lines


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return the frames of a traceback above the first frame of this package; None if there are none."""
    if frames is None or _is_own(frames.tb_frame):
        return None
    return TracebackType(_own_frames(frames.tb_next), frames.tb_frame, frames.tb_lasti, frames.tb_lineno)


def _is_own(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return bool(frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0])


@dataclass(frozen=True)
class Mark:
    """A position in a file. ``line`` and ``column`` count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One mistake in a job, with its key and its position in the file.

    Parameters
    ----------
    path : tuple of str or int
        Keys from the top of the job, e.g. ``("neuralnet", "layer", 3, "type")``.
    message : str
        Text of the error, without the position.
    mark : Mark, optional
        Position in the file.
    shown_path : str
        The path in readable form, ``neuralnet.layer[fc2].type``. By default, derived from ``path``.
    remedy : Remedy, optional
        The remedy of the `DataError` that the problem reports.
    """

    path: tuple[str | int, ...]
    message: str
    mark: Mark | None = None
    shown_path: str = ""
    remedy: Remedy | None = None

    def __str__(self) -> str:
        shown = self.shown_path or show_path(self.path)
        return ": ".join(str(part) for part in (self.mark, shown, self.message) if part)


def show_path(path: Iterable[str | int]) -> str:
    """Return a path of keys in readable form, ``a.b[2].c``."""
    shown = ""
    for key in path:
        shown += f"[{key}]" if isinstance(key, int) else f".{key}" if shown else str(key)
    return shown


class ConfigError(SingaError, ValueError):
    """One or more mistakes in a job; ``problems`` lists all of them."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem((), problems)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class ClusterError(SingaError):
    """No cluster answers, or the cluster is too small for the job or lacks this package."""

    exit_code = 3


class NotNowError(ClusterError):
    """A job cannot start now, because the cluster has no room. A queued job tries again."""


class NoAnswerError(ClusterError):
    """The scheduler does not answer, so it is not known whether it has done what was asked."""


class UnloadableError(ClusterError):
    """A scheduler or Dask worker lacks this package or has another version of it."""


class LeftQueueError(ClusterError):
    """A job was stopped while queued. The exit code is the code of the signal that stopped it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


class Remedy(NamedTuple):
    """A setting that may make unreadable records readable.

    Attributes
    ----------
    key : str
        Key of ``store_conf`` to set.
    text : str
        The sentence in the error message that recommends the setting; empty if there is none.
    values : tuple of str
        Values to choose from, if they are known.
    """

    key: str
    text: str = ""
    values: tuple[str, ...] = ()


class DataError(SingaError, OSError):
    """Records cannot be found, read or parsed. The message names URL, block and record.

    Attributes
    ----------
    remedy : Remedy or None
        The setting that the message recommends. Callers use it to reword the advice, e.g. as an option of a command.
    """

    def __init__(self, *args: object, remedy: Remedy | None = None) -> None:
        super().__init__(*args)
        self.remedy = remedy

    def wants(self, key: str) -> bool:
        """Return whether the remedy is to set the key ``key`` of ``store_conf``."""
        return self.remedy is not None and self.remedy.key == key

    def saying(self, text: str) -> DataError:
        """Return the error with ``text`` in place of its remedy, if the message contains a remedy."""
        if not self.remedy or not self.remedy.text:
            return self
        return DataError(str(self).replace(self.remedy.text, text), remedy=self.remedy._replace(text=text))


class DataWarning(UserWarning):
    """Records can be read, but may not mean what the user intended. The message says why."""


def warn_caller(text: str) -> None:
    """Issue a `DataWarning` at the line of the user's code that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_own(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(redact(text), DataWarning, stacklevel=level)


class FaultError(ValueError):
    """A record is invalid. The caller turns this error into a `DataError` that names the place."""

    def __init__(self, message: str, remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


def data_error(where: str, fault: Exception) -> DataError:
    """Return a `DataError` with a place and the text of a fault. A remedy of the fault is kept."""
    return DataError(f"{where}: {fault}.", remedy=getattr(fault, "remedy", None))


class MissingPackageError(DataError):
    """A package that reads the records is not installed. The message says how to install it."""

    exit_code = 2


class NoFileError(DataError):
    """A file or directory that the user named does not exist."""

    exit_code = 2


class CheckpointError(SingaError):
    """A checkpoint cannot be written, found, trusted or used.

    Attributes
    ----------
    unreadable : str
        URL or name of the checkpoint, if its files are missing or damaged; else empty.
    """

    unreadable = ""


class UnusableCheckpointError(ConfigError, CheckpointError):
    """The initial checkpoint of a job is missing, damaged or of another net.

    The error has the place of the key that names the checkpoint.
    """


class PartError(SingaError):
    """A user's layer, updater or store breaks the contract of its kind. The message says what to do."""


class TakenOverError(SingaError):
    """Another process has taken over a job or directory, so this one stops writing."""


class ReplacedError(TakenOverError):
    """A newer process does the same work for the same job. The job itself continues."""


class CommError(SingaError):
    """A message could not be delivered or understood."""


class SchedulerError(SingaError):
    """The scheduler failed to answer a call, because of a bug in this package."""


class DeviceMemoryError(SingaError):
    """A GPU has too little free memory. The message has the requested and the free amount."""


class UnitError(SingaError):
    """A worker or a server failed. The message names unit, step and layer."""


class NumericError(UnitError):
    """A loss became NaN or infinite."""

    exit_code = 5


class LostUnitError(UnitError):
    """A process that hosted units of the job is lost.

    Attributes
    ----------
    unreadable : str
        Name of a snapshot that was lost with the process; else empty.
    """

    exit_code = 4
    unreadable = ""


class Aborted(SingaError):
    """Raised in a waiting worker or server when the job ends because another one failed."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is due to too little memory, e.g. to start a thread or to load a library."""
    return isinstance(error, MemoryError) or str(error) in NO_THREAD or "failed to map segment" in str(error)


def text_of(error: BaseException) -> str:
    """Return the message of an exception; for errors of other packages, with the type of the exception."""
    if is_out_of_memory(error):
        return f"out of memory: {error or 'an allocation failed'}. {MORE_MEMORY}"
    return (
        str(error) if isinstance(error, SingaError) else redact(f"{type(error).__name__}: {error}".removesuffix(": "))
    )
