"""A Dask cluster to run a job or tasks on: one that is there already, or one of the job's own size."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from distributed import Client, KilledWorker, LocalCluster, as_completed
from distributed.client import FutureCancelledError

from singa_dask.data.convert import Run
from singa_dask.errors import ClusterError
from singa_dask.runtime.placement import Layout

__all__ = ["connect", "embedded_cluster", "local_cluster", "on_dask"]

CONNECT_TIMEOUT_S = 10


@contextmanager
def connect(address: str | None = None, scheduler_file: str | None = None) -> Iterator[Client]:
    """Connect to a running scheduler.

    Raises
    ------
    ClusterError
        Nothing answers there.
    """
    place = address or scheduler_file
    try:
        client = Client(address, scheduler_file=scheduler_file, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"{place}: no Dask scheduler answers there ({error}). Start one with dask-scheduler, "
            "or leave the address out to use this machine alone."
        ) from error
    try:
        yield client
    finally:
        client.close()


@contextmanager
def embedded_cluster(layout: Layout) -> Iterator[Client]:
    """Start a cluster that just fits a job, on this machine: in this process when the job has one only."""
    n_processes = len(layout.processes)
    with local_cluster(n_processes, layout.n_threads, processes=n_processes > 1) as client:
        yield client


@contextmanager
def local_cluster(n_workers: int, n_threads: int = 1, processes: bool = True) -> Iterator[Client]:
    """Start a cluster on this machine, of processes or of threads of this one."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=n_threads,
            processes=processes,
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def on_dask(client: Client) -> Run:
    """Return what runs tasks on a cluster; those that have not begun are dropped when one fails."""

    def run(tasks: Sequence[Callable[[], int]]) -> Iterator[int]:
        futures = client.map(_call, tasks, pure=False)
        try:
            for future in as_completed(futures, loop=client.loop):
                yield future.result()
        except (KilledWorker, FutureCancelledError) as error:
            raise ClusterError(f"workers were lost: {error}. The same command goes on.") from error
        finally:
            client.cancel(futures)

    return run


def _call(task: Callable[[], int]) -> int:
    return task()
