"""``sample``: text that a trained net writes."""

from __future__ import annotations

import contextlib
import io

import click

from singa_dask.cli import job
from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.runtime.sampling import sample as write_sample
from singa_dask.runtime.sampling_job import sampling_job, writes

__all__ = ["sample"]

LENGTH = 1000


@click.command()
@job.job_options
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
def sample(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    init_from: tuple[str, ...],
    length: int | None,
    seed_text: str,
    temperature: float | None,
    seed: int | None,
    out: str | None,
) -> None:
    """Let a trained net write text, a character at a time.

    JOB is the one that trained it, from CharRNN to SoftmaxLoss; or one whose net writes, from RNNDummy to
    CharRNNOutput, as SINGA's sample.conf. Every character is read back as the next one, and recurrent layers go on
    from their state. The same seed gives the same text.
    """
    read = job.read(job_file, sets if seed is None else (*sets, f"seed={seed}"), cluster_file)
    if not (init_from or read.job.checkpoint_path):
        raise click.UsageError("the net has no values. Give a checkpoint: --init-from, or checkpoint_path in the job.")
    if not writes(read.job):
        job.check(read, init_from=init_from, check_sources=False)
    elif length is None:
        length = read.job.test_steps or None
    job.warn(read, strict=strict)
    writing = sampling_job(read.job, temperature)
    with contextlib.ExitStack() as stack:
        file = None
        if out:
            opened = stack.enter_context(fs.open(fs.absolute(out), "wb"))
            file = stack.enter_context(io.TextIOWrapper(opened, encoding="utf-8", newline=""))
        try:
            write_sample(writing, init_from, LENGTH if length is None else length, seed_text, file)
        except ConfigError as error:
            raise read.locate(error) from None
