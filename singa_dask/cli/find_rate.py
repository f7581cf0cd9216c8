"""``find-rate``: propose a learning rate, from a short run in which it rises."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

import click

from singa_dask import observe
from singa_dask.cli.options import job_options, json_option
from singa_dask.cli.output import echo


@click.command("find-rate")
@job_options
@click.option("--low", type=float, default=1e-6, show_default=True, help="First rate.")
@click.option("--high", type=float, default=10.0, show_default=True, help="Last rate.")
@click.option("--steps", type=int, default=100, show_default=True, help="Steps from the first to the last rate.")
@click.option("-o", "--output", metavar="FILE", help="Draw the curve in a file that ends in .png or .svg.")
@json_option
def find_rate(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    low: float,
    high: float,
    steps: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Propose a learning rate, from a short run in which it rises.

    One worker trains in this process, whatever the cluster of the job. The proposal is a quarter of the rate at which
    the smoothed loss is least (the range test of Smith, 2017). The same job gives the same proposal.
    """
    from singa_dask.cli import job
    from singa_dask.data import fs
    from singa_dask.jobs.job import Job
    from singa_dask.jobs.rates import find_rate as find
    from singa_dask.observe.figure import draw

    suffix = PurePosixPath(output).suffix if output else ""
    if output and suffix not in (".png", ".svg"):
        raise click.UsageError(f"-o {output}: the name must end in .png, .svg.")
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict)
    echo(f"training {steps} steps while the rate rises from {low:g} to {high:g} ...", err=True)
    curve = find(Job.of(read), low=low, high=high, steps=steps)
    name = f"base_lr = {curve.rate:g}"
    if output:
        fs.write_atomic(fs.absolute(output), draw(curve.panels(), [name], "rate", suffix))
    if as_json:
        points = {key: getattr(curve, key).tolist() for key in ("rates", "losses", "smoothed")}
        echo(observe.to_json({"rate": curve.rate, **points}))
        return
    least = int(curve.smoothed.argmin())
    falls = f"from {curve.losses[0]:.4g} to {curve.smoothed[least]:.4g}"
    echo(f"the smoothed loss falls {falls}, at a rate of {curve.rates[least]:.2g}\nproposed: {name}")
    echo(f"to train with it: set it in {shlex.quote(job_file)}, as the highest rate of its schedule", err=True)
