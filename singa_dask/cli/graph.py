"""``graph``: the net of a job file as a picture; nothing is started and no records are read."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_options


@click.command()
@job_options
@click.option("--partitioned", is_flag=True, help="Draw the parts of all workers of a group, and what goes over.")
@click.option(
    "--phase", type=click.Choice(["train", "val", "test"]), default="train", show_default=True, help="Of which net."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="A file that ends in .dot, .svg, .png, or .json for SINGA's form. Without it, DOT on stdout. .svg and .png "
    "need pip install 'singa-dask[graph]' and the program dot of Graphviz.",
)
@does("singa_dask.cli.work.graph:graph")
def graph(**given: Any) -> None:
    """Draw the net of a job file: layers, shapes, parts, bridges.

    Without --partitioned it is the whole net, as one worker alone would have it. On edges between workers stand the
    bytes of one step: data forward and gradients back.
    """
