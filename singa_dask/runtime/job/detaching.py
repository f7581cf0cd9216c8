"""Hand a run over to a cluster, on which its driver runs from then on."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from distributed import Client
from distributed.comm.addressing import get_address_host

from singa_dask.data import fs
from singa_dask.errors import ClusterError
from singa_dask.runtime.job.driver import install_jobs
from singa_dask.runtime.job.driver_host import DriverHost
from singa_dask.runtime.job.follower import GONE, ask_jobs
from singa_dask.runtime.job.job_run import JobRun
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.present import present_workers
from singa_dask.runtime.job.sites import Plugin

__all__ = ["detach", "remote_hosts"]

LOOK_S = 0.2


def detach(client: Client, run: JobRun) -> dict[str, Any]:
    """Start the driver of a run on the cluster; return how it goes when the job has started, or was refused.

    Returns
    -------
    dict
        See `Drivers.detached`.

    Raises
    ------
    ClusterError
        A job of this id runs already, or the scheduler is gone.
    """
    install_jobs(client)
    plugin = Plugin.of(DriverHost())
    nobody = threading.Event()
    try:
        refused = ask_jobs(client, Op.DETACH, run=run.message(), plugin=list(plugin), client=client.id)
        if refused:
            raise ClusterError(refused["refused"])
        while (found := ask_jobs(client, Op.DETACHED, job_id=run.job_id))["state"] == "starting":
            nobody.wait(LOOK_S)
    except (KeyboardInterrupt, SystemExit):  # nobody knows the id yet
        with suppress(*GONE):
            for _ in range(2):
                ask_jobs(client, Op.SIGNAL, job_id=run.job_id, name="SIGINT")
        raise
    except GONE as error:
        raise ClusterError(f"the scheduler is gone, or does not answer: {error!r}. The job may run.") from error
    if found["state"] == "unknown":
        raise ClusterError("the scheduler does not know the job any more. It may have been restarted.")
    return dict(found)


def remote_hosts(client: Client, run_url: str) -> list[str]:
    """Return the hosts of Dask workers that may not see a run directory on a local disk of this host."""
    workers = present_workers(client).values()
    comm: Any = client.scheduler_comm
    if fs.local_path(run_url) is None or comm is None:
        return []
    here = {get_address_host(comm.comm.local_address), "127.0.0.1"}
    return sorted({each["host"] for each in workers} - here)
