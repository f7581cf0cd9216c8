"""Every error this package raises on purpose.

::

    SingaError
    ├── ConfigError (ValueError)   the job file, or what it asks for, is wrong          exit 2
    │   └── UnusableCheckpointError   also a CheckpointError: that a job starts from    exit 2
    ├── ClusterError               no Dask cluster, or one that cannot run the job      exit 3
    │   ├── LeftLineError          a job that was stopped while it waited for room         signals
    │   └── UnloadableError        a Dask process that cannot load this package            exit 3
    ├── DataError (OSError)        records that cannot be found, read or parsed         exit 1
    │   └── MissingPackageError    what reads them needs a package that is not there       exit 2
    ├── CheckpointError            a checkpoint that cannot be written, found or used   exit 1
    ├── PartError                  a part of one's own that breaks its kind's contract  exit 1
    ├── TakenOverError             another process has taken over what this one did     exit 1
    │   └── ReplacedError          a newer one, that does the same for the same job     exit 1
    ├── CommError                  a message that could not be sent, or makes no sense  exit 1
    ├── DeviceMemoryError          a GPU without the memory that is asked of it         exit 1
    ├── UnitError                  a worker or a server failed while it ran             exit 1
    │   ├── NumericError           a loss is not finite                                 exit 5
    │   └── LostUnitError          a process with units in it is gone                   exit 4
    └── Aborted                    told to a unit that must end because another failed  exit 1

Messages read ``where: what is wrong. What was expected, or is known. [What to do.]``
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, NamedTuple

from singa_dask.redaction import redact

MORE_MEMORY = "Set a smaller batchsize, use more workers, or raise the limits of the process (ulimit -v, -u)."
NO_THREAD = ("can't start new thread", "can't allocate lock")
A_BUG = "This is a bug in singa-dask, not in your job. Please report it with the lines above."


class SingaError(Exception):
    """Root of the tree. ``exit_code`` is what the command line ends with."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        """Return the message, without secrets in URLs and options."""
        return redact(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows of this error: the lines of the user's own code, and the message."""
        shell = sys.modules["IPython"].get_ipython()
        shown = type(self).__new__(type(self))
        shown.args = self.args
        # the first frame is one of IPython
        lines: list[str] = shell.InteractiveTB.structured_traceback(
            type(self), shown, _own_frames(self.__traceback__), tb_offset=1
        )
        return lines


def _own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return frames up to the first one of this package; all if that is the first one of them."""
    if frames is None or frames.tb_frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        return None
    return TracebackType(_own_frames(frames.tb_next), frames.tb_frame, frames.tb_lasti, frames.tb_lineno)


@dataclass(frozen=True)
class Mark:
    """A place in a file; ``line`` and ``column`` count from 1, 0 where there is none."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a job: where in the file, which key, what.

    Parameters
    ----------
    path : tuple of str or int
        Keys from the top of the job, e.g. ``("neuralnet", "layer", 3, "type")``.
    message : str
        What is wrong, what is known, what to do.
    mark : Mark, optional
        Place in the file.
    shown_path : str
        The path as people write it, ``neuralnet.layer[fc2].type``; made from ``path`` when empty.
    """

    path: tuple[str | int, ...]
    message: str
    mark: Mark | None = None
    shown_path: str = ""

    def __str__(self) -> str:
        shown = self.shown_path or show_path(self.path)
        return ": ".join(str(part) for part in (self.mark, shown, self.message) if part)


def show_path(path: Iterable[str | int]) -> str:
    """Write a path of keys as ``a.b[2].c``."""
    shown = ""
    for key in path:
        shown += f"[{key}]" if isinstance(key, int) else f".{key}" if shown else str(key)
    return shown


class ConfigError(SingaError, ValueError):
    """One or more mistakes in a job, all of them at once in ``problems``."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem((), problems)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class ClusterError(SingaError):
    """No cluster answers, it has too few processes or threads for the job, or lacks this package."""

    exit_code = 3


class UnloadableError(ClusterError):
    """A scheduler or a Dask worker lacks this package, or has another version of it: waiting does not help."""


class LeftLineError(ClusterError):
    """A job was stopped while it waited in line for a cluster.

    Parameters
    ----------
    message : str
    exit_code : int
        That of the signal.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


class Remedy(NamedTuple):
    """What helps with records that cannot be read.

    Attributes
    ----------
    key : str
        Key of ``store_conf`` to set.
    text : str
        How the message of the error says so; empty if it does not.
    values : tuple of str
        What to set the key to, if that is known.
    """

    key: str
    text: str = ""
    values: tuple[str, ...] = ()


class DataError(SingaError, OSError):
    """Records that cannot be found, read or parsed; the message names URL, block and record.

    Attributes
    ----------
    remedy : Remedy or None
        What helps, where a caller may have other words for it, such as an option of a command.
    """

    def __init__(self, *args: object, remedy: Remedy | None = None) -> None:
        super().__init__(*args)
        self.remedy = remedy

    def wants(self, key: str) -> bool:
        """Return whether the remedy is to set a key of ``store_conf``."""
        return self.remedy is not None and self.remedy.key == key

    def saying(self, text: str) -> DataError:
        """Return the error with other words for its remedy, if its message names that."""
        return DataError(str(self).replace(self.remedy.text, text)) if self.remedy and self.remedy.text else self


class FaultError(ValueError):
    """Why a record is invalid, without its place: a caller that knows this raises a `DataError` with its ``remedy``."""

    def __init__(self, message: str, remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


def data_error(where: str, fault: Exception) -> DataError:
    """Return a `DataError` with the place and the text of a fault; it passes on a remedy that the fault has."""
    return DataError(f"{where}: {fault}.", remedy=getattr(fault, "remedy", None))


class MissingPackageError(DataError):
    """Records cannot be read without a package that is not installed; the message says how to install it."""

    exit_code = 2


class CheckpointError(SingaError):
    """A checkpoint that cannot be written, found, trusted or used.

    Attributes
    ----------
    unreadable : str
        URL or name of the checkpoint, if its files are missing or damaged; else empty.
    """

    unreadable = ""


class UnusableCheckpointError(ConfigError, CheckpointError):
    """A checkpoint that a job starts from is missing, damaged or of another net; the problems say where it is named."""


class PartError(SingaError):
    """A layer, updater or store of the user's own breaks the contract of its kind; the message says what to do."""


class TakenOverError(SingaError):
    """Another process has taken over a job or a directory; this one writes nothing more."""


class ReplacedError(TakenOverError):
    """A newer process does the same work for the same job; the job goes on."""


class CommError(SingaError):
    """A message that could not be delivered, or that no unit understands."""


class DeviceMemoryError(SingaError):
    """A GPU has less memory free than it is asked for; the message says how much that is, and what is free."""


class UnitError(SingaError):
    """A worker or a server failed; the message names unit, step and layer."""


class NumericError(UnitError):
    """A loss became NaN or infinite."""

    exit_code = 5


class LostUnitError(UnitError):
    """A process that hosted units of the job is gone.

    Attributes
    ----------
    unreadable : str
        Name of a snapshot that is lost with it; else empty.
    """

    exit_code = 4
    unreadable = ""


class Aborted(SingaError):
    """Told to a unit that waits: the job ends because something else failed."""


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Format names for a message, at most so many of them: ``a, b, c and 4 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a process lacks memory, which it may say of a thread or a library that it cannot start."""
    return isinstance(error, MemoryError) or str(error) in NO_THREAD or "failed to map segment" in str(error)


def text_of(error: BaseException) -> str:
    """Return the message of an exception, with its type unless it is one of this package."""
    if is_out_of_memory(error):
        return f"out of memory: {error or 'an allocation failed'}. {MORE_MEMORY}"
    return (
        str(error) if isinstance(error, SingaError) else redact(f"{type(error).__name__}: {error}".removesuffix(": "))
    )
