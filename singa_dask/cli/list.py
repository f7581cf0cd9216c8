"""``list``: the jobs on a cluster, or those in a directory of runs."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import cluster_options


@click.command()
@cluster_options("List the jobs of this scheduler.")
@click.option(
    "--runs",
    metavar="URL",
    help="List the run directories in this one, also of jobs whose scheduler is gone.",
)
@click.option("--all", "show_all", is_flag=True, help="Show all jobs that have ended, not only the last ten.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one line of JSON.")
@does("singa_dask.cli.work.list:list_jobs")
def list(**given: Any) -> None:
    """List the jobs on a cluster, or in a directory of runs.

    A job on the cluster is starting, running, restarting or stopping; one that has ended is done, stopped or failed.
    A run in a directory is lost if it has no summary and nobody writes to it.
    """
