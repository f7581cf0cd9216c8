"""``schema``: what a job file may say, for editors."""

from __future__ import annotations

import json

import click

from singa_dask import conf, modules
from singa_dask.api import REGISTRIES


@click.command()
@click.option(
    "--module", "paths", metavar="FILE", multiple=True, help="Know what this module of yours registers. Repeatable."
)
def schema(paths: tuple[str, ...]) -> None:
    """Print the JSON schema of a job file.

    Editors that know YAML complete and check a job file whose first line is
    "# yaml-language-server: $schema=PATH/TO/job.schema.json".
    """
    modules.load(modules.read(paths), REGISTRIES.values())
    click.echo(json.dumps(conf.schema(REGISTRIES), indent=2))
