"""``validate``: every mistake of a job file, or its nets, kernels and topology; nothing is started."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.options import job_options


@click.command()
@job_options
@does("singa_dask.cli.work.validate:validate")
def validate(**given: Any) -> None:
    """Check a job file and show what it makes; start nothing.

    All mistakes are printed, each as FILE:LINE:COLUMN: KEY: WHAT, and the exit code is 2. What is allowed but likely a
    mistake is a warning; with --strict it is an error. So is a file of records that is not there: shapes are what the
    job says they are.
    """
