"""``checkpoint``: a job on a cluster writes a checkpoint now."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["checkpoint"]


@click.command()
@job_argument
@does("singa_dask.cli.work.checkpoint:checkpoint")
def checkpoint(**given: Any) -> None:
    """Have a job on a cluster write a checkpoint now.

    JOB is its id, at least 4 characters of its beginning or end, or its name. Prints the URL of the checkpoint once it
    is complete.
    """
