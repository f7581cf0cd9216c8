"""The cluster that a verb asks for: ``--workers``, ``--scheduler``, ``--scheduler-file`` and ``--wait``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from singa_dask import runtime
from singa_dask.cli.echo import echo
from singa_dask.cli.signals import hidden_from_children

if TYPE_CHECKING:
    from distributed import Client


def patience_of(seconds: float, quiet: bool) -> runtime.Patience:
    """Return the time to wait, with messages on stderr about what is missing unless ``quiet``."""
    return runtime.Patience(seconds) if quiet else runtime.Patience(seconds, partial(echo, err=True))


@contextlib.contextmanager
def chosen_cluster(
    workers: int | None, scheduler: str | None, scheduler_file: str | None, wait: float, quiet: bool
) -> Iterator[tuple[Client, runtime.Patience] | None]:
    """Provide so many new processes of this machine, or else the cluster that is named, and how long to wait for it.

    Yields None if none is: then nothing of Dask is loaded.
    """
    if not (workers or scheduler or scheduler_file):
        yield None
        return
    patience = patience_of(wait, quiet)
    with contextlib.ExitStack() as stack:
        if workers:
            with hidden_from_children():
                client = stack.enter_context(runtime.local_cluster(workers))
        else:
            address = None if scheduler_file else scheduler
            client = stack.enter_context(runtime.connect(address, scheduler_file, patience))
        yield client, patience


@contextlib.contextmanager
def jobs_of(scheduler: str | None, scheduler_file: str | None) -> Iterator[runtime.RemoteJobs]:
    """Connect to the cluster that the options name."""
    if not (scheduler or scheduler_file):
        raise click.UsageError(
            "which cluster? Give --scheduler ADDRESS or --scheduler-file FILE, or set DASK_SCHEDULER_ADDRESS."
        )
    with runtime.connect(None if scheduler_file else scheduler, scheduler_file) as client:
        yield runtime.RemoteJobs(client)
