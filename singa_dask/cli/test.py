"""``test``: how well a checkpoint does on the records of a phase."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import inference_options, job_options, json_option

__all__ = ["test"]


@click.command()
@job_options
@inference_options
@click.option("--phase", type=click.Choice(["test", "val"]), default="test", show_default=True, help="Which net.")
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=0),
    help="Batches; 0 is every record once. Without it, the job's test_steps, or validate_steps.",
)
@json_option
@does("singa_dask.cli.work.test:test")
def test(**given: Any) -> None:
    """Measure the performance of a checkpoint.

    Its values, by name of param, are put into the test net, and that reads the job's records; the figures are the same
    for any number of workers. Exit codes are those of run.
    """
