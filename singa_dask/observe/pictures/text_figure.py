"""Draw curves of runs as text for a terminal, with plotille."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.lazy import require
from singa_dask.observe.pictures.curves import AXES, Panel

TEXT_ROWS = 10
BESIDE_TEXT, MIN_TEXT_COLUMNS = 24, 20
"""Number of characters beside a panel, for its vertical axis and the end of its horizontal axis; minimum width of a
panel."""
TEXT_COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
MARKERS = ("·", "x", "o", "+", "*", "#", "@")
"""Characters of curves. Without colours, each curve has a character of its own."""


def draw_text(panels: Sequence[Panel], names: Sequence[str], axis: str, width: int, colours: bool) -> str:
    """Return a picture as text, one panel below the other.

    Parameters
    ----------
    panels, names, axis
        See `figure.draw`.
    width : int
        Width of the text in characters.
    colours : bool
        Whether the text may contain escape sequences for colours.

    Raises
    ------
    ConfigError
        plotille is not installed.
    """
    plotille = require("plotille", "plot", "a picture in the terminal")
    n_columns = max(width - BESIDE_TEXT - len(AXES[axis]), MIN_TEXT_COLUMNS)
    return "\n\n".join(_draw_text(plotille, panel, names, axis, n_columns, colours) for panel in panels)


def _draw_text(plotille: Any, panel: Panel, names: Sequence[str], axis: str, n_columns: int, colours: bool) -> str:
    curves = [curve for curve in panel.curves if curve.group is None and np.isfinite(curve.y).any()]
    if not curves:
        return f"{panel.label}: no value is finite"
    figure = plotille.Figure()
    figure.width, figure.height, figure.origin = n_columns, TEXT_ROWS, False
    figure.color_mode, figure.with_colors = "names", colours
    figure.x_label = AXES[axis]
    figure.x_ticks_fkt = lambda value, _: f"{value:.3g}"
    # a logarithmic axis has the exponents as values
    figure.y_ticks_fkt = lambda value, _: f"{10**value if panel.is_log else value:.3g}"
    figure.set_x_limits(min_=0)
    if panel.from_zero:
        figure.set_y_limits(min_=0)
    lines, is_marked = [], not colours and len(curves) > 1
    for i, curve in enumerate(curves):
        colour, marker = TEXT_COLOURS[i % len(TEXT_COLOURS)], MARKERS[i % len(MARKERS)] if is_marked else None
        y = np.log10(curve.y) if panel.is_log else curve.y
        known = np.flatnonzero(np.isfinite(y))
        # draw each stretch of finite values as a curve of its own, to leave gaps where values are not finite
        for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            figure.plot(curve.x[part].tolist(), y[part].tolist(), lc=colour, marker=marker)
        words = [word for word in (names[curve.run] if len(names) > 1 else "", curve.kind) if word]
        text = " ".join([marker or "━", *words])
        lines += [plotille.color(text, fg=colour, mode="names", no_color=not colours)] if words else []
    title = f"{panel.label} (log scale)" if panel.is_log else panel.label
    # remove plotille's first line, the label of the vertical axis, as the title has it
    return "\n".join([title, *lines, figure.show().partition("\n")[2]])
