"""``plot``: curves of runs, as a file, in a window or in the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import PurePosixPath

import click

from singa_dask.cli.echo import echo
from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.observe.curves import Panel, panels_of
from singa_dask.observe.figure import draw, show_window
from singa_dask.observe.html_page import page
from singa_dask.observe.run_facts import best_metric, result_of
from singa_dask.observe.stored_run import StoredRun, short_names
from singa_dask.observe.terminal_figure import draw_text

SUFFIXES = (".png", ".svg", ".html")
WIDTHS = (40, 120)


def plot(runs: tuple[str, ...], output: str | None, axis: str, terminal: bool) -> None:
    """Draw the curves of runs."""
    suffix = PurePosixPath(output).suffix if output else ""
    if output and suffix not in SUFFIXES:
        raise click.UsageError(f"-o {output}: the name must end in {', '.join(SUFFIXES)}.")
    if output and terminal:
        raise click.UsageError("-o writes a file, and --terminal draws in the terminal. Give one of them.")
    found = [StoredRun(url) for url in dict.fromkeys(runs)]
    names = short_names(found)
    panels = panels_of(found, axis)
    if not panels:
        raise ConfigError(f"{runs[0]}: no metrics yet. They are written every disp_freq and test_freq steps.")
    if output:
        _write(output, suffix, found, names, panels, axis)
    elif terminal or not sys.stdout.isatty() or not show_window(panels, names, axis):
        width = min(max(shutil.get_terminal_size().columns, WIDTHS[0]), WIDTHS[1])
        colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        echo(draw_text(panels, names, axis, width, colours), color=True)


def _write(output: str, suffix: str, runs: list[StoredRun], names: list[str], panels: list[Panel], axis: str) -> None:
    picture = draw(panels, names, axis, ".svg" if suffix == ".html" else suffix)
    if suffix == ".html":
        title = f"{names[0]}: curves" if len(names) == 1 else f"Curves of {len(names)} runs"
        rows = [_row(run, name) for run, name in zip(runs, names, strict=True)]
        picture = page(title, picture.decode(), rows).encode()
    fs.write_atomic(fs.absolute(output), picture)


def _row(run: StoredRun, name: str) -> dict[str, str]:
    """Return the row of a run in the table of results."""
    result, best = result_of(run), best_metric(run)
    row = {"run": name, "state": str(result["state"]), "steps": str(result["steps"])}
    row["seconds"] = f"{result['seconds']:.1f}"
    if "samples_per_s" in result:
        row["samples/s"] = f"{result['samples_per_s']:.0f}"
    if best:
        row[f"best {best['metric']}"] = f"{best['value']:.4f} (step {best['step']})"
    return row
