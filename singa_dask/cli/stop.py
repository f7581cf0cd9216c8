"""``stop``: a job on a cluster ends with a checkpoint."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["stop"]


@click.command()
@job_argument
@click.option("--no-wait", is_flag=True, help="Do not wait until the job has ended.")
@does("singa_dask.cli.work.stop:stop")
def stop(**given: Any) -> None:
    """Stop a job on a cluster with a checkpoint.

    JOB is its id, at least 4 characters of its beginning or end, or its name. run --resume goes on from the checkpoint.
    """
