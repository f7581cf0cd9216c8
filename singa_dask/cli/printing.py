"""Print messages without secrets, and tables as wide as the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import click

from singa_dask.redaction import redact
from singa_dask.shown import STDERR, shown

GAP = "  "
UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def echo(message: object = "", *, err: bool = False, color: bool | None = None, nl: bool = True) -> None:
    """Print a message like `click.echo`, but without secrets and control characters, see `shown`.

    Errors of writing to stderr are ignored.

    Without ``nl`` the message is data: unless stdout is a terminal, only secrets are removed.
    """
    text = str(message)
    is_data = not nl and not (sys.stdout and sys.stdout.isatty())
    text = redact(text) if is_data else shown(text, coloured=bool(color))
    click.echo(text, file=STDERR if err else None, color=color, nl=nl)


@dataclass(frozen=True)
class TextColumn:
    """A column of a table.

    Attributes
    ----------
    rank : int
        Order in which columns are left out on a narrow terminal, the highest rank first. A column of rank 0 is never
        left out.
    right : bool
        Whether the column is aligned to the right.
    """

    name: str
    cells: Sequence[str]
    rank: int = 0
    right: bool = False

    @cached_property
    def width(self) -> int:
        """Width of the longest cell."""
        from rich.cells import cell_len

        return max(cell_len(shown(text, one_line=True)) for text in (self.name, *self.cells))


def table(columns: Sequence[TextColumn], width: int | None, *, keep_empty: bool = False) -> list[str]:
    """Return the lines of a table. Empty columns, and columns that do not fit in ``width``, are left out."""
    kept = [column for column in columns if keep_empty or any(column.cells)]
    while width is not None and sum(each.width + len(GAP) for each in kept) - len(GAP) > width:
        highest = max(column.rank for column in kept)
        if not highest:
            break
        kept = [column for column in kept if column.rank != highest]
    rows = list(zip(*((column.name, *column.cells) for column in kept), strict=True))
    return align(rows, [i for i, column in enumerate(kept) if column.right])


def align(rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> list[str]:
    """Return rows as lines with aligned columns; ``right`` has the indices of right-aligned columns."""
    from rich.cells import cell_len

    cells = [[shown(text, one_line=True) for text in row] for row in rows]
    lengths = [[cell_len(cell) for cell in row] for row in cells]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    lines = []
    for row, taken in zip(cells, lengths, strict=True):
        gaps = [" " * (width - length) for width, length in zip(widths, taken, strict=True)]
        padded = [gap + cell if i in right else cell + gap for i, (cell, gap) in enumerate(zip(row, gaps, strict=True))]
        lines.append((indent + GAP.join(padded)).rstrip())
    return lines


def terminal_width() -> int | None:
    """Return the width of the terminal; None if stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def ago(seconds: float) -> str:
    """Format a time span in its largest unit, e.g. ``"3 min"``."""
    for name, length in UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
