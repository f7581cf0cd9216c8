"""The Dask cluster of a job: an existing one, or one started for the job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from dask.base import compute, is_dask_collection
from distributed import Client

from singa_dask.conf import JobConf
from singa_dask.errors import ClusterError, ConfigError
from singa_dask.runtime import Patience, connect, plan_processes, wait_for_room
from singa_dask.runtime.job.client.job_cluster import embedded_cluster, install_jobs


def check_client(client: Client | str | None, call: str) -> None:
    """Raise a `ConfigError` for an asynchronous client, because ``call`` would block its event loop."""
    if isinstance(client, Client) and client.asynchronous:
        raise ConfigError(
            "this client is asynchronous, and the call would block its event loop. Use "
            f"await asyncio.to_thread({call}, client=client)."
        )


@contextlib.contextmanager
def find_cluster(
    client: Client | str | None, scheduler_file: str | None = None, patience: Patience | None = None
) -> Iterator[Client]:
    """Return a context with a client of an existing cluster.

    Parameters
    ----------
    client : distributed.Client, str or None
        A client, or the address of the scheduler.
    scheduler_file : str, optional
        File that the scheduler has written. It takes precedence over an address.
    patience : Patience, optional
        How long to wait for the scheduler.

    Raises
    ------
    ClusterError
        The client is closed, or no scheduler answers.
    """
    if isinstance(client, Client):
        if client.status != "running":
            raise ClusterError(f"the client of {client} is {client.status}. Create a new one.")
        yield client
        return
    with connect(client, scheduler_file, patience or Patience()) as connected:
        yield connected


def compute_on(client: Client | str | None, *values: Any) -> tuple[Any, ...]:
    """Compute Dask collections on a cluster; other values are returned unchanged.

    If ``client`` is None, the scheduler that Dask is configured to use computes them.

    Raises
    ------
    ClusterError
        See `find_cluster`. Also raised if a Dask worker lacks this package, or has another version of it.
    """
    if not any(map(is_dask_collection, values)):
        return values
    with contextlib.nullcontext() if client is None else find_cluster(client) as cluster:
        try:
            results: tuple[Any, ...] = compute(*values, traverse=False, scheduler=cluster)  # type: ignore[no-untyped-call]
            return results
        except ImportError as error:
            raise ClusterError(str(error)) from error


@contextlib.contextmanager
def cluster_of(
    conf: JobConf,
    client: Client | str | None = None,
    scheduler_file: str | None = None,
    patience: Patience | None = None,
    queue: bool = False,
    starting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Iterator[Client]:
    """Return a context with the cluster for a job: an existing cluster, or a new one of the job's size.

    Parameters
    ----------
    conf : JobConf
    client, scheduler_file, patience
        See `find_cluster`. If ``queue`` is not set, ``patience`` also limits the wait until the cluster has room.
    queue : bool
        Whether the job may wait in the queue until there is room.
    starting : callable
        Returns a context manager; the processes of a new cluster are started in this context.

    Raises
    ------
    ClusterError
        See `find_cluster`. Also raised if the cluster has no room in time.
    """
    layout = plan_processes(conf.cluster)
    with contextlib.ExitStack() as stack:
        if client is not None or scheduler_file:
            cluster = stack.enter_context(find_cluster(client, scheduler_file, patience))
            install_jobs(cluster)
            if patience and patience.seconds and not queue:
                wait_for_room(cluster, layout, patience)
        else:
            with starting():
                cluster = stack.enter_context(embedded_cluster(layout))
        yield cluster
