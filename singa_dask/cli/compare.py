"""``compare``: run one job under several topologies, one after the other, and write a report."""

from __future__ import annotations

import contextlib
import signal

import click

from singa_dask import observe
from singa_dask.cli.clusters import Signals, patience_of
from singa_dask.cli.options import CPU, cpu_option, quiet_option, scheduler_options, set_option
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo
from singa_dask.redaction import redact
from singa_dask.shown import STDERR


@click.command()
@click.argument("job_file", metavar="JOB.yaml")
@click.argument("more_clusters", metavar="[FILE]...", nargs=-1)
@click.option(
    "--clusters",
    metavar="FILE...",
    multiple=True,
    help="Use the cluster blocks of these files, or built-in ones, by name; by default all built-in ones. Pass it "
    "after JOB.yaml.",
)
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of seeds to run, starting at the job's seed.",
)
@click.option(
    "--until",
    metavar="METRIC=VALUE",
    help="End a run when a metric reaches this value, e.g. accuracy=0.95: in tests, else validations, else training. "
    "test.loss=0.1 names the phase.",
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="End a run after this time of training.",
)
@overwrite_option
@output_option("-o", "--output", metavar="URL", help="Report to write; by default report.html in the run directory.")
@click.option(
    "--run-dir",
    metavar="URL",
    help="Directory of all runs; by default a new one in runs/. Finished runs in it are not repeated.",
)
@set_option
@cpu_option
@scheduler_options(
    "Run on the Dask cluster of this scheduler. Without one, a cluster for the largest topology is started."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as the last line of stdout.")
@quiet_option
@click.pass_context
def compare(
    ctx: click.Context,
    job_file: str,
    more_clusters: tuple[str, ...],
    clusters: tuple[str, ...],
    seeds: int,
    until: str | None,
    seconds: float | None,
    output: str | None,
    run_dir: str | None,
    sets: tuple[str, ...],
    cpu: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run one job under several topologies, and report.

    E.g. singa-dask compare JOB.yaml --clusters configs/cluster/*.yaml --until accuracy=0.95.

    The runs follow one after the other. The report shows time and samples to the target, curves, staleness of
    gradients, traffic and waits. Ctrl-C ends the comparison and writes a report of the finished runs. The same command
    with --run-dir continues, and with -o and --overwrite replaces the report.
    """
    from rich.console import Console

    from singa_dask import fs
    from singa_dask.cli import job, trials
    from singa_dask.cli.comparison import RESULT, describe, last_cluster, table_lines
    from singa_dask.cli.topologies import Ends, cluster_files, plan_topology, read_target
    from singa_dask.observe.pictures.comparison_page import write_report

    files = cluster_files((*clusters, *more_clusters))
    sets = (*sets, CPU) if cpu else sets
    conf = job.read(job_file, sets, None).job
    if not conf.trains:
        raise click.UsageError(f"{job_file}: there is nothing to train: no updater, no epochs, no train_steps.")
    ends = Ends(read_target(until, conf) if until else None, seconds)
    run_dir = fs.absolute(run_dir or fs.join("runs", observe.new_job_id(f"compare-{conf.name}")))
    elsewhere = bool(scheduler or scheduler_file)
    topologies = [plan_topology(file, job_file, sets, seeds, run_dir, elsewhere) for file in files]
    missing = {trial.url for each in topologies for trial in each.trials if not trials.is_done(trial, ends)}
    stops, console = trials.Stops(), Console(file=STDERR, highlight=False, quiet=quiet)
    if missing:
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(Signals())
            patience = patience_of(wait, quiet)
            client, where = stack.enter_context(trials.choose_cluster(topologies, scheduler, scheduler_file, patience))
            signals.hand_to(stops.stop)
            arguments = job.command_line(ctx)
            reasons = trials.run_all(topologies, missing, client, patience, ends, stops, arguments, console)
    else:
        reasons, where = {}, last_cluster(run_dir)
    comparison = describe(conf, topologies, ends, reasons, where, run_dir)
    output = fs.absolute(output or fs.join(run_dir, "report.html"))
    fs.write_atomic(fs.join(run_dir, RESULT), observe.to_json(comparison, indent=1))
    fs.write_atomic(output, redact(write_report(comparison)))
    for line in table_lines(comparison, console.width):
        console.print(line, soft_wrap=True, markup=False)
    places = f"report: {observe.short_url(output)}; runs: {observe.short_url(run_dir)}"
    console.print(places, soft_wrap=True, markup=False)
    if as_json:
        for run in (run for each in comparison["topologies"] for run in each["runs"]):
            del run["curves"]
        echo(observe.to_json(comparison))
    if stops.signal_name:
        ctx.exit(128 + signal.Signals[stops.signal_name])
    ctx.exit(0 if any(run["state"] == "done" for each in comparison["topologies"] for run in each["runs"]) else 1)
