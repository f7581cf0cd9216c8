"""The specification of a job, and the events and actions of a `JobState`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from singa_dask.comm.message import Address
from singa_dask.conf import JobConf
from singa_dask.fs.host_files import Catalog
from singa_dask.modules import Source
from singa_dask.runtime.job.job_end import JobEnd

if TYPE_CHECKING:
    from singa_dask.runtime.job.state.placer import Roster
    from singa_dask.runtime.units.initial_state import Rejoin

# -- events --------------------------------------------------------------------------------------------------------


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
        Whether the error would be the same on every Dask worker.
    lasting : bool
        Whether the error would be the same on this Dask worker later.
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
    """A process has disconnected from the processes to replace, or could not.

    Attributes
    ----------
    applied : mapping of int to int
        For each worker group to replace: the newest step whose gradients all its servers in this process have applied.
    error : str
        Why the process could not disconnect; empty if it has.
    """

    incarnation: int
    process: int
    applied: Mapping[int, int] = {}
    error: str = ""


class Joined(NamedTuple):
    """A process has received the endpoints of replacement processes, or could not.

    If it could not, ``error`` says why.
    """

    incarnation: int
    process: int
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


# -- actions -------------------------------------------------------------------------------------------------------


class Host(NamedTuple):
    """Start a `UnitHost` for a process on a Dask worker.

    Attributes
    ----------
    start : mapping
        What the units start from: the ``manifest`` of a snapshot, or the ``url`` of a checkpoint. Empty for a new run.
    buddy : str
        Dask worker that keeps a second copy of the process's snapshots; empty if none does.
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
    """Ask a job's units on a Dask worker to stop with a checkpoint, or to save their state now.

    To save the state is to take a snapshot or a checkpoint.
    """

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
    """Disconnect a process from ``processes``, which run the workers of ``groups``."""

    incarnation: int
    worker: str
    process: int
    processes: tuple[int, ...]
    groups: tuple[int, ...]


class Join(NamedTuple):
    """Inform a process which other processes have changed.

    Attributes
    ----------
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


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job as plain values, as a client sends it to the cluster.

    Attributes
    ----------
    job : str
        The job as JSON, with absolute paths.
    sources : sequence
        The user's own modules, each as the fields of a `modules.Source`.
    owner : str
        Who started the job: ``user@host``.
    resume : str or None
        URL of the checkpoint to continue from.
    init_from : sequence of str
        URLs of checkpoints with initial values.
    priority : int
        Priority in the queue. Jobs that were queued earlier with the same priority, and all queued jobs with a higher
        priority, start first.
    datasets : sequence
        Catalogs, as plain values, of the part files that the job reads. The part files are deleted when the job ends.
    """

    job_id: str
    job: str
    sources: Sequence[Sequence[Any]] = ()
    run_url: str = ""
    owner: str = ""
    resume: str | None = None
    init_from: Sequence[str] = ()
    priority: int = 0
    datasets: Sequence[Sequence[Any]] = ()

    @cached_property
    def conf(self) -> JobConf:
        """The job as a `JobConf`. Blocks that need the user's own modules stay plain values."""
        return JobConf.from_json(self.job)

    @property
    def modules(self) -> list[Source]:
        """The user's own modules."""
        return [Source(*source) for source in self.sources]


@dataclass(frozen=True, kw_only=True)
class JobSpec(Submission):
    """A job as it is submitted to `Jobs`, with a Dask worker for each process.

    Attributes
    ----------
    workers : sequence of str
        Dask worker of each process.
    assignments : mapping of str to sequence of int
        For each input layer, the order in which its blocks are assigned to workers.
    client : str
        Id of the client that submits the job.
    driver : int
        Number of the driver that submits a detached job; 0 if the job is not detached.
    first_incarnation : int
        First incarnation of the job under this scheduler. It is above 0 if the job began under an earlier scheduler.
    scalings : mapping of str to mapping
        `Scaling.to_dict` of the records of each standardised input layer.
    """

    workers: Sequence[str]
    assignments: Mapping[str, Sequence[int]]
    client: str
    driver: int = 0
    first_incarnation: int = 0
    scalings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def catalogs(self) -> list[Catalog]:
        """The part files that the job reads."""
        return [Catalog.of(each) for each in self.datasets]
