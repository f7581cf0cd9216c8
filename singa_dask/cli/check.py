"""``check``: the exam of a layer, updater or store."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


@click.command()
@click.argument("name", metavar="MODULE.CLASS")
@click.option(
    "--module", "paths", metavar="FILE", multiple=True, help="The module is in this file.  [default: MODULE.py, if any]"
)
@click.option(
    "--shape", "shapes", metavar="4x6", multiple=True, help="Shape of a source of a layer, batch first. Repeatable."
)
@click.option("--conf", metavar="JSON", help='Keys of the layer, updater or store: {"scale_conf": {"factor": 2}}.')
@click.option("--classes", type=click.IntRange(1), help="Classes of labels.  [default: columns of the first source]")
@click.option("--fixed", type=click.IntRange(0), help="How many sources, the last ones, never have a gradient.")
@click.option("--steps", "n_steps", type=click.IntRange(1), default=1, help="Time steps in the rows of the sources.")
@click.option("--learning-rate", type=float, default=0.05, show_default=True, help="Of an updater.")
@click.option("--data", "url", metavar="URL", help="Records that a store reads.")
@does("singa_dask.cli.work.check:check")
def check(**given: Any) -> None:
    """Examine a layer, updater or store of your own.

    A layer: its gradients against central differences, devices, partition, time steps, bfloat16, and what it may write.
    An updater: slices of params, its state, and whether it learns. A store: its blocks, and how they are read.

    Exit codes: 0 it passes, 1 what is wrong is printed with what to do.
    """
