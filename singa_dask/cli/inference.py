"""The verbs for records of a trained net: ``extract``, ``predict``, ``test``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_options, json_option, scheduler_options


def _inference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what they have in common: the checkpoint, who computes, ``--quiet``."""
    for decorate in (
        click.option("--quiet", is_flag=True, help="Say nothing but errors."),
        scheduler_options("Use the Dask cluster of this scheduler; its workers must see all files at the same place."),
        click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Use N processes of this machine."),
        click.option(
            "--init-from",
            metavar="URL",
            multiple=True,
            help="Take the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
            "directory, a step of it, or a file or workspace of SINGA's. Repeatable; later ones win.",
        ),
    ):
        command = decorate(command)
    return command


@click.command()
@job_options
@_inference_options
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
@does("singa_dask.cli.work.inference:extract")
def extract(**given: Any) -> None:
    """Write what layers of a trained net make of records.

    Each record is read once, in file order, computed as in a test, and becomes one record, with its label if it has
    one. A loss of softmax gives its probabilities. With --predictions a record is (class, probability): in CSV a line
    reads label,class,probability. What is written is the same for any number of workers, and takes its place when all
    is done.
    """


@click.command()
@job_options
@_inference_options
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
@does("singa_dask.cli.work.inference:predict")
def predict(**given: Any) -> None:
    """Predict the classes, labels or targets of new records.

    CSV with a header and a line for each record, in file order: its file, or its number from 0 on where records have no
    files of their own; name, number and probability of the likeliest class; with --topk K those of the next ones. With
    several --layer each has such columns, after its name. A SigmoidCrossEntropyLoss has a column for each label
    instead, with its probability, and a net that predicts numbers has one for each target.
    Records go through the test net. They are normalised, and images scaled, as its own are.
    """


@click.command()
@job_options
@_inference_options
@click.option("--phase", type=click.Choice(["test", "val"]), default="test", show_default=True, help="Which net.")
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=0),
    help="Batches; 0 is every record once. Without it, the job's test_steps, or validate_steps.",
)
@click.option(
    "--metrics",
    metavar="NAMES",
    help="Compute these over all records, in the place of the job's metrics, e.g. f1_macro,roc_auc.",
)
@click.option(
    "--confusion",
    metavar="FILE",
    help="Write the confusion matrix: a table if it ends in .csv, a picture if in .svg or .png.",
)
@json_option
@does("singa_dask.cli.work.inference:test")
def test(**given: Any) -> None:
    """Measure the performance of a checkpoint.

    Its values, by name of param, are put into the test net, and that reads the job's records; the figures are the same
    for any number of workers. Exit codes are those of run.
    """
