"""The verbs for one job on a cluster: ``attach``, ``checkpoint``, ``kill``, ``logs``, ``stack``, ``stop``, ``view``."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_argument


@click.command()
@job_argument
@click.pass_context
@does("singa_dask.cli.work.job_verbs:attach")
def attach(ctx: click.Context, **given: Any) -> None:
    """Follow a job on a cluster, as run shows it.

    JOB is its id, at least 4 characters of its beginning or end, or its name. Ctrl-C ends this, and asks nothing of the
    job. The exit code is that of the job once it has ended, see run; 0 after Ctrl-C.
    """


@click.command()
@job_argument
@does("singa_dask.cli.work.job_verbs:checkpoint")
def checkpoint(**given: Any) -> None:
    """Have a job on a cluster write a checkpoint now.

    JOB is its id, at least 4 characters of its beginning or end, or its name. Prints the URL of the checkpoint once it
    is complete.
    """


@click.command()
@job_argument
@does("singa_dask.cli.work.job_verbs:kill")
def kill(**given: Any) -> None:
    """End a job on a cluster at once.

    JOB is its id, at least 4 characters of its beginning or end, or its name. There is no last checkpoint; those that
    it has stay.
    """


@click.command()
@job_argument
@click.option("--unit", metavar="UNIT", default="", help="Only this one, e.g. worker-0-0, or driver.")
@click.option("--follow", "-f", is_flag=True, help="Print what comes until the job ends, or until Ctrl-C.")
@does("singa_dask.cli.work.job_verbs:logs")
def logs(**given: Any) -> None:
    """Print the log of a job on a cluster.

    JOB is its id, at least 4 characters of its beginning or end, or its name. The scheduler keeps the newest events of
    each job; all of them are in log/ in the run directory.
    """


@click.command()
@job_argument
@click.option("--unit", metavar="UNIT", default="", help="Only this one, e.g. worker-0-0.")
@click.pass_context
@does("singa_dask.cli.work.job_verbs:stack")
def stack(ctx: click.Context, **given: Any) -> None:
    """Print what the units of a job are doing: their Python stacks.

    JOB is its id, at least 4 characters of its beginning or end, or its name. The job does not stop for it, and units
    that are stuck are shown too.
    """


@click.command()
@job_argument
@click.option("--no-wait", is_flag=True, help="Do not wait until the job has ended.")
@does("singa_dask.cli.work.job_verbs:stop")
def stop(**given: Any) -> None:
    """Stop a job on a cluster with a checkpoint.

    JOB is its id, at least 4 characters of its beginning or end, or its name. run --resume goes on from the checkpoint.
    """


@click.command()
@job_argument
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one line of JSON.")
@does("singa_dask.cli.work.view:view")
def view(**given: Any) -> None:
    """Describe a job on a cluster: units, hosts, steps, restarts.

    JOB is its id, at least 4 characters of its beginning or end, or its name.
    """
