"""``find-rate``: propose a learning rate, from a short run in which it rises."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_options, json_option


@click.command("find-rate")
@job_options
@click.option("--low", type=float, default=1e-6, show_default=True, help="First rate.")
@click.option("--high", type=float, default=10.0, show_default=True, help="Last rate.")
@click.option("--steps", type=int, default=100, show_default=True, help="Steps from the first to the last rate.")
@click.option("-o", "--output", metavar="FILE", help="Draw the curve in a file that ends in .png or .svg.")
@json_option
@does("singa_dask.cli.work.find_rate:find_rate")
def find_rate(**given: Any) -> None:
    """Propose a learning rate, from a short run in which it rises.

    One worker trains in this process, whatever the cluster of the job. The proposal is a quarter of the rate at which
    the smoothed loss is least (the range test of Smith, 2017). The same job gives the same proposal.
    """
