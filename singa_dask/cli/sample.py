"""``sample``: text that a trained net writes."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_options

LENGTH = 1000
"""Characters to write."""


@click.command()
@job_options
@click.option(
    "--init-from",
    metavar="URL",
    multiple=True,
    help="Take the values of this checkpoint instead of the job's checkpoint_path: a run directory, a step of it, or a "
    "file or workspace of SINGA's. Repeatable; later ones win.",
)
@click.option(
    "--length",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"Characters to write; {LENGTH} if not given, or test_steps of a job whose net writes.",
)
@click.option("--seed-text", metavar="TEXT", default="", help="Read this first; without it, a character by chance.")
@click.option(
    "--temperature",
    metavar="T",
    type=click.FloatRange(min=0),
    help="1 draws as the net has learnt; less, likely characters more often; at 0 only the likeliest.",
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Draw differently; short for --set seed=N.")
@click.option("--out", metavar="URL", help="Write to a file, not to standard output.")
@does("singa_dask.cli.work.sample:sample")
def sample(**given: Any) -> None:
    """Let a trained net write text, a character at a time.

    JOB is the one that trained it, from CharRNN to SoftmaxLoss; or one whose net writes, from RNNDummy to
    CharRNNOutput, as SINGA's sample.conf. Every character is read back as the next one, and recurrent layers go on
    from their state. The same seed gives the same text.
    """
