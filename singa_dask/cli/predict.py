"""``predict``: the classes of new records."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import inference_options, job_options

__all__ = ["predict"]


@click.command()
@job_options
@inference_options
@click.option(
    "--data",
    "urls",
    metavar="URL",
    multiple=True,
    required=True,
    help="The records, which need no labels: a store, a folder of pictures, or one picture. Repeatable.",
)
@click.option("--backend", metavar="NAME", help="Format of --data; told from the file if not given.")
@click.option(
    "--layer",
    "layers",
    metavar="NAME",
    multiple=True,
    help="Layer that has the probabilities, where not just one loss computes them. Repeatable, for several labels.",
)
@click.option("--out", metavar="URL", help="Write to this file, not to stdout; with tabs if it ends in .tsv.")
@click.option(
    "--topk", metavar="K", type=click.IntRange(min=1), default=1, show_default=True, help="The K likeliest classes."
)
@does("singa_dask.cli.work.predict:predict")
def predict(**given: Any) -> None:
    """Predict the classes, labels or targets of new records.

    CSV with a header and a line for each record, in file order: its file, or its number from 0 on where records have no
    files of their own; name, number and probability of the likeliest class; with --topk K those of the next ones. With
    several --layer each has such columns, after its name. A SigmoidCrossEntropyLoss has a column for each label
    instead, with its probability, and a net that predicts numbers has one for each target.
    Records go through the test net. They are normalised, and images scaled, as its own are.
    """
