"""Pictures of curves for a terminal: Braille dots, drawn by plotille, with axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.lazy import require
from singa_dask.observe.curves import AXES, Curve, Panel

COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
MARKERS = ("·", "x", "o", "+", "*", "#", "@")
"""Without colours each curve has a character of its own."""
ROWS = 10
LABEL = 9
"""Characters of a number left of the picture."""
MIN_WIDTH = 20
NICE = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def draw_text(panels: Sequence[Panel], names: Sequence[str], axis: str, width: int, colours: bool) -> str:
    """Return a picture as text: the panels one below the other, each with its legend.

    Parameters
    ----------
    panels : sequence of Panel
    names : sequence of str
        Of the runs.
    axis : str
        What curves are drawn over, see `AXES`.
    width : int
        Characters that a line may have.
    colours : bool
        Whether escape sequences may be used.

    Raises
    ------
    ConfigError
        plotille is not installed.
    """
    plotille = require("plotille", "plot", "a picture in the terminal")
    # the last column stays free: some terminals break the line there
    n_columns = max(width - LABEL - 3, MIN_WIDTH)
    return "\n\n".join(_draw(plotille, panel, names, axis, n_columns, colours) for panel in panels)


def _draw(plotille: Any, panel: Panel, names: Sequence[str], axis: str, n_columns: int, colours: bool) -> str:
    curves = [curve for curve in panel.curves if curve.group is None and np.isfinite(curve.y).any()]
    if not curves:
        return f"{panel.label}: no value is finite"
    right = _nice(max(float(curve.x.max()) for curve in curves))
    low, high = _limits(panel, curves)
    canvas = plotille.Canvas(n_columns, ROWS, xmin=0.0, xmax=right, ymin=low, ymax=high, mode="names")
    for i, curve in enumerate(curves):
        y = np.log10(curve.y) if panel.is_log else curve.y
        # the edges themselves are outside of the canvas
        points = list(zip(curve.x.clip(0, canvas.xmax_inside), y.clip(low, canvas.ymax_inside), strict=True))
        colour = COLOURS[i % len(COLOURS)] if colours else None
        for before, point in zip(points[:1] + points, points, strict=False):
            if math.isfinite(before[1]) and math.isfinite(point[1]):
                canvas.line(*before, *point, color=colour)
        for point in points if not colours and len(curves) > 1 else ():
            if math.isfinite(point[1]):
                canvas.point(*point, marker=MARKERS[i % len(MARKERS)])
    title = f"{panel.label} (log scale)" if panel.is_log else panel.label
    legend = _legend(plotille, curves, names, colours, n_columns + LABEL + 2)
    return "\n".join([title, *legend, *_with_axes(canvas, panel, AXES[axis])])


def _with_axes(canvas: Any, panel: Panel, label: str) -> list[str]:
    """Return the lines of a picture with its axes, and numbers at their ends and in their middle."""
    ticks = {0: canvas.ymax, ROWS // 2: canvas.ymax - (canvas.ymax - canvas.ymin) * (ROWS // 2) / (ROWS - 1)}
    ticks[ROWS - 1] = canvas.ymin
    made = []
    for row, line in enumerate(canvas.plot().splitlines()):
        value = ticks.get(row)
        number = "" if value is None else _number(10**value if panel.is_log else value)
        made.append(f"{number:>{LABEL}} {'│' if value is None else '┤'}{line}")
    return [*made, *_below(canvas.width, canvas.xmax, label)]


def _below(n_columns: int, right: float, label: str) -> list[str]:
    middle = n_columns // 2
    rule = "─" * middle + "┴" + "─" * (n_columns - middle - 1)
    half, end = _number(right / 2), _number(right)
    numbers = "0".ljust(middle - len(half) // 2) + half
    numbers = numbers.ljust(n_columns - len(end)) + end
    return [f"{'':{LABEL}} └{rule}", f"{'':{LABEL}}  {numbers}", f"{'':{LABEL}}  {label:^{n_columns}}".rstrip()]


def _limits(panel: Panel, curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the limits of the vertical axis; of a logarithmic one as powers of ten."""
    values = np.concatenate([curve.y[np.isfinite(curve.y)] for curve in curves])
    if panel.is_log:
        values = np.log10(values)
    low = 0.0 if panel.from_zero else float(values.min())
    high = float(values.max())
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _nice(value: float) -> float:
    """Return a round number that is no less than a positive one."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(nice for each in NICE if (nice := each * power) >= value * (1 - 1e-9))


def _number(value: float) -> str:
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return text if len(text) <= LABEL else f"{value:.2g}"


def _legend(plotille: Any, curves: Sequence[Curve], names: Sequence[str], colours: bool, width: int) -> list[str]:
    """Return lines with the names of the curves, each in its colour, or with its character."""
    lines: list[str] = []
    room = 0
    for i, curve in enumerate(curves):
        words = (names[curve.run] if len(names) > 1 else "", curve.kind)
        mark = "━" if colours or len(curves) < 2 else MARKERS[i % len(MARKERS)]
        text = " ".join(each for each in (mark, *words) if each)
        if text == mark:
            continue
        shown = plotille.color(text, fg=COLOURS[i % len(COLOURS)], mode="names") if colours else text
        if len(text) + 3 > room:
            lines, room = [*lines, shown], width - len(text)
        else:
            lines[-1], room = f"{lines[-1]}   {shown}", room - len(text) - 3
    return lines
