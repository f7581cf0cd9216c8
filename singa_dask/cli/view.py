"""``view``: what the scheduler knows about a job."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument

__all__ = ["view"]


@click.command()
@job_argument
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one line of JSON.")
@does("singa_dask.cli.work.view:view")
def view(**given: Any) -> None:
    """Describe a job on a cluster: units, hosts, steps, restarts.

    JOB is its id, at least 4 characters of its beginning or end, or its name.
    """
