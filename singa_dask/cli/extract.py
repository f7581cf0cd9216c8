"""``extract``: what layers make of records, or predictions, as a store of records."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import inference_options, job_options

__all__ = ["extract"]


@click.command()
@job_options
@inference_options
@click.option("--layer", "layers", metavar="NAME", multiple=True, help="Layer whose values to write. Repeatable.")
@click.option(
    "--predictions",
    is_flag=True,
    help="Write the predicted class and its probability, as the SoftmaxLoss has them, or the --layer.",
)
@click.option(
    "--out",
    metavar="URL",
    required=True,
    help="Where to; {layer} in it stands for the layer's name, which is else, of several, put before the suffix.",
)
@click.option(
    "--to", metavar="BACKEND", help="Format of --out: arrow, csv, kvfile, lmdb, ... Told by its suffix if not given."
)
@click.option(
    "--phase",
    type=click.Choice(["train", "val", "test"]),
    default="test",
    show_default=True,
    help="Whose records and layers; that of train is computed as in a test.",
)
@click.option("--overwrite", is_flag=True, help="Replace --out if it exists.")
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help="Take so many batches only.")
@does("singa_dask.cli.work.extract:extract")
def extract(**given: Any) -> None:
    """Write what layers of a trained net make of records.

    Each record is read once, in file order, computed as in a test, and becomes one record, with its label if it has
    one. A loss of softmax gives its probabilities. With --predictions a record is (class, probability): in CSV a line
    reads label,class,probability. What is written is the same for any number of workers, and takes its place when all
    is done.
    """
