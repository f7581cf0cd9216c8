"""``compare``: run one job under several topologies, and write what each has reached."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import scheduler_options


@click.command()
@click.argument("job_file", metavar="JOB.yaml")
@click.argument("more_clusters", metavar="[FILE]...", nargs=-1)
@click.option(
    "--clusters",
    metavar="FILE...",
    multiple=True,
    help="Take the cluster blocks from these files, or from built-in ones, by name. Without it: all built-in ones. "
    "Write it after JOB.yaml.",
)
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Seeds of the job to run, from its own one on.",
)
@click.option(
    "--until",
    metavar="METRIC=VALUE",
    help="End a run when a metric is as good as this, e.g. accuracy=0.95: of tests, else of validations, else of "
    "training. test.loss=0.1 says of which.",
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="End a run after this time of training.",
)
@click.option("-o", "--output", metavar="URL", help="Write the report here, else to report.html in the run directory.")
@click.option(
    "--run-dir",
    metavar="URL",
    help="Directory of all runs. Without it, a new one in runs/. Runs that are done there are not run again.",
)
@click.option(
    "--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change a value of the job, as for run. Repeatable."
)
@click.option("--cpu", is_flag=True, help="Compute on the CPU whatever the job says; for one with gpu or cuDNN.")
@scheduler_options(
    "Run on the Dask cluster of this scheduler. Without one, a cluster for the largest topology is started."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as the last line of stdout.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
@does("singa_dask.cli.work.compare:compare")
def compare(ctx: click.Context, **given: Any) -> None:
    """Run one job under several topologies, and report.

    E.g. singa-dask compare JOB.yaml --clusters configs/cluster/*.yaml --until accuracy=0.95.

    The runs are made one after the other. The report shows time and samples to the target, curves, staleness of
    gradients, traffic and waits. Ctrl-C ends the comparison and writes the report of what was measured; the same
    command with --run-dir goes on.
    """
