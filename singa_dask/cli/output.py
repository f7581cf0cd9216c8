"""What verbs print: messages without secrets, and tables as wide as the terminal allows."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click

from singa_dask.redaction import redact

GAP = "  "
UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def echo(message: object = "", **options: Any) -> None:
    """Print a message without secrets; ``options`` are those of `click.echo`."""
    click.echo(redact(str(message)), **options)


@dataclass(frozen=True)
class TextColumn:
    """A column of a table.

    Attributes
    ----------
    name : str
    cells : sequence of str
    rank : int
        Where there is no room for all columns, that of the highest rank is left out first, one of rank 0 never.
    right : bool
        Whether it is aligned to the right.
    """

    name: str
    cells: Sequence[str]
    rank: int = 0
    right: bool = False

    @cached_property
    def width(self) -> int:
        """Width of its longest cell."""
        from rich.cells import cell_len

        return max(map(cell_len, (self.name, *self.cells)))

    def line(self, i: int) -> str:
        """Return its name, for -1, or a cell, padded."""
        from rich.cells import cell_len

        text = self.cells[i] if i >= 0 else self.name
        padding = " " * (self.width - cell_len(text))
        return padding + text if self.right else text + padding


def table(columns: Sequence[TextColumn], width: int | None) -> list[str]:
    """Return the lines of a table, without columns that are empty, or for which there is no room; None: no limit."""
    shown = [column for column in columns if any(column.cells)]
    while width is not None and sum(each.width + len(GAP) for each in shown) - len(GAP) > width:
        highest = max(column.rank for column in shown)
        if not highest:
            break
        shown = [column for column in shown if column.rank != highest]
    n = len(shown[0].cells) if shown else -1
    return [GAP.join(column.line(i) for column in shown).rstrip() for i in range(-1, n)]


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> list[str]:
    """Return rows as lines of aligned columns, those with an index in ``right`` aligned to the right."""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    lines = []
    for row in rows:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def terminal_width() -> int | None:
    """Return the width of the terminal that stdout is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def ago(seconds: float) -> str:
    """Return a time span in its largest unit, e.g. ``"3 min"``."""
    for name, length in UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
