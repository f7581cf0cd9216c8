"""``schema``: what a job file may say, for editors."""

from __future__ import annotations

import json

import click

from singa_dask import conf
from singa_dask.cli.job import REGISTRIES

__all__ = ["schema"]


@click.command()
def schema() -> None:
    """Print the JSON schema of a job file.

    Editors that know YAML complete and check a job file whose first line is
    "# yaml-language-server: $schema=PATH/TO/job.schema.json".
    """
    click.echo(json.dumps(conf.schema(REGISTRIES), indent=2))
