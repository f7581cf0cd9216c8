"""``validate``: every mistake of a job file, or its nets, kernels and topology; nothing is started."""

from __future__ import annotations

import click

from singa_dask.cli import job
from singa_dask.runtime import n_threads, plan_processes

__all__ = ["validate"]


@click.command()
@job.job_options
def validate(job_file: str, sets: tuple[str, ...], cluster_file: str | None) -> None:
    """Check a job file and show what it makes; start nothing.

    All mistakes are printed, each as FILE:LINE:COLUMN: KEY: WHAT, and the exit code is 2.
    """
    read = job.read(job_file, sets, cluster_file)
    nets = job.check(read)
    for phase, net in nets.items():
        click.echo(f"{str(phase.name).lower()} net\n{net.describe()}\n")
    layout = plan_processes(read.job.cluster)
    threads = n_threads(read.job, sum(unit.kind == "worker" for unit in layout.units))
    click.echo(f"on this machine: ops {next(iter(nets.values())).all_layers[0].ops.name}, {threads} threads a worker")
    for number, units in enumerate(layout.processes):
        click.echo(f"process {number}: {', '.join(map(str, units))}")
