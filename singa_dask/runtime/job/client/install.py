"""Install `Jobs` on the scheduler of a Dask cluster."""

from __future__ import annotations

from distributed import Client

from singa_dask.comm.remote_import import load_on_scheduler
from singa_dask.runtime.job.client.calls import expecting_answer
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import JOBS
from singa_dask.runtime.job.scheduler.jobs import Jobs


def install_jobs(client: Client) -> None:
    """Install the plug-in `Jobs` on the scheduler, unless it is already installed."""
    load_on_scheduler(client, Jobs.__module__, limit("load"))
    with expecting_answer(client):
        client.register_plugin(Jobs(), name=JOBS)
