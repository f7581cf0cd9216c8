"""Runs jobs: workers and servers as long-running tasks on a Dask cluster, their placement, and the driver.

Names are imported on first use, so that importing this package loads neither Dask nor the nets.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from singa_dask.runtime.job.checks import prepare
    from singa_dask.runtime.job.cluster import (
        Patience,
        connect,
        embedded_cluster,
        local_cluster,
        threads_by_host,
        wait_for_room,
    )
    from singa_dask.runtime.job.driver import Driver
    from singa_dask.runtime.job.report import Result
    from singa_dask.runtime.job.tasks import on_dask
    from singa_dask.runtime.job.warnings import absent_records, missing_gpus, net_warnings, worker_warnings
    from singa_dask.runtime.planning.placement import Layout, plan_processes
    from singa_dask.runtime.planning.resources import n_threads

__all__ = [
    "Driver",
    "Layout",
    "Patience",
    "Result",
    "absent_records",
    "connect",
    "embedded_cluster",
    "local_cluster",
    "missing_gpus",
    "n_threads",
    "net_warnings",
    "on_dask",
    "plan_processes",
    "prepare",
    "threads_by_host",
    "wait_for_room",
    "worker_warnings",
]

_HOMES = {
    "Driver": "job.driver",
    "Layout": "planning.placement",
    "Patience": "job.cluster",
    "Result": "job.report",
    "absent_records": "job.warnings",
    "connect": "job.cluster",
    "embedded_cluster": "job.cluster",
    "local_cluster": "job.cluster",
    "n_threads": "planning.resources",
    "missing_gpus": "job.warnings",
    "net_warnings": "job.warnings",
    "on_dask": "job.tasks",
    "plan_processes": "planning.placement",
    "prepare": "job.checks",
    "threads_by_host": "job.cluster",
    "wait_for_room": "job.cluster",
    "worker_warnings": "job.warnings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
