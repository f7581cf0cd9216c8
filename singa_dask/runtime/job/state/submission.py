"""A job as plain values, which clients send to the scheduler, and the scheduler to Dask workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from singa_dask.conf import JobConf
from singa_dask.fs.host_files import Catalog
from singa_dask.modules import Source


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
        User who started the job, as ``user@host``.
    resume : str or None
        URL of the checkpoint to continue from.
    init_from : sequence of str
        URLs of checkpoints with initial values.
    priority : int
        Priority in the queue. Queued jobs with a higher priority start first. Among jobs with equal priority, the job
        that was queued first starts first.
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
        First incarnation of the job under this scheduler; above 0 if the job began under an earlier scheduler.
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
