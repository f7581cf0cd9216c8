"""``export`` and ``import``: write trained nets for other programs, and read weights from these."""

from __future__ import annotations

import click

from singa_dask.cli.options import net_option, quiet_option, set_option
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo


@click.command()
@click.argument("run", metavar="RUN")
@output_option("-o", "--out", metavar="URL", required=True, help="File to write: .onnx, .py, .pt, .safetensors, .npz.")
@click.option(
    "--format", metavar="FORMAT", help="onnx, torch, state_dict, safetensors or npz; by default chosen by the suffix."
)
@click.option(
    "--layer",
    "layers",
    metavar="NAME",
    multiple=True,
    help="Output of the model, instead of what losses compare with labels or targets. Repeatable.",
)
@net_option
@set_option
@overwrite_option
@quiet_option
@click.pass_context
def export(
    context: click.Context,
    run: str,
    out: str,
    format: str | None,
    layers: tuple[str, ...],
    job_file: str | None,
    sets: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write a trained net as a file for other programs.

    RUN is a run directory or a step of it; with --job any checkpoint, including SINGA's. The ONNX model is the test
    net: it takes records as they are stored, in batches of any size, and returns the probabilities of a SoftmaxLoss.
    model.py is the same net as a PyTorch module; its weights are in model.weights.safetensors. model.pt is the state
    dict of a TorchModule. safetensors and npz have all params by name. The file appears when it is complete.
    """
    from singa_dask.cli import job
    from singa_dask.exports.exporting import export_job, job_of_run

    conf = job.read(job_file, sets, None).job if job_file else job_of_run(run, sets)
    done = export_job(conf, run, out, format, layers, context.meta["overwrite"], "--overwrite")
    if quiet:
        return
    for note in done.notes:
        echo(f"note: {note}", err=True)
    for url in done.urls:
        echo(url)


@click.command("import")
@click.argument("weights", metavar="WEIGHTS")
@click.option("--job", "job_file", metavar="JOB.yaml", required=True, help="Job whose params the weights become.")
@set_option
@click.option(
    "--map",
    "map_file",
    metavar="MAP.yaml",
    help="Param of each array, as lines 'array: param'. Without it, arrays are matched by layer, name and shape.",
)
@click.option("--partial", is_flag=True, help="Allow missing params; they keep the job's initial values.")
@click.option("-o", "--out", metavar="URL", required=True, help="Directory for the checkpoint, for --init-from.")
def import_(weights: str, job_file: str, sets: tuple[str, ...], map_file: str | None, partial: bool, out: str) -> None:
    """Make a checkpoint of weights from another program.

    WEIGHTS is a safetensors or npz file, or a .pt or .pth file if PyTorch is installed. All missing, unused, ambiguous
    or misshapen arrays are reported at once, and nothing is written. Without --map, the error has a map to complete.
    """
    from singa_dask.cli import job
    from singa_dask.exports.importing import import_into, read_map
    from singa_dask.exports.weights import read_weights

    conf = job.read(job_file, sets, None).job
    echo(import_into(conf, weights, read_weights(weights), out, read_map(map_file), partial))
