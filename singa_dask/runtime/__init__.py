"""The run time: workers and servers as long tasks on Dask, where they are placed, and who follows them.

Names are imported when they are first asked for: what needs no Dask, or no nets, does not wait for them to load.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from singa_dask.runtime.checks import absent_records, missing_gpus, net_warnings, prepare, worker_warnings
    from singa_dask.runtime.cluster import (
        Patience,
        connect,
        embedded_cluster,
        local_cluster,
        on_dask,
        threads_by_host,
        wait_for_room,
    )
    from singa_dask.runtime.driver import Driver
    from singa_dask.runtime.placement import Layout, plan_processes
    from singa_dask.runtime.report import Result
    from singa_dask.runtime.resources import n_threads

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
    "Driver": "driver",
    "Layout": "placement",
    "Patience": "cluster",
    "Result": "report",
    "absent_records": "checks",
    "connect": "cluster",
    "embedded_cluster": "cluster",
    "local_cluster": "cluster",
    "n_threads": "resources",
    "missing_gpus": "checks",
    "net_warnings": "checks",
    "on_dask": "cluster",
    "plan_processes": "placement",
    "prepare": "checks",
    "threads_by_host": "cluster",
    "wait_for_room": "cluster",
    "worker_warnings": "checks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
