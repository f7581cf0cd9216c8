"""``logs``: what the units of a job have logged."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["logs"]


@click.command()
@job_argument
@click.option("--unit", metavar="UNIT", default="", help="Only this one, e.g. worker-0-0, or driver.")
@click.option("--follow", "-f", is_flag=True, help="Print what comes until the job ends, or until Ctrl-C.")
@does("singa_dask.cli.work.logs:logs")
def logs(**given: Any) -> None:
    """Print the log of a job on a cluster.

    JOB is its id, at least 4 characters of its beginning or end, or its name. The scheduler keeps the newest events of
    each job; all of them are in log/ in the run directory.
    """
