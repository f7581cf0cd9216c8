"""``export``: a trained net as a file for other programs."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


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
@does("singa_dask.cli.work.export:export")
def export(**given: Any) -> None:
    """Write a trained net as a file for other programs.

    RUN is a run directory or a step of it; with --job any checkpoint, also of SINGA. ONNX has the net as it computes in
    a test, from records as the store has them to the probabilities of a SoftmaxLoss, with batches of any size.
    model.py is the same net as a module of PyTorch, with model.weights.safetensors beside it. safetensors and npz
    have all params by name. The file takes its place when all is done.
    """
