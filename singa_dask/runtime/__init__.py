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
    from singa_dask.runtime.job.detaching import detach, remote_hosts
    from singa_dask.runtime.job.driver import Driver
    from singa_dask.runtime.job.follower import Follower
    from singa_dask.runtime.job.job_run import JobRun
    from singa_dask.runtime.job.names import this_user
    from singa_dask.runtime.job.placing import check_room, wait_for_room
    from singa_dask.runtime.job.preload import dask_setup
    from singa_dask.runtime.job.remote_jobs import RemoteJobs
    from singa_dask.runtime.job.report import Result
    from singa_dask.runtime.job.tasks import Runner, on_dask, on_each_worker, run_here
    from singa_dask.runtime.planning.placement import Layout, plan_processes
    from singa_dask.runtime.planning.resources import n_threads

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
        "job.detaching": ["detach", "remote_hosts"],
        "job.driver": ["Driver"],
        "job.follower": ["Follower"],
        "job.job_run": ["JobRun"],
        "job.names": ["this_user"],
        "job.placing": ["check_room", "wait_for_room"],
        "job.preload": ["dask_setup"],
        "job.remote_jobs": ["RemoteJobs"],
        "job.report": ["Result"],
        "job.tasks": ["Runner", "on_dask", "on_each_worker", "run_here"],
        "planning.placement": ["Layout", "plan_processes"],
        "planning.resources": ["n_threads"],
    },
)
