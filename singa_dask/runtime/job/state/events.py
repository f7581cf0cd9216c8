"""The events that a `JobState` reacts to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from singa_dask.comm.message import Address


class Hosted(NamedTuple):
    """A Dask worker hosts a process, which is ready for its units; or it cannot host the process.

    Attributes
    ----------
    endpoint : str
        Address at which other processes reach the process.
    threads : int
        Number of threads of each CPU worker in the process; 0 if it has no worker.
    error : str
        Why the Dask worker cannot host the process; empty if it hosts it.
    final : bool
        Whether every Dask worker would have this error.
    lasting : bool
        Whether this Dask worker would have this error again later.
    """

    incarnation: int
    process: int
    endpoint: str = ""
    threads: int = 0
    error: str = ""
    final: bool = False
    lasting: bool = False


class Began(NamedTuple):
    """A unit has started to run."""

    incarnation: int
    unit: str


class TrainingBegan(NamedTuple):
    """The first worker has begun to train."""

    incarnation: int


class Stepped(NamedTuple):
    """Worker groups have made steps. ``steps`` has the step of each group; keys are group numbers as text."""

    incarnation: int
    steps: Mapping[str, int]


class Snapshotted(NamedTuple):
    """A snapshot is complete."""

    incarnation: int
    step: int
    manifest: Mapping[str, Any]


class Saved(NamedTuple):
    """A checkpoint is complete."""

    incarnation: int
    step: int
    url: str


Decisive = Began | TrainingBegan | Snapshotted | Saved
KINDS: Mapping[str, type[Decisive]] = {
    "unit": Began,
    "training": TrainingBegan,
    "snapshot": Snapshotted,
    "checkpoint": Saved,
}


def decisive(incarnation: int, what: Mapping[str, Any]) -> Decisive | None:
    """Convert a message of a unit to an event; return None if no decision depends on the message."""
    kind = KINDS.get(what["event"])
    return kind(incarnation, *(what[name] for name in kind._fields[1:])) if kind is not None else None


class Reported(NamedTuple):
    """A unit has ended, with this report."""

    incarnation: int
    unit: Address
    report: Mapping[str, Any]


class Gone(NamedTuple):
    """A Dask worker is gone, or has been silent for too long."""

    worker: str
    reason: str


class Leaving(NamedTuple):
    """A Dask worker is about to close, and waits a short time for its units to move."""

    worker: str


class Arrived(NamedTuple):
    """A Dask worker has joined the cluster."""

    worker: str


class Ended(NamedTuple):
    """The units of an incarnation on a Dask worker have ended, with these reports.

    If ``process`` is set, only the units of this process have ended.
    """

    incarnation: int
    worker: str
    reports: Mapping[str, Mapping[str, Any]] = {}
    process: int | None = None


class Cut(NamedTuple):
    """A process has disconnected from the processes to replace, or has failed to disconnect.

    Attributes
    ----------
    request : int
        Number of the `CutOff`.
    applied : mapping of int to int
        For each worker group to replace: the newest step whose gradients all servers of the group in this process have
        applied.
    error : str
        Why the process could not disconnect; empty if it has.
    """

    incarnation: int
    process: int
    request: int
    applied: Mapping[int, int] = {}
    error: str = ""


class Joined(NamedTuple):
    """A process has received the endpoints of replacement processes, or has failed to do so.

    ``error`` is the reason of a failure. ``request`` is the number of the `Join`.
    """

    incarnation: int
    process: int
    request: int
    error: str = ""


class Signal(NamedTuple):
    """A request to stop the job with a checkpoint.

    ``SIGKILL``, or a second signal from the client, ends the job immediately.

    Attributes
    ----------
    by : str
        Who sent the signal; empty for the client of the job.
    """

    name: str
    by: str = ""


class CheckpointAsked(NamedTuple):
    """A request for a checkpoint as soon as possible."""


class ClientGone(NamedTuple):
    """The client that started the job is gone."""


class Tick(NamedTuple):
    """Time has passed."""
