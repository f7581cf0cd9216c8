"""Hand a run over to the cluster, as a detached job."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from distributed import Client
from distributed.comm.addressing import get_address_host

from singa_dask import fs
from singa_dask.cancellation import pause
from singa_dask.errors import ClusterError
from singa_dask.observe.files.run_directory import check_ended
from singa_dask.runtime.job.calls import UNANSWERED, ask_jobs, expecting_answer, present_workers
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.job.driver.job_run import JobRun
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import Op, this_user

DETACH_LOOK_S = 0.2


def detach(client: Client, run: JobRun) -> dict[str, Any]:
    """Hand a run over to the cluster; return its state once it has started, is queued or was refused.

    Returns
    -------
    dict
        See `DetachedJobs.state_of`.

    Raises
    ------
    ClusterError
        A job with this id is already running, or the scheduler is gone.
    ConfigError
        Another job is running or queued in the run directory.
    """
    install_jobs(client)
    try:
        with expecting_answer(client):
            if unread := ask_jobs(client, Op.UNREAD):
                raise ClusterError(unread)  # one of the unread jobs may use the run directory
            runs = ask_jobs(client, Op.RUNS, run_url=run.run_url)
        check_ended(run.run_url, run.job_id, runs)
        with expecting_answer(client, " The job may run."):
            if refusal := ask_jobs(client, Op.DETACH, timeout_s=limit("detach"), run=asdict(run), client=client.id):
                raise ClusterError(refusal)
            while (progress := ask_jobs(client, Op.DETACHED, job_id=run.job_id))["state"] == "starting":
                pause(DETACH_LOOK_S)
    except (KeyboardInterrupt, SystemExit):  # end the job: the user has not seen its id, so cannot stop it later
        with suppress(*UNANSWERED):
            ask_jobs(client, Op.SIGNAL, job_id=run.job_id, name="SIGKILL", by=this_user())
        raise
    if progress["state"] == "unknown":
        raise ClusterError("the scheduler does not know the job any more. It may have been restarted.")
    return dict(progress)


def remote_hosts(client: Client, run_url: str) -> list[str]:
    """Return the other hosts of the cluster, which may not see a run directory on a disk of this host.

    The result is empty if ``run_url`` is not a local path.
    """
    workers = present_workers(client).values()
    comm: Any = client.scheduler_comm
    if fs.local_path(run_url) is None or comm is None:
        return []
    here = {get_address_host(comm.comm.local_address), "127.0.0.1"}
    return sorted({each["host"] for each in workers} - here)
