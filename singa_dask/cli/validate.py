"""``validate``: every mistake of a job file, or its nets and its topology; nothing is started."""

from __future__ import annotations

import click

from singa_dask.cli import job
from singa_dask.runtime import plan_processes

__all__ = ["validate"]


@click.command()
@job.job_options
def validate(job_file: str, sets: tuple[str, ...], cluster_file: str | None) -> None:
    """Check a job file and show what it makes; start nothing.

    All mistakes are printed, each as FILE:LINE:COLUMN: KEY: WHAT, and the exit code is 2.
    """
    read = job.read(job_file, sets, cluster_file)
    for phase, net in job.check(read).items():
        click.echo(f"{str(phase.name).lower()} net\n{net.describe()}\n")
    for number, units in enumerate(plan_processes(read.job.cluster).processes):
        click.echo(f"process {number}: {', '.join(map(str, units))}")
