"""``find-rate``: propose a learning rate, from a short run in which it rises."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

import click

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.data import fs
from singa_dask.jobs.job import Job
from singa_dask.jobs.rates import find_rate as find
from singa_dask.observe import to_json
from singa_dask.observe.figure import draw


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
    """Propose a learning rate."""
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
        echo(to_json({"rate": curve.rate, **points}))
        return
    least = int(curve.smoothed.argmin())
    falls = f"from {curve.losses[0]:.4g} to {curve.smoothed[least]:.4g}"
    echo(f"the smoothed loss falls {falls}, at a rate of {curve.rates[least]:.2g}\nproposed: {name}")
    echo(f"to train with it: set it in {shlex.quote(job_file)}, as the highest rate of its schedule", err=True)
