"""The Dask workers that are on a cluster now."""

from __future__ import annotations

from typing import Any

from distributed import Client

__all__ = ["present_workers"]


def present_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Return the facts of each Dask worker from the scheduler (``nthreads``, ``host``, ``name``, ...), by address.

    `Client.scheduler_info` may return none although there are some: the client sets what it returns every two seconds,
    without the workers. A client without a connection has none.
    """
    if client.scheduler is None:
        return {}
    try:
        identity = client.sync(client.scheduler.identity, n_workers=-1)
    except OSError:
        return {}
    return dict(identity["workers"])
