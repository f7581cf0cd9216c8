"""Draw curves of runs with matplotlib, as PNG, as SVG or in a window."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.lazy import require
from singa_dask.observe.pictures.curves import AXES, Panel, PlottedCurve

INSTEAD = "--terminal draws in the terminal."

# colours of Okabe and Ito (Color Universal Design), which are distinct for all kinds of colour vision and in print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = {"train": "-", "validation": ":", "test": "--", "data": "-", "params": "--", "": "-"}
MARKED = ("validation", "test")
MAX_MARKED = 40
"""Curves of tests with more points than this have no markers."""
MAX_COLUMNS = 3
PANEL_INCHES = (3.6, 2.6)

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#444444",
    "axes.formatter.limits": (-3, 5),
    "axes.formatter.use_mathtext": True,
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 100,
    "font.size": 10,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "savefig.facecolor": "white",
    "svg.hashsalt": "singa-dask",
    "xtick.color": "#444444",
    "xtick.labelsize": 9,
    "ytick.color": "#444444",
    "ytick.labelsize": 9,
}


def draw(panels: Sequence[Panel], names: Sequence[str], axis: str, suffix: str) -> bytes:
    """Return a picture of panels.

    Parameters
    ----------
    names : sequence of str
        Names of the runs, for the legend.
    axis : str
        Horizontal axis, a key of `AXES`.
    suffix : str
        ``.png`` or ``.svg``.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    _matplotlib(f"a {suffix.removeprefix('.').upper()} picture")
    return saved(figure_of(panels, names, axis), suffix)


def draw_confusion(matrix: npt.NDArray[np.int64], names: Sequence[str], suffix: str) -> bytes:
    """Return a confusion matrix, with true classes in rows, as ``.csv``, ``.png`` or ``.svg``.

    Raises
    ------
    ConfigError
        ``suffix`` asks for a picture, and matplotlib is not installed.
    """
    if suffix == ".csv":
        text = io.StringIO(newline="")
        rows = ([name, *row] for name, row in zip(names, matrix.tolist(), strict=True))
        csv.writer(text, lineterminator="\n").writerows([["true \\ predicted", *names], *rows])
        return text.getvalue().encode()
    matplotlib = _matplotlib(f"a {suffix.removeprefix('.').upper()} picture")
    n, figures = len(names), require("matplotlib.figure", "plot", "a picture")
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = figures.Figure(figsize=(2.5 + 0.45 * min(n, 40), 2 + 0.4 * min(n, 40)), layout="constrained")
        axes = figure.subplots()
        shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        if n <= 40:
            axes.set_xticks(range(n), names, rotation=90 if n > 3 else 0)
            axes.set_yticks(range(n), names)
            for (row, column), count in np.ndenumerate(matrix):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=8)
        axes.set(xlabel="predicted", ylabel="true")
    return saved(figure, suffix)


def saved(figure: Any, suffix: str) -> bytes:
    """Return the bytes of a figure in the format of ``suffix``, e.g. ``.svg``.

    Equal figures give equal bytes.
    """
    with require("matplotlib", "plot", "a picture").rc_context(STYLE):
        out = io.BytesIO()
        # omit the current time, so that the same run gives the same file
        metadata = {"Date": None} if suffix == ".svg" else {"Software": "singa-dask"}
        figure.savefig(out, format=suffix.removeprefix("."), dpi=140, metadata=metadata)
    return out.getvalue()


def figure_of(panels: Sequence[Panel], names: Sequence[str], axis: str) -> Any:
    """Return a picture of panels as a ``matplotlib.figure.Figure``, which a notebook shows; see `draw`."""
    matplotlib = _matplotlib("a figure")
    figures = require("matplotlib.figure", "plot", "a figure")
    with matplotlib.rc_context(STYLE):
        figure = _fill(figures.Figure(figsize=_size(panels), layout="constrained"), panels, names, axis)

    def png() -> bytes:
        out = io.BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()

    # the figure is made without pyplot, so IPython needs this method to display it
    figure._repr_png_ = png
    return figure


def show_window(panels: Sequence[Panel], names: Sequence[str], axis: str) -> bool:
    """Show a picture in a window until the user closes it; return False if no window can be opened."""
    try:
        pyplot = require("matplotlib.pyplot", "plot", "a window")
        matplotlib = _matplotlib("a window")
    except ValueError:
        return False
    with matplotlib.rc_context(STYLE):
        # here matplotlib chooses its backend; without a display, it chooses one that has no windows
        figure = pyplot.figure(figsize=_size(panels), layout="constrained")
        backends = require("matplotlib.backends", "plot", "a window")
        windows = backends.backend_registry.list_builtin(backends.BackendFilter.INTERACTIVE)
        shown = pyplot.get_backend().lower() in {name.lower() for name in windows if name != "nbagg"}
        if shown:
            _fill(figure, panels, names, axis)
            pyplot.show()
        pyplot.close(figure)
    return shown


def _matplotlib(what: str) -> Any:
    return require("matplotlib", "plot", what, INSTEAD)


def _shape(n_panels: int) -> tuple[int, int]:
    """Return the numbers of rows and columns in which panels are arranged."""
    columns = n_panels if n_panels < 3 else 2 if n_panels == 4 else MAX_COLUMNS
    return math.ceil(n_panels / columns), columns


def _size(panels: Sequence[Panel]) -> tuple[float, float]:
    rows, columns = _shape(len(panels))
    return columns * PANEL_INCHES[0], rows * PANEL_INCHES[1] + 0.5


def _fill(figure: Any, panels: Sequence[Panel], names: Sequence[str], axis: str) -> Any:
    """Draw the panels, and one legend for all of them."""
    rows, columns = _shape(len(panels))
    all_axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in all_axes[len(panels) :]:
        axes.remove()
    alone = len(names) == 1
    for axes, panel in zip(all_axes, panels, strict=False):
        _draw_panel(axes, panel, alone)
        axes.set_xlabel(AXES[axis])
        axes.set_xscale("log" if axis == "rate" else "linear")
        axes.margins(x=0.02)
    _add_legend(figure, panels, names)
    return figure


def _draw_panel(axes: Any, panel: Panel, alone: bool) -> None:
    for curve in panel.curves:
        style = _style(curve, alone)
        if curve.kind in MARKED and curve.group is None and len(curve.x) <= MAX_MARKED:
            style["marker"] = "o" if curve.kind == "test" else "s"
        axes.plot(curve.x, curve.y, **style)
        if curve.low is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=style["color"], alpha=0.1, linewidth=0)
    if panel.mark is not None:
        axes.axvline(panel.mark, color="#444444", linestyle="--", linewidth=1)
    if panel.goal is not None:
        axes.axhline(panel.goal, color="#444444", linestyle="--", linewidth=1)
    if panel.is_log:
        axes.set_yscale("log")
    elif panel.from_zero:
        axes.set_ylim(bottom=0)
    elif panel.label.endswith("accuracy"):
        _, top = axes.get_ylim()
        axes.set_ylim(top=min(top, 1.005))
    axes.set_ylabel(panel.label)
    kinds = list(dict.fromkeys(curve.kind for curve in panel.curves))
    if "data" in kinds:
        lines = [_line(axes, kind, alone) for kind in kinds]
        # place the legend above the panel, because curves of waits may be anywhere in the panel
        axes.legend(lines, [f"for {kind}" for kind in kinds], fontsize=9, loc="lower right", bbox_to_anchor=(1, 0.97),
                    ncols=2, borderaxespad=0)  # fmt: skip


def _style(curve: PlottedCurve, alone: bool) -> dict[str, Any]:
    colour = _colour(curve.kind, curve.run, alone)
    if curve.group is not None:
        return {"color": colour, "linewidth": 0.6, "alpha": 0.35, "linestyle": "-"}
    # draw tests on top of other curves
    order = 3 if curve.kind in MARKED else 2
    return {
        "color": colour,
        "linestyle": "-" if alone and curve.kind != "test" else STYLES[curve.kind],
        "zorder": order,
    }


def _colour(kind: str, run: int, alone: bool) -> str:
    """Return the colour of a curve: for a single run (``alone``) by its kind, for several runs by its run."""
    order = {"train": 0, "": 0, "data": 0, "test": 1, "params": 1, "validation": 2}
    return COLOURS[(order[kind] if alone else run) % len(COLOURS)]


def _line(axes: Any, kind: str, alone: bool) -> Any:
    colour = _colour(kind, 0, alone) if alone else "#444444"
    (line,) = axes.plot([], [], color=colour, linestyle="-" if alone else STYLES[kind])
    return line


def _add_legend(figure: Any, panels: Sequence[Panel], names: Sequence[str]) -> None:
    """Add a legend above the panels: colours of runs (if there are several), and line styles of phases."""
    lines = require("matplotlib.lines", "plot", "a picture")
    alone = len(names) == 1
    kinds = {curve.kind for panel in panels for curve in panel.curves if curve.kind in STYLES}
    handles = []
    if not alone:
        handles = [
            lines.Line2D([], [], color=COLOURS[i % len(COLOURS)], label=name, linewidth=2.5)
            for i, name in enumerate(names)
        ]
    for kind in ("train", "validation", "test"):
        if kind in kinds:
            curve = PlottedCurve(0, kind, np.empty(0), np.empty(0))
            style = _style(curve, alone) | ({} if alone else {"color": "#444444"})
            marker = {"test": "o", "validation": "s"}.get(kind)
            handles.append(lines.Line2D([], [], label=kind, marker=marker, **style))
    figure.legend(
        handles=handles,
        title=names[0] if alone else None,
        loc="outside upper center",
        ncols=min(len(handles), 5),
        fontsize=10,
    )
