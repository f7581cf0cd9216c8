"""The verbs for other programs: ``export`` and ``import``."""

from __future__ import annotations

import click

from singa_dask.cli.output import echo


@click.command()
@click.argument("run", metavar="RUN")
@click.option("-o", "--out", metavar="URL", required=True, help="File to write: .onnx, .py, .safetensors, .npz.")
@click.option("--format", metavar="FORMAT", help="onnx, torch, safetensors or npz, if the suffix does not say it.")
@click.option(
    "--layer",
    "layers",
    metavar="NAME",
    multiple=True,
    help="Output of the model, instead of what the losses compare with labels or targets. Repeatable.",
)
@click.option("--job", "job_file", metavar="JOB.yaml", help="Take the net of this job file, not the one of the run.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change a value of the job. Repeatable.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
def export(
    run: str,
    out: str,
    format: str | None,
    layers: tuple[str, ...],
    job_file: str | None,
    sets: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write a trained net as a file for other programs.

    RUN is a run directory or a step of it; with --job any checkpoint, also of SINGA. ONNX has the net as it computes in
    a test, from records as the store has them to the probabilities of a SoftmaxLoss, with batches of any size.
    model.py is the same net as a module of PyTorch, with model.weights.safetensors beside it. safetensors and npz
    have all params by name. The file takes its place when all is done.
    """
    from singa_dask.cli import job
    from singa_dask.exports.exporting import export_job, job_of_run

    conf = job.read(job_file, sets, None).job if job_file else job_of_run(run, sets)
    done = export_job(conf, run, out, format, layers)
    if quiet:
        return
    for note in done.notes:
        echo(f"note: {note}", err=True)
    for url in done.urls:
        echo(url)


@click.command("import")
@click.argument("weights", metavar="WEIGHTS")
@click.option("--job", "job_file", metavar="JOB.yaml", required=True, help="The job whose params they become.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Change a value of the job. Repeatable.")
@click.option(
    "--map",
    "map_file",
    metavar="MAP.yaml",
    help="Which array becomes which param: a line 'array: param' for each. Without it their names are equal.",
)
@click.option("--partial", is_flag=True, help="Accept that params are missing; they keep the job's initial values.")
@click.option("-o", "--out", metavar="URL", required=True, help="Directory for the checkpoint, for --init-from.")
def import_(weights: str, job_file: str, sets: tuple[str, ...], map_file: str | None, partial: bool, out: str) -> None:
    """Make a checkpoint of weights from another program.

    WEIGHTS is a file of safetensors or npz, or a .pt of PyTorch where that is installed. What is missing, unused or of
    another shape is told at once, and nothing is written. Without --map the error has a map to begin with.
    """
    from singa_dask.cli import job
    from singa_dask.exports.importing import import_into, read_map
    from singa_dask.exports.weights import read_weights

    conf = job.read(job_file, sets, None).job
    echo(import_into(conf, weights, read_weights(weights), out, read_map(map_file), partial))
