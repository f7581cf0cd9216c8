"""Commands that check or draw a job file without running it: ``graph`` and ``validate``."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import click

from singa_dask import runtime
from singa_dask.cli.options import job_options
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo
from singa_dask.errors import ConfigError
from singa_dask.lazy import require
from singa_dask.shown import plural

if TYPE_CHECKING:
    from singa_dask.comm.message import Address
    from singa_dask.conf import JobConf


PHASES = {"train": "train", "val": "validation", "test": "test"}
FREQUENCIES = {"val": "validate_freq and validate_steps", "test": "test_freq and test_steps"}
SUFFIXES, DRAWINGS = (".dot", ".svg", ".png"), (".svg", ".png")
INSTEAD = "-o FILE.dot needs neither."


@click.command()
@job_options
@click.option("--partitioned", is_flag=True, help="Draw the parts of all workers of a group, and their transfers.")
@click.option(
    "--phase", type=click.Choice(["train", "val", "test"]), default="train", show_default=True, help="Net to draw."
)
@overwrite_option
@output_option(
    "-o",
    "--output",
    metavar="FILE",
    help="File in .dot, .svg or .png; by default DOT on stdout. .svg and .png need pip install 'singa-dask[graph]' and "
    "the program dot of Graphviz.",
)
def graph(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    partitioned: bool,
    phase: str,
    output: str | None,
) -> None:
    """Draw the net of a job file: layers, shapes, parts, bridges.

    Without --partitioned the net is drawn as for one worker. Edges between workers show the bytes of a step: data
    forward and gradients back.
    """
    from singa_dask import fs
    from singa_dask.cli import job
    from singa_dask.net.picture import Picture
    from singa_dask.runtime.planning.nets import build_nets

    suffix = PurePosixPath(output).suffix if output else ".dot"
    if suffix not in SUFFIXES:
        raise click.UsageError(f"-o {output}: the name must end in {', '.join(SUFFIXES)}.")
    read = job.read(job_file, sets, cluster_file)
    n_workers = read.job.cluster.nworkers_per_group if partitioned else 1
    conf = read.job.model_copy(
        update={"cluster": read.job.cluster.model_copy(update={"nworkers_per_group": n_workers})}
    )
    with read.located():
        nets = {str(each.name).lower(): net for each, net in build_nets(conf).items()}
        if PHASES[phase] not in nets:
            raise ConfigError(f"this job has no {phase} net. Set {FREQUENCIES[phase]}.")
    job.warn(read, strict=strict)
    workers = f"a group of {n_workers} workers" if n_workers > 1 else "one worker"
    text = Picture.of(nets[PHASES[phase]], f"{conf.name}: {phase} net of {workers}").dot()
    if output is None:
        echo(text, nl=False)
        return
    data = _draw(text, suffix, output) if suffix in DRAWINGS else text
    fs.write_atomic(fs.absolute(output), data)


@click.command()
@job_options
@click.option("--expand", is_flag=True, help="Only print the job, with its blocks expanded to layers.")
def validate(job_file: str, sets: tuple[str, ...], cluster_file: str | None, strict: bool, expand: bool) -> None:
    """Check a job file and show what it makes; start nothing.

    All mistakes are printed as FILE:LINE:COLUMN: KEY: WHAT, with exit code 2. Likely mistakes are warnings; with
    --strict they are errors. A missing file of records is a warning, too: shapes are then those in the job.
    """
    from singa_dask.cli import job
    from singa_dask.jobs.checks import check, complete, count_steps
    from singa_dask.jobs.datasets.binding import readers

    read = job.read(job_file, sets, cluster_file)
    if expand:
        echo(read.given(), nl=False)
        return
    read = complete(read)
    absent = runtime.absent_records(read.job)
    nets = check(read, absent=absent)
    job.warn(read, nets, strict=strict, embedded=True, more=absent.values())
    if read.job.epochs is not None and not absent and not readers(read.job):
        n_steps = count_steps(read, nets).job.train_steps
        echo(f"epochs: {read.job.epochs:g}, or {plural(n_steps, 'step')} for each worker group\n")
    for phase, net in nets.items():
        echo(f"{str(phase.name).lower()} net\n{net.describe()}\n")
    layout = runtime.plan_processes(read.job.cluster)
    threads = runtime.n_threads(read.job, sum(unit.kind == "worker" for unit in layout.units))
    if not (read.job.gpu or read.job.ops == "cupy"):
        echo(f"on this machine: ops {next(iter(nets.values())).ops.name}, {plural(threads, 'thread')} a worker")
    for number, units in enumerate(layout.processes):
        echo(f"process {number}: {', '.join(_show_units(read.job, units))}")


def _draw(text: str, suffix: str, output: str) -> bytes:
    """Draw a picture with Graphviz; raises a ConfigError or ClickException if it is not installed, or fails."""
    graphviz = require("graphviz", "graph", f"-o {output}: a picture", INSTEAD)
    try:
        drawn: bytes = graphviz.Source(text).pipe(format=suffix.removeprefix("."))
    except graphviz.ExecutableNotFound:
        message = f"-o {output}: pictures are drawn by Graphviz, whose program dot is not on the PATH. Install it, "
        raise ConfigError(f"{message}e.g. by apt install graphviz. {INSTEAD}") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").strip()
        raise click.ClickException(f"-o {output}: Graphviz failed: {said or error}. {INSTEAD}") from None
    return drawn


def _show_units(job: JobConf, units: Sequence[Address]) -> list[str]:
    """Return the names of the workers and servers in a process; workers with their GPUs."""
    from singa_dask.runtime.planning.devices import device_names, n_on_gpus

    workers = [unit for unit in units if unit.kind == "worker"]
    n = n_on_gpus(job, len(workers))
    names = device_names(job, len(workers)) if job.gpu else ["a GPU"] * n
    gpus = dict(zip(workers[:n], names, strict=False))
    return [f"{unit} on {gpus[unit]}" if unit in gpus else str(unit) for unit in units]
