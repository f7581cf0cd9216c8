"""Runs jobs: workers and servers as long-running tasks on a Dask cluster, their placement, and the driver.

Names are imported on first use, so that importing this package loads neither Dask nor the nets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.runtime.job.checks import absent_records, missing_gpus, net_warnings, prepare, worker_warnings
    from singa_dask.runtime.job.cluster import (
        Patience,
        connect,
        embedded_cluster,
        local_cluster,
        present_workers,
        threads_by_host,
    )
    from singa_dask.runtime.job.driver import Driver, JobRun, detach, remote_hosts
    from singa_dask.runtime.job.follower import Follower, RemoteJobs
    from singa_dask.runtime.job.jobs import dask_setup
    from singa_dask.runtime.job.names import this_user
    from singa_dask.runtime.job.placing import Runner, check_room, on_dask, on_each_worker, run_here, wait_for_room
    from singa_dask.runtime.job.record import Result
    from singa_dask.runtime.planning.placement import Layout, n_threads, plan_processes

__all__ = [
    "Driver",
    "Follower",
    "JobRun",
    "Layout",
    "Patience",
    "RemoteJobs",
    "Result",
    "Runner",
    "absent_records",
    "check_room",
    "connect",
    "dask_setup",
    "detach",
    "embedded_cluster",
    "local_cluster",
    "missing_gpus",
    "n_threads",
    "net_warnings",
    "on_dask",
    "on_each_worker",
    "plan_processes",
    "prepare",
    "present_workers",
    "remote_hosts",
    "run_here",
    "this_user",
    "threads_by_host",
    "wait_for_room",
    "worker_warnings",
]

__getattr__ = lazy_names(
    __name__,
    {
        "job.checks": ["absent_records", "missing_gpus", "net_warnings", "prepare", "worker_warnings"],
        "job.cluster": [
            "Patience",
            "connect",
            "embedded_cluster",
            "local_cluster",
            "present_workers",
            "threads_by_host",
        ],
        "job.driver": ["Driver", "JobRun", "detach", "remote_hosts"],
        "job.follower": ["Follower", "RemoteJobs"],
        "job.jobs": ["dask_setup"],
        "job.names": ["this_user"],
        "job.placing": ["Runner", "check_room", "on_dask", "on_each_worker", "run_here", "wait_for_room"],
        "job.record": ["Result"],
        "planning.placement": ["Layout", "n_threads", "plan_processes"],
    },
)
