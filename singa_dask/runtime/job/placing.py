"""Choose the Dask workers of a job's processes, near its records where their hosts are known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from distributed import Client

from singa_dask import modules
from singa_dask.conf import JobConf
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.dask_tasks import on_dask
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.locality import Locality, host_names_of, reads_remote_stores, survey
from singa_dask.runtime.job.placer import place_first
from singa_dask.runtime.job.seen_files import check_seen, files_of
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.placement import WorkerFacts, place


class Placed(NamedTuple):
    """Placement of a job.

    Attributes
    ----------
    workers : list of str
        Address of the Dask worker of each process.
    assignments : dict of str to list of int
        By input layer: the order in which its blocks are assigned to workers, if that was chosen.
    notes : list of str
        What is not known, for the log of the run.
    """

    workers: list[str]
    assignments: Mapping[str, Sequence[int]]
    notes: list[str]


def place_on_cluster(
    client: Client,
    job: JobConf,
    layout: Layout,
    present: Mapping[str, WorkerFacts],
    sources: Sequence[modules.Source],
    resume: str | None,
    datasets: Sequence[Sequence[Any]] = (),
    prepare: Callable[[Sequence[str]], None] = lambda _: None,
) -> Placed:
    """Choose a Dask worker for each process of a job, on hosts that store its records if they are known.

    Parameters
    ----------
    client : distributed.Client
    job : JobConf
    layout : Layout
    present : mapping of str to WorkerFacts
        Dask workers that the job may use. The scheduler has left out silent ones.
    sources : sequence of Source
        The user's own modules.
    resume : str or None
        URL of the checkpoint that the job continues from.
    datasets : sequence
        Catalogs of the part files that the job reads, as plain values.
    prepare : callable
        Called with Dask workers on which there is room for the job, before its records are looked for.

    Raises
    ------
    ClusterError
        The job does not fit on the cluster.
    DataError
        A Dask worker that it would run on does not see its records.
    """
    # a job that does not fit fails before any record is looked for
    if job.cluster.elastic.max_processes:
        _, chosen = place_first(layout, present)
        if len(chosen) < len(layout.processes):
            return Placed(list(chosen), {}, [f"{len(layout.processes)} processes are packed on {len(chosen)}"])
    workers = place(layout, present)
    check_seen(client, files_of(job), workers)
    prepare(workers)
    if not reads_remote_stores(job):
        return Placed(workers, {}, [])
    notes: list[str] = []
    try:
        run = on_dask(client, datasets, workers[:1], _give_up_after(2 * limit("answer")))
        (surveyed,) = run([partial(survey, job.to_json(), resume, limit("answer"), sources)])
        notes += [
            f"layer {name}: the filesystem does not report which hosts store the records" for name in surveyed.silent
        ]
        if not surveyed.stores:
            return Placed(workers, {}, notes)
        names = client.run(host_names_of, workers=list(present))
        locality = Locality(job, layout, surveyed, names, fresh=resume is None)
        near = place(layout, present, locality.gain)
        return Placed(near, locality.assignments(near), notes)
    except Exception as error:  # locality only makes a job faster; units report what is wrong
        return Placed(workers, {}, [*notes, f"the hosts that store the records are not known: {error}"])


def _give_up_after(seconds: float) -> Callable[[], None]:
    """Return a check for `on_dask` that raises an error when this time is over."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise ClusterError(f"no answer in {seconds:g} s")

    return check
