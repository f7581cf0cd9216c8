"""``extract``: what layers make of records, or predictions, as a store of records."""

from __future__ import annotations

import click

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.cli.inference import Chosen, ends_at_once, stored_net
from singa_dask.jobs.stored import PHASES

__all__ = ["extract"]


def extract(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    init_from: tuple[str, ...],
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    layers: tuple[str, ...],
    predictions: bool,
    out: str,
    to: str | None,
    overwrite: bool,
    phase: str,
    steps: int | None,
    quiet: bool,
) -> None:
    """Write what layers of a trained net make of records."""
    if (predictions and len(layers) > 1) or not (predictions or layers):
        raise click.UsageError("Give --layer NAME, once or more, or --predictions with one --layer at most.")
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    net = stored_net(read, init_from, Chosen(workers, scheduler, scheduler_file, wait, quiet))
    with ends_at_once():
        for url, n in net.write(
            out,
            layers,
            to=to,
            overwrite=overwrite,
            overwrite_by="--overwrite",
            predictions=predictions,
            phase=PHASES[phase],
            steps=steps or 0,
        ):
            if not quiet:
                echo(f"{url}: {n} records", err=True)
