"""``layers``: the layers, updaters and other parts that a job can name, with their keys."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does

KINDS = ("layer", "updater", "schedule", "initialiser", "algorithm", "store")


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--kind", type=click.Choice(KINDS), help="List, or look for, parts of this kind.  [default: layer]")
@click.option(
    "--module", "paths", metavar="FILE", multiple=True, help="Know what this module of yours registers. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@does("singa_dask.cli.work.layers:layers")
def layers(**given: Any) -> None:
    """List the layers and other parts of jobs, or describe one.

    NAME is that of any part, as a job has it: InnerProduct, Adam, Cosine, Gaussian, CD, lmdb. Its formula, its sources
    and params, and the keys of its block are shown.
    """
