"""``plot``: curves of runs, as a file, in a window or in the terminal."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="A file that ends in .png, .svg, or .html for a page with the results of the runs. Without it, a window, or "
    "a picture in the terminal where there is no display or the output is piped. Needs pip install 'singa-dask[plot]'.",
)
@click.option(
    "--over",
    "axis",
    type=click.Choice(["step", "epoch", "time"]),
    default="step",
    show_default=True,
    help="What curves are drawn over.",
)
@click.option("--terminal", is_flag=True, help="Draw in the terminal also where there is a display.")
@does("singa_dask.cli.work.plot:plot")
def plot(**given: Any) -> None:
    """Draw the curves of runs: metrics, learning rate, speed, waits.

    RUN is the directory of a run, also of one that is still running, at any URL. With several runs each has a colour
    of its own. Of several worker groups the mean is drawn, and each group as a thin line.
    """
