"""``import``: weights of other programs as a checkpoint."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


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
@does("singa_dask.cli.work.import_:import_")
def import_(**given: Any) -> None:
    """Make a checkpoint of weights from another program.

    WEIGHTS is a file of safetensors or npz, or a .pt of PyTorch where that is installed. What is missing, unused or of
    another shape is told at once, and nothing is written. Without --map the error has a map to begin with.
    """
