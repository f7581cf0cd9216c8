"""``ckpt``: what a checkpoint holds, whether it is whole, and how two differ."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does


@click.command()
@click.argument("url", metavar="CHECKPOINT")
@click.argument("other", metavar="[CHECKPOINT]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.pass_context
@does("singa_dask.cli.work.ckpt:ckpt")
def ckpt(ctx: click.Context, **given: Any) -> None:
    """List and check the params of a checkpoint, or compare two.

    CHECKPOINT is a run directory, a step of it, or a file or workspace of SINGA's. Of a run all checkpoints are
    checked, and the params of the newest good one are listed. With a second checkpoint, the largest absolute difference
    of each param.

    Exit codes: 0 all is well, 1 something is damaged, missing or not finite.
    """
