"""``run``: read a job, find or start a cluster, let the driver run it, write down what happens."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import LATEST, job_options, observer_options, scheduler_options


@click.command()
@job_options
@scheduler_options(
    "Run on the Dask cluster of this scheduler. Without one, a cluster of the job's size is started for it."
)
@click.option(
    "--listen",
    metavar="INTERFACE[:PORTS]",
    help="Let the processes of the job take connections from each other here, e.g. eth1:9000-9100, eth1 or "
    ":9000-9100; same as cluster.listen.interface and cluster.listen.ports.",
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
@click.option(
    "--detach",
    is_flag=True,
    help="Leave the job to the cluster of --scheduler once it has started, and print its id: it goes on without this "
    "program, and writes its run directory itself.",
)
@click.option(
    "--queue",
    is_flag=True,
    help="Wait in line if there is no room on the cluster of --scheduler: first come, first served. Without it such a "
    "job is refused.",
)
@click.option(
    "--priority",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Jobs of higher priority go before others in line.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Record what each unit does in a few steps, as trace.json in the run directory, and the time of each layer.",
)
@observer_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as the last line of stdout.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
@does("singa_dask.cli.work.run:run")
def run(ctx: click.Context, **given: Any) -> None:
    """Train a net as a job file says.

    Exit codes: 0 done, 1 the job failed, 2 usage or job file, 3 no cluster or too small,
    4 processes lost, 5 a loss is not finite, 129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM.
    """
