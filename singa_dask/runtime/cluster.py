"""A Dask cluster to run a job or tasks on: one that is there already, or one of the job's own size."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.client import FutureCancelledError

from singa_dask.errors import ClusterError, LostUnitError
from singa_dask.runtime.placement import Layout

__all__ = ["Runner", "connect", "embedded_cluster", "local_cluster", "on_dask"]

CONNECT_TIMEOUT_S = 10
# how often it is looked whether there are workers, and how long they may take to come back
LOOK_S = 2.0
WORKERS_BACK_S = 20.0

T = TypeVar("T")


class Runner(Protocol):
    """Runs tasks in any order, and yields what they return."""

    def __call__(self, tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Run them."""


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
            # what goes wrong in a worker is told by us
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def on_dask(client: Client) -> Runner:
    """Return what runs tasks on a cluster; those that have not begun are dropped when one fails."""

    def run(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        futures = client.map(_call, tasks, pure=False)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            for _ in futures:
                yield _next(client, done).result()
        except KilledWorker as error:
            raise _lost(str(error)) from error
        except FutureCancelledError as error:
            raise _lost("their scheduler is gone or was restarted") from error
        finally:
            client.cancel(futures)

    return run


def _next(client: Client, done: SimpleQueue[Future[T]]) -> Future[T]:
    """Wait for a task to end, as long as there are workers, or may be again."""
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_S)
        except Empty:
            if client.scheduler_info(n_workers=-1)["workers"]:
                since = time.monotonic()
            elif time.monotonic() - since > WORKERS_BACK_S:
                raise _lost("none is left") from None


def _lost(why: str) -> LostUnitError:
    return LostUnitError(f"Dask workers were lost: {why}. Give the same command again.")


def _call(task: Callable[[], T]) -> T:
    return task()
