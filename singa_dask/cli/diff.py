"""``diff``: what two runs have different in their jobs and their results."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


@click.command()
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@does("singa_dask.cli.work.diff:diff")
def diff(**given: Any) -> None:
    """Show how the jobs and the results of two runs differ.

    Keys of jobs are compared with every default filled in, and named as --set takes them.
    """
