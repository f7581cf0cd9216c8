"""``stack``: what the units of a job are doing."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["stack"]


@click.command()
@job_argument
@click.option("--unit", metavar="UNIT", default="", help="Only this one, e.g. worker-0-0.")
@click.pass_context
@does("singa_dask.cli.work.stack:stack")
def stack(ctx: click.Context, **given: Any) -> None:
    """Print what the units of a job are doing: their Python stacks.

    JOB is its id, at least 4 characters of its beginning or end, or its name. The job does not stop for it, and units
    that are stuck are shown too.
    """
