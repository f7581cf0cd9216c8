"""``kill``: a job on a cluster ends at once."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["kill"]


@click.command()
@job_argument
@does("singa_dask.cli.work.kill:kill")
def kill(**given: Any) -> None:
    """End a job on a cluster at once.

    JOB is its id, at least 4 characters of its beginning or end, or its name. There is no last checkpoint; those that
    it has stay.
    """
