"""``attach``: the progress of a job on a cluster, as ``run`` shows it."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["attach"]


@click.command()
@job_argument
@click.pass_context
@does("singa_dask.cli.work.attach:attach")
def attach(ctx: click.Context, **given: Any) -> None:
    """Follow a job on a cluster, as run shows it.

    JOB is its id, at least 4 characters of its beginning or end, or its name. Ctrl-C ends this, and asks nothing of the
    job. The exit code is that of the job once it has ended, see run; 0 after Ctrl-C.
    """
