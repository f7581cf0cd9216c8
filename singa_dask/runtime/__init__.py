"""The run time: workers and servers as long tasks on Dask, where they are placed, and who follows them."""

from singa_dask.runtime.cluster import connect, embedded_cluster, local_cluster
from singa_dask.runtime.driver import Driver
from singa_dask.runtime.placement import Layout, plan_processes
from singa_dask.runtime.prepare import prepare
from singa_dask.runtime.report import Result

__all__ = ["Driver", "Layout", "Result", "connect", "embedded_cluster", "local_cluster", "plan_processes", "prepare"]
