"""Prepare a cluster for a job: start one, install `Jobs`, or wait until the job fits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

from singa_dask.comm.remote_import import load_on_scheduler
from singa_dask.runtime.job.calls import ask_jobs, expecting_answer
from singa_dask.runtime.job.client.cluster import local_cluster
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import JOBS, Op
from singa_dask.runtime.job.patience import AT_ONCE, Patience
from singa_dask.runtime.job.scheduler.jobs import Jobs
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place_first


def install_jobs(client: Client) -> None:
    """Install the plug-in `Jobs` on the scheduler, unless it is already installed."""
    load_on_scheduler(client, Jobs.__module__, limit("load"))
    with expecting_answer(client):
        client.register_plugin(Jobs(), name=JOBS)


@contextmanager
def embedded_cluster(layout: Layout) -> Iterator[Client]:
    """Start a cluster on this machine for a job. A job with one process runs in this process."""
    n_processes = len(layout.processes)
    with local_cluster(n_processes, layout.n_threads, processes=n_processes > 1) as client:
        install_jobs(client)
        yield client


def wait_for_room(client: Client, layout: Layout, patience: Patience = AT_ONCE, beside_tasks: bool = True) -> None:
    """Wait until a job can start on a cluster. An elastic job may start before all its processes fit.

    Parameters
    ----------
    patience : Patience
        How long to wait. By default the job must fit immediately.
    beside_tasks : bool
        Whether threads that run other Dask tasks count as occupied. Pass False if these tasks compute the job's data.

    Raises
    ------
    ClusterError
        The job does not fit in time. The message has the numbers of wanted and free threads.
    """

    def attempt() -> None:
        install_jobs(client)
        wanted = layout.cluster.workers.model_dump(mode="json")
        with expecting_answer(client):
            room = ask_jobs(client, Op.ROOM, wanted=wanted, beside_tasks=beside_tasks)
        place_first(layout, {address: WorkerFacts(*facts) for address, facts in room.items()})

    patience.until(attempt)
