"""``show``: what a run was, how it ended, and where its time went."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


@click.command()
@click.argument("url", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print its metrics as CSV, a line for each event, instead.")
@does("singa_dask.cli.work.show:show")
def show(**given: Any) -> None:
    """Describe a run: job, result, metrics, time, checkpoints.

    RUN is the directory of a run, also of one that is still running, at any URL.
    """
