"""``plan``: find the fastest topology of a job before anything runs."""

from __future__ import annotations

import click

from singa_dask import observe, runtime
from singa_dask.cli.options import MEASURING, cluster_options, job_options, json_option
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import TextColumn, echo, table, terminal_width
from singa_dask.redaction import redact

RANKS = {"efficiency": 1, "MiB a process": 2, "threads": 3, "staleness": 4}
"""Columns left out on a narrow terminal, the highest rank first."""
TEXTS = ("topology", "partition", "limited by")


@click.command()
@job_options
@cluster_options("Plan for the Dask cluster of this scheduler, whose hosts and network are measured.")
@click.option(
    "--what-if",
    metavar="KEY=VALUE,...",
    default="",
    help="Plan for a hypothetical cluster, e.g. hosts=64,link=25Gbit,latency=30us,cores=32; also memory=64GiB of each "
    "host, speed=1.2 of a core relative to this machine's, read=200MB of records per host and second, and life=10000h, "
    "the mean time to failure of a process.",
)
@overwrite_option
@output_option("-o", "--output", metavar="FILE", help="Write the job with the best plan, for run.")
@output_option(
    "--html",
    metavar="FILE",
    help="Write a page with the plans, curves over the number of processes, and a simulated step.",
)
@click.option("--beside", metavar="TRACE", help="Also draw a measured step in that page: trace.json of run --profile.")
@output_option(
    "--trace", metavar="FILE", help="Write a simulated step of the best plan, like trace.json of run --profile."
)
@click.option("--price", type=click.FloatRange(min=0), default=0.0, help="Price of a machine per hour, for costs.")
@json_option
def plan(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    what_if: str,
    output: str | None,
    html: str | None,
    beside: str | None,
    trace: str | None,
    price: float,
    as_json: bool,
) -> None:
    """Find the fastest topology of a job before anything runs.

    The costs of layers, updates and messages are measured on this machine in some seconds, and cached. Then steps of
    the job on the cluster are simulated. Synchronous plans keep the job's batch size; plans with several worker groups,
    whose gradients are stale, are listed separately. Without a cluster the plan is for this machine.
    """
    from singa_dask import fs
    from singa_dask.cli import job
    from singa_dask.jobs.job import Job
    from singa_dask.jobs.plan import plan as find
    from singa_dask.observe.pictures.timeline import read_trace
    from singa_dask.planner.report import KINDS

    if beside and not html:
        raise click.UsageError("--beside is drawn in the page of --html. Pass --html FILE.")
    measured = read_trace(beside) if beside else ()
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, more=runtime.absent_records(read.job).values())
    echo(MEASURING, err=True)
    found = find(
        Job.of(read),
        what_if=what_if,
        client=scheduler,
        scheduler_file=scheduler_file,
        price=price,
        trace=bool(trace or html),
    )
    for kind in KINDS:
        if rows := found.rows(kind):
            columns = [
                TextColumn(title, [row[title] for row in rows], RANKS.get(title, 0), right=title not in TEXTS)
                for title in rows[0]
            ]
            echo("\n".join([f"{kind} plans for {found.where}", *table(columns, terminal_width()), ""]))
    echo(f"chosen: {found.reason()}")
    if output:
        fs.write_atomic(fs.absolute(output), found.to_yaml())
        echo(f"to run it: singa-dask run {output}", err=True)
    if html:
        fs.write_atomic(fs.absolute(html), redact(found.page(measured)))
    if trace:
        fs.write_atomic(fs.absolute(trace), found.trace())
    if as_json:
        echo(observe.to_json({"cluster": found.where, "candidates": found.values()}))
