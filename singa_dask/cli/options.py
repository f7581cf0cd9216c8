"""Options that several verbs have. Imports no room of ours, so that any verb may take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["scheduler_options"]


def scheduler_options(use: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--scheduler`` and ``--scheduler-file``; ``use`` says what the cluster is for."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        by_file = click.option(
            "--scheduler-file", metavar="FILE", help="Find the scheduler by the file it has written."
        )
        by_address = click.option(
            "--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True, help=use
        )
        return by_address(by_file(command))

    return decorate
