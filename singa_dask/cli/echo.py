"""What verbs print."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.redaction import redact


def echo(message: object = "", **options: Any) -> None:
    """Print a message without secrets; ``options`` are those of `click.echo`."""
    click.echo(redact(str(message)), **options)
