"""``sample``: text that a trained net writes."""

from __future__ import annotations

import contextlib
import io

import click

from singa_dask.cli import job
from singa_dask.cli.sample import LENGTH
from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.inference.sampling import sample as write_sample
from singa_dask.inference.sampling import sampling_job, writes
from singa_dask.jobs.checking import check


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
    """Let a trained net write text, a character at a time."""
    read = job.read(job_file, sets if seed is None else (*sets, f"seed={seed}"), cluster_file)
    if not (init_from or read.job.checkpoint_path):
        raise click.UsageError("the net has no values. Give a checkpoint: --init-from, or checkpoint_path in the job.")
    if not writes(read.job):
        check(read, init_from=init_from, check_sources=False)
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
