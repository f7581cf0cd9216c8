"""Run jobs on a Dask cluster.

Workers and servers run as long Dask tasks. A driver starts them and follows them to the end. The names below are
imported on first use, so that ``import singa_dask.runtime`` loads neither Dask nor the nets.
``dask scheduler --preload singa_dask.runtime`` calls ``dask_setup``.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.runtime.job.checks.files import blind_workers, check_seen, input_files
    from singa_dask.runtime.job.checks.job import absent_records
    from singa_dask.runtime.job.client.cluster import connect, local_cluster, threads_by_host
    from singa_dask.runtime.job.client.detached import detach, remote_hosts
    from singa_dask.runtime.job.client.job_cluster import wait_for_room
    from singa_dask.runtime.job.client.remote_jobs import RemoteJobs
    from singa_dask.runtime.job.dask_tasks import Runner, check_wanted, on_dask, on_each_worker, run_here
    from singa_dask.runtime.job.driver.driver import Driver
    from singa_dask.runtime.job.driver.follower import Follower
    from singa_dask.runtime.job.driver.job_run import JobRun
    from singa_dask.runtime.job.driver.result import Result
    from singa_dask.runtime.job.job_end import JobEnd
    from singa_dask.runtime.job.names import NOTICES, STOPS, this_user
    from singa_dask.runtime.job.patience import Patience
    from singa_dask.runtime.job.scheduler.jobs import dask_setup
    from singa_dask.runtime.planning.layout import plan_processes
    from singa_dask.runtime.planning.machine import n_threads

__all__ = [
    "NOTICES",
    "STOPS",
    "Driver",
    "Follower",
    "JobEnd",
    "JobRun",
    "Patience",
    "RemoteJobs",
    "Result",
    "Runner",
    "absent_records",
    "blind_workers",
    "check_seen",
    "check_wanted",
    "connect",
    "dask_setup",
    "detach",
    "input_files",
    "local_cluster",
    "n_threads",
    "on_dask",
    "on_each_worker",
    "plan_processes",
    "remote_hosts",
    "run_here",
    "this_user",
    "threads_by_host",
    "wait_for_room",
]

__getattr__ = lazy_names(
    __name__,
    {
        "job.checks.job": ["absent_records"],
        "job.client.cluster": ["connect", "local_cluster", "threads_by_host"],
        "job.dask_tasks": ["Runner", "check_wanted", "on_dask", "on_each_worker", "run_here"],
        "job.client.detached": ["detach", "remote_hosts"],
        "job.driver.driver": ["Driver"],
        "job.job_end": ["JobEnd"],
        "job.driver.follower": ["Follower"],
        "job.client.remote_jobs": ["RemoteJobs"],
        "job.driver.job_run": ["JobRun"],
        "job.names": ["NOTICES", "STOPS", "this_user"],
        "job.patience": ["Patience"],
        "job.scheduler.jobs": ["dask_setup"],
        "job.driver.result": ["Result"],
        "job.client.job_cluster": ["wait_for_room"],
        "job.checks.files": ["blind_workers", "check_seen", "input_files"],
        "planning.layout": ["plan_processes"],
        "planning.machine": ["n_threads"],
    },
)
