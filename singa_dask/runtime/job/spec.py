"""JobSpec: a job as a client submits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from singa_dask.data.fs.host_files import Catalog


@dataclass(frozen=True)
class JobSpec:
    """A job as it is submitted.

    Attributes
    ----------
    job_id : str
    job : str
        The job as JSON.
    cluster : str
        Its ``cluster`` block as JSON.
    workers : sequence of str
        Dask worker of each process.
    deals : mapping of str to sequence of int
        By input layer: the order in which its blocks are dealt.
    sources : sequence
        The user's own modules, fields of `modules.Source`.
    checkpoint_url : str
    resume : str or None
        URL of the checkpoint to continue from.
    init_from : sequence of str
    client : str
        Id of the client that submits it.
    name : str
        As the job file says.
    owner : str
        Who started it: ``user@host``.
    run_url : str
        Run directory.
    driver : int
        Number of the driver that submits it, if the job is detached; else 0.
    priority : int
        It does not start before jobs in line of the same priority, or a higher one.
    datasets : sequence
        Catalogs of the part files that it reads, as plain values.
    scalings : mapping of str to mapping
        By input layer of the training net: mean and deviation of the records, see `Scaling.to_dict`.
    """

    job_id: str
    job: str
    cluster: str
    workers: Sequence[str]
    deals: Mapping[str, Sequence[int]]
    sources: Sequence[Sequence[Any]]
    checkpoint_url: str
    resume: str | None
    init_from: Sequence[str]
    client: str
    name: str = ""
    owner: str = ""
    run_url: str = ""
    driver: int = 0
    priority: int = 0
    datasets: Sequence[Sequence[Any]] = ()
    scalings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def catalogs(self) -> list[Catalog]:
        """The part files that the job reads."""
        return [Catalog.of(each) for each in self.datasets]
