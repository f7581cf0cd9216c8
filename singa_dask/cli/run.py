"""``run``: read a job, find or start a cluster, let the driver run it, write down what happens."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import LATEST, job_options, scheduler_options

__all__ = ["run"]


@click.command()
@job_options
@scheduler_options(
    "Run on the Dask cluster of this scheduler. Without one, a cluster of the job's size is started for it."
)
@click.option(
    "--run-dir",
    metavar="URL",
    help="Directory of this run. Without it, a new one in the job's cluster.workspace, or in runs/.",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[URL]",
    help="Go on from a checkpoint: of the run or step at URL, or of the run in --run-dir, or of the newest run of "
    "this job. A run that ended before its first checkpoint starts over. Write it after JOB.yaml.",
)
@click.option("--overwrite", is_flag=True, help="Replace the run that is in --run-dir: its files are deleted.")
@click.option(
    "--init-from",
    metavar="URL",
    multiple=True,
    help="Start with the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
    "directory, a step of it, or a file or workspace of SINGA's. Repeatable; later ones win.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as the last line of stdout.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
@does("singa_dask.cli.work.run:run")
def run(ctx: click.Context, **given: Any) -> None:
    """Train a net as a job file says.

    Exit codes: 0 done, 1 the job failed, 2 usage or job file, 3 no cluster or too small,
    4 processes lost, 5 a loss is not finite, 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM.
    """
