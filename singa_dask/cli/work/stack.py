"""``stack``: the Python stack of each unit of a job."""

from __future__ import annotations

import click

from singa_dask.cli.cluster_jobs import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.job_ends import find_running
from singa_dask.errors import ConfigError

__all__ = ["stack"]


def stack(ctx: click.Context, job: str, scheduler: str | None, scheduler_file: str | None, unit: str) -> None:
    """Print what the units of a job are doing."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job, with_units=True)
        found = jobs.stacks(row["id"], unit) if row else {}
        if row and not found:
            units = jobs.stacks(row["id"])
            raise ConfigError(f"--unit {unit}: {row['id']} has no such unit. Known: {', '.join(units)}.")
    for name, facts in found.items():
        what, seconds = facts.get("wait") or ("", 0.0)
        waits = f", waits for {what} ({seconds:.0f} s)" if what else ""
        echo(f"{name} on {facts['address']}{waits}")
        for line in facts.get("stack", [f"  no stack: {facts.get('error')}"]):
            echo(line)
        echo()
    ctx.exit(0 if any("stack" in facts for facts in found.values()) else 1)
