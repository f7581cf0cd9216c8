"""Names under which storage systems may know the host of a Dask worker."""

from __future__ import annotations

import urllib.parse

from distributed import Worker

from singa_dask.data.loading import host_names


def host_names_of(dask_worker: Worker) -> frozenset[str]:
    """Return all names that the host of a Dask worker may have.

    ``Client.run`` calls it on the Dask worker.
    """
    return host_names(str(dask_worker.name), urllib.parse.urlsplit(dask_worker.address).hostname or "")
