"""The actions that a `JobState` decides on, and `Jobs` carries out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from singa_dask.comm.message import Address
from singa_dask.runtime.job.job_end import JobEnd
from singa_dask.runtime.job.state.placer import Roster
from singa_dask.runtime.planning.layout import Rejoin


class Host(NamedTuple):
    """Start a `UnitHost` for a process on a Dask worker.

    Attributes
    ----------
    start : mapping
        Start of the units: the ``manifest`` of a snapshot, or the ``url`` of a checkpoint. Empty for a new run.
    buddy : str
        Dask worker that keeps a second copy of the process's snapshots; empty if there is no second copy.
    rejoin : Rejoin or None
        Set if the process joins other processes that continue.
    """

    incarnation: int
    process: int
    worker: str
    roster: Roster
    start: Mapping[str, Any]
    buddy: str = ""
    rejoin: Rejoin | None = None


class RunUnits(NamedTuple):
    """Start the units of a process in ``n_tasks`` Dask tasks."""

    incarnation: int
    worker: str
    process: int
    units: tuple[Address, ...]
    n_tasks: int
    endpoints: tuple[str, ...]


class Request(NamedTuple):
    """Ask a job's units on a Dask worker to stop with a checkpoint, or to take a snapshot or checkpoint."""

    worker: str
    what: Literal["stop", "snapshot", "checkpoint"]


class EndIncarnation(NamedTuple):
    """End the units of an incarnation on a Dask worker.

    If ``process`` is set, end only the units of this process. With ``forget``, delete snapshots of the job, too.
    """

    incarnation: int
    worker: str
    reason: str
    forget: bool = False
    process: int | None = None


class CutOff(NamedTuple):
    """Disconnect a process from ``processes``, which run the workers of ``groups``.

    ``request`` is the number that the answer repeats.
    """

    incarnation: int
    worker: str
    process: int
    request: int
    processes: tuple[int, ...]
    groups: tuple[int, ...]


class Join(NamedTuple):
    """Inform a process which other processes have changed.

    Attributes
    ----------
    request : int
        Number that the answer repeats.
    endpoints : mapping of int to str
        Address of each replacement process.
    left : tuple of Address
        Workers that are done and whose processes are gone.
    buddy : str
        The new buddy of the process; see `Host`.
    """

    incarnation: int
    worker: str
    process: int
    request: int
    endpoints: Mapping[int, str]
    left: tuple[Address, ...] = ()
    buddy: str = ""


class Tell(NamedTuple):
    """Publish an event to the client."""

    what: Mapping[str, Any]


class Over(NamedTuple):
    """End the job: publish its end, and remove it from the cluster.

    Attributes
    ----------
    stuck : tuple of str
        Dask workers with units that did not end in time.
    """

    end: JobEnd
    stuck: tuple[str, ...] = ()
