"""The Dask cluster that a job runs on: one that is there, or one that is started for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from dask.base import compute, is_dask_collection
from distributed import Client

from singa_dask.conf import JobConf
from singa_dask.errors import ClusterError, ConfigError
from singa_dask.runtime import Patience, connect, plan_processes, wait_for_room
from singa_dask.runtime.job.client.cluster import embedded_cluster


def check_client(client: Client | str | None, call: str) -> None:
    """Check that a client does not run in the event loop that a call would block.

    Raises
    ------
    ConfigError
        It does.
    """
    if isinstance(client, Client) and client.asynchronous:
        raise ConfigError(
            "this client is asynchronous, and the call would block its event loop. Say "
            f"await asyncio.to_thread({call}, client=client)."
        )


@contextlib.contextmanager
def find_cluster(
    client: Client | str | None, scheduler_file: str | None = None, patience: Patience | None = None
) -> Iterator[Client]:
    """Provide the client of a cluster that is there.

    Parameters
    ----------
    client : distributed.Client, str or None
        Its client, or the address of its scheduler.
    scheduler_file : str, optional
        The file that its scheduler has written; goes before an address.
    patience : Patience, optional
        How long to wait for it.

    Raises
    ------
    ClusterError
        The client is closed, or no scheduler answers.
    """
    if isinstance(client, Client):
        if client.status != "running":
            raise ClusterError(f"the client of {client} is {client.status}. Make a new one.")
        yield client
        return
    with connect(client, scheduler_file, patience or Patience()) as connected:
        yield connected


def compute_on(client: Client | str | None, *values: Any) -> tuple[Any, ...]:
    """Compute collections of Dask on a cluster, see `find_cluster`, or without a client as Dask is configured.

    Other values are returned as they are.

    Raises
    ------
    ClusterError
        See `find_cluster`; or a Dask worker does not have this package, or has another version of it.
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
    """Provide the cluster for a job: the one given, see `find_cluster`, or else one of its size, for this job alone.

    Parameters
    ----------
    conf : JobConf
    client, scheduler_file, patience
        See `find_cluster`; it is also waited for room, but by a job that is to ``queue``.
    queue : bool
    starting : callable
        Returns a context in which processes are started.

    Raises
    ------
    ClusterError
        See `find_cluster`; or there is no room in time.
    """
    layout = plan_processes(conf.cluster)
    with contextlib.ExitStack() as stack:
        if client is not None or scheduler_file:
            cluster = stack.enter_context(find_cluster(client, scheduler_file, patience))
            if patience and patience.seconds and not queue:
                wait_for_room(cluster, layout, patience)
        else:
            with starting():
                cluster = stack.enter_context(embedded_cluster(layout))
        yield cluster
