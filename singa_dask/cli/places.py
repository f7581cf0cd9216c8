"""Arguments and options that are paths or URLs. Always loaded, so it only imports errors and paths."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.errors import ConfigError
from singa_dask.paths import expand

__all__ = ["with_places"]

PLACES = {"CHECKPOINT", "DST", "FILE", "JOB.yaml", "RUN", "RUN...", "SRC...", "URL", "[CHECKPOINT]", "[URL]"}
"""What the help calls arguments and options that are paths or URLs."""


class Place(click.types.StringParamType):
    """A path or URL in which ``~`` and environment variables are expanded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Expand a value."""
        try:
            return expand(super().convert(value, param, ctx))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def with_places(command: click.Command) -> click.Command:
    """Expand the path arguments of a command, or of those in its group."""
    for param in command.params:
        if param.type is click.STRING and param.make_metavar(click.Context(command)) in PLACES:
            param.type = Place()
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        with_places(inner)
    return command
