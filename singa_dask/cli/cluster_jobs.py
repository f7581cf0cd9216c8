"""The connection of the verbs for jobs on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from singa_dask.runtime import RemoteJobs, connect

__all__ = ["jobs_of"]


@contextlib.contextmanager
def jobs_of(scheduler: str | None, scheduler_file: str | None) -> Iterator[RemoteJobs]:
    """Connect to the cluster that the options name."""
    if not (scheduler or scheduler_file):
        raise click.UsageError(
            "which cluster? Give --scheduler ADDRESS or --scheduler-file FILE, or set DASK_SCHEDULER_ADDRESS."
        )
    with connect(None if scheduler_file else scheduler, scheduler_file) as client:
        yield RemoteJobs(client)
