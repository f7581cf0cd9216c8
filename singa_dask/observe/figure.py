"""Pictures of curves: PNG, SVG or a window by matplotlib, text for a terminal by plotille, and pages with tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.lazy import require
from singa_dask.observe.progress import layer_metrics
from singa_dask.observe.stored_run import PHASES, StoredRun

# Curves of runs: metrics, learning rate, speed and waits over steps, grouped into panels, for any kind of picture.


MAX_POINTS = 2000
"""Most points of a curve in a picture."""
AXES = {"step": "step", "epoch": "epoch", "time": "time (s)", "samples": "samples", "rate": "learning rate",
        "processes": "processes"}  # fmt: skip
"""What curves can be drawn over, and the label of that axis; that of rates is logarithmic."""
LOG_SPAN = 30.0
"""From this ratio of the largest value to the smallest on, an axis is logarithmic."""
LOSSES = ("loss", "error")
WAITS = {"wait_data_ms": "data", "wait_params_ms": "params"}
OTHERS = ("lr", "samples_per_s", *WAITS)


@dataclasses.dataclass(frozen=True)
class PlottedCurve:
    """One line of a panel.

    Attributes
    ----------
    run : int
        Index of the run.
    kind : str
        What tells it from the other lines of its run: a phase, ``data`` or ``params``.
    x, y : ndarray, 1-D float64
        Of equal length, at most `MAX_POINTS`; a value of ``y`` that is not finite is nan.
    group : int or None
        Worker group; None if the curve is for the whole run.
    low, high : ndarray or None
        Edges of a band around the line.
    """

    run: int
    kind: str
    x: np.ndarray
    y: np.ndarray
    group: int | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves that share their axes.

    Attributes
    ----------
    label : str
        Of the vertical axis, with its unit.
    curves : list of PlottedCurve
        Those of single groups first.
    from_zero : bool
        Whether the vertical axis starts at zero.
    mark, goal : float or None
        Where a vertical, and where a horizontal line stands.
    """

    label: str
    curves: list[PlottedCurve]
    from_zero: bool = False
    mark: float | None = None
    goal: float | None = None

    @property
    def is_log(self) -> bool:
        """Whether the values, all positive, span more than `LOG_SPAN`."""
        values = np.concatenate([curve.y for curve in self.curves] or [np.empty(0)])
        values = values[np.isfinite(values)]
        return not self.from_zero and values.size > 0 and 0 < LOG_SPAN * values.min() < values.max()


def panels_of(runs: Sequence[StoredRun], axis: str = "step") -> list[Panel]:
    """Return the panels of runs: losses, other metrics, learning rate, samples per second, waits.

    Parameters
    ----------
    runs : sequence of StoredRun
    axis : str
        One of `AXES`; times count from the start of a run, without the times between its stops and resumes.
    """
    recorded = [_records(run, axis) for run in runs]
    names = {name: None for records in recorded for _, _, values in records for name in values}
    metrics = sorted(names.keys() - set(OTHERS), key=lambda name: (not name.endswith(LOSSES), name))

    def panel(label: str, keys: Mapping[str, str], from_zero: bool = False, total: bool = False) -> Panel:
        curves = []
        for i, records in enumerate(recorded):
            for kind, key in keys.items():
                phase = kind if kind in PHASES else "train"
                points = [(place, event, values[key]) for place, event, values in records
                          if event["phase"] == phase and key in values]  # fmt: skip
                curves += _curves(i, kind, points, total)
        curves.sort(key=lambda curve: curve.group is None)
        # around a value that does not change, an axis would show nothing but its last digits
        values = {float(value) for curve in curves for value in curve.y}
        return Panel(label, curves, from_zero or (len(values) == 1 and min(values) > 0))

    panels = [panel(name, dict.fromkeys(PHASES, name)) for name in metrics]
    panels.append(panel("learning rate", {"": "lr"}))
    panels.append(panel("speed (samples/s)", {"": "samples_per_s"}, from_zero=True, total=True))
    panels.append(panel("wait per step (ms)", {kind: key for key, kind in WAITS.items()}, from_zero=True))
    return [each for each in panels if each.curves]


def _records(run: StoredRun, axis: str) -> list[tuple[float, Mapping[str, Any], dict[str, float]]]:
    """Return place on the horizontal axis, event, and values by name of the metrics of a run."""
    records: list[tuple[float, Mapping[str, Any], dict[str, float]]] = []
    for place, event in zip(_places(run, axis), run.metrics, strict=True):
        values = {name: event[name] for name in OTHERS if event.get(name) is not None}
        # what is not finite is null in a file
        for name, value in layer_metrics(event).items():
            values[name] = math.nan if value is None else value
        records.append((place, event, values))
    return records


def _places(run: StoredRun, axis: str) -> list[float]:
    """Return where the metrics of a run are on the horizontal axis."""
    if axis != "time":
        return [float(event.get(axis) or 0) for event in run.metrics]
    starts = [(float(each["time"]), float(each.get("seconds_before", 0))) for each in run.commands]
    starts = starts or [(min((float(event["time"]) for event in run.metrics), default=0.0), 0.0)]
    places = []
    for event in run.metrics:
        began, before = next((each for each in reversed(starts) if each[0] <= event["time"]), starts[0])
        places.append(max(float(event["time"]) - began + before, 0.0))
    return places


def _curves(run: int, kind: str, recorded: list[tuple[float, Any, Any]], total: bool) -> list[PlottedCurve]:
    """Return a curve for the run, and one for each group if there are several: it is their mean, or their sum."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for place, event, value in recorded:
        groups.setdefault(int(event.get("group", 0)), []).append((place, float(value)))
    if len(groups) < 2:
        return [_curve(run, kind, points) for points in groups.values()]
    by_step: dict[int, list[tuple[float, float]]] = {}
    for place, event, value in recorded:
        by_step.setdefault(int(event["step"]), []).append((place, float(value)))
    scale = len(groups) if total else 1
    whole = [tuple(np.mean(points, axis=0)) for _, points in sorted(by_step.items())]
    of_groups = [] if total else [_curve(run, kind, points, group) for group, points in sorted(groups.items())]
    return [*of_groups, _curve(run, kind, [(x, scale * y) for x, y in whole])]


def _curve(run: int, kind: str, points: Iterable[tuple[float, float]], group: int | None = None) -> PlottedCurve:
    x, y = np.array(sorted(points, key=lambda point: point[0]), np.float64).T
    y[~np.isfinite(y)] = math.nan
    kept = thin(y, MAX_POINTS)
    return PlottedCurve(run, kind, x[kept], y[kept], group)


def thin(y: np.ndarray, n_points: int) -> np.ndarray:
    """Return the indices of at most ``n_points`` values: the least and the largest of each stretch of equal length.

    So that no spike is lost. The first and the last value, and a nan of each stretch that has some, stay too.
    """
    if len(y) <= n_points:
        return np.arange(len(y))
    kept = {0, len(y) - 1}
    for part in np.array_split(np.arange(len(y)), max((n_points - 2) // 3, 1)):
        values = y[part]
        missing = np.isnan(values)
        kept |= {int(part[np.argmax(missing)])} if missing.any() else set()
        if not missing.all():
            kept |= {int(part[np.nanargmin(values)]), int(part[np.nanargmax(values)])}
    return np.array(sorted(kept))


INSTEAD = "--terminal draws in the terminal."

# Okabe and Ito, Color Universal Design: told apart with every kind of colour vision, and in print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
KINDS = ("train", "validation", "test", "data", "params", "")
STYLES = {"train": "-", "validation": ":", "test": "--", "data": "-", "params": "--", "": "-"}
MARKED = ("validation", "test")
MAX_MARKED = 40
"""Curves of tests with more points than this have no markers."""
MAX_COLUMNS = 3
PANEL_INCHES = (3.6, 2.6)
MAX_BARS = 12
# in a terminal
TEXT_COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "white")
MARKERS = ("·", "x", "o", "+", "*", "#", "@")
"""Without colours each curve has a character of its own."""
TEXT_ROWS, BESIDE_TEXT, MIN_TEXT_COLUMNS = 10, 24, 20
"""Size of a panel, and the characters that its vertical axis and the end of the horizontal one take."""

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
    """Return a picture.

    Parameters
    ----------
    panels : sequence of Panel
    names : sequence of str
        Of the runs.
    axis : str
        What curves are drawn over, see `AXES`.
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
    """Return a confusion matrix, with true classes in rows, as a table or picture: ``.csv``, ``.png`` or ``.svg``.

    Raises
    ------
    ConfigError
        matplotlib is not installed, and it is a picture.
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


def draw_bars(charts: Mapping[str, Mapping[str, int]]) -> bytes:
    """Return an SVG with a bar chart for each title: the percentage of each name in the sum of all.

    Names after the first eleven share a bar.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    matplotlib = _matplotlib("an SVG picture")
    figures = require("matplotlib.figure", "plot", "a picture")
    rows, columns = _shape(len(charts))
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = figures.Figure(figsize=(columns * PANEL_INCHES[0], rows * 2.0), layout="constrained")
        all_axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes in all_axes[len(charts) :]:
            axes.remove()
        for i, (axes, (title, counts)) in enumerate(zip(all_axes, charts.items(), strict=False)):
            names, total = list(counts), max(sum(counts.values()), 1)
            shares = {name: 100 * counts[name] / total for name in names[: MAX_BARS - 1]}
            if rest := sum(counts[name] for name in names[MAX_BARS - 1 :]):
                shares[f"≥{names[MAX_BARS - 1]}"] = 100 * rest / total
            bars = axes.bar(list(shares), list(shares.values()), color=COLOURS[i % len(COLOURS)])
            axes.bar_label(bars, ["<1" if 0 < share < 0.5 else f"{share:.0f}" for share in shares.values()])
            axes.set(title=title, yticks=[], xlim=(-0.6, max(len(shares), 6) - 0.4))
    return saved(figure, ".svg")


def saved(figure: Any, suffix: str) -> bytes:
    """Return a figure as a file of a kind, e.g. ``.svg``; equal figures give equal files."""
    with require("matplotlib", "plot", "a picture").rc_context(STYLE):
        out = io.BytesIO()
        # without the time of day
        metadata = {"Date": None} if suffix == ".svg" else {"Software": "singa-dask"}
        figure.savefig(out, format=suffix.removeprefix("."), dpi=140, metadata=metadata)
    return out.getvalue()


def figure_of(panels: Sequence[Panel], names: Sequence[str], axis: str) -> Any:
    """Return a picture as a ``matplotlib.figure.Figure``, which a notebook shows.

    Parameters
    ----------
    panels, names, axis
        See `draw`.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    matplotlib = _matplotlib("a figure")
    figures = require("matplotlib.figure", "plot", "a figure")
    with matplotlib.rc_context(STYLE):
        figure = _fill(figures.Figure(figsize=_size(panels), layout="constrained"), panels, names, axis)

    def png() -> bytes:
        out = io.BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()

    # without pyplot IPython knows no picture of a figure
    figure._repr_png_ = png
    return figure


def show_window(panels: Sequence[Panel], names: Sequence[str], axis: str) -> bool:
    """Show a picture in a window until it is closed; return False if there is no display, or no matplotlib for it."""
    try:
        pyplot = require("matplotlib.pyplot", "plot", "a window")
        matplotlib = _matplotlib("a window")
    except ValueError:
        return False
    with matplotlib.rc_context(STYLE):
        # matplotlib chooses the back end now: one without windows where there is no display
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
    """Return the numbers of rows and columns."""
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
        # above the panel, as waits may be anywhere in it
        axes.legend(lines, [f"for {kind}" for kind in kinds], fontsize=9, loc="lower right", bbox_to_anchor=(1, 0.97),
                    ncols=2, borderaxespad=0)  # fmt: skip


def _style(curve: PlottedCurve, alone: bool) -> dict[str, Any]:
    colour = _colour(curve.kind, curve.run, alone)
    if curve.group is not None:
        return {"color": colour, "linewidth": 0.6, "alpha": 0.35, "linestyle": "-"}
    # tests lie above the rest
    order = 3 if curve.kind in MARKED else 2
    return {
        "color": colour,
        "linestyle": "-" if alone and curve.kind != "test" else STYLES[curve.kind],
        "zorder": order,
    }


def _colour(kind: str, run: int, alone: bool) -> str:
    """Return the colour of a kind of curve if there is one run, else that of the run."""
    order = {"train": 0, "": 0, "data": 0, "test": 1, "params": 1, "validation": 2}
    return COLOURS[(order[kind] if alone else run) % len(COLOURS)]


def _line(axes: Any, kind: str, alone: bool) -> Any:
    colour = _colour(kind, 0, alone) if alone else "#444444"
    (line,) = axes.plot([], [], color=colour, linestyle="-" if alone else STYLES[kind])
    return line


def _add_legend(figure: Any, panels: Sequence[Panel], names: Sequence[str]) -> None:
    """Add a legend above the panels: colours of runs, if there are several, and styles of phases."""
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


# -- in a terminal ---------------------------------------------------------------------------------------


def draw_text(panels: Sequence[Panel], names: Sequence[str], axis: str, width: int, colours: bool) -> str:
    """Return a picture as text: the panels one below the other, each with its legend.

    Parameters
    ----------
    panels, names, axis
        See `draw`.
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
    # of a logarithmic axis the exponents are drawn
    figure.y_ticks_fkt = lambda value, _: f"{10**value if panel.is_log else value:.3g}"
    figure.set_x_limits(min_=0)
    if panel.from_zero:
        figure.set_y_limits(min_=0)
    lines, is_marked = [], not colours and len(curves) > 1
    for i, curve in enumerate(curves):
        colour, marker = TEXT_COLOURS[i % len(TEXT_COLOURS)], MARKERS[i % len(MARKERS)] if is_marked else None
        y = np.log10(curve.y) if panel.is_log else curve.y
        known = np.flatnonzero(np.isfinite(y))
        # a value that is not finite leaves a gap
        for part in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            figure.plot(curve.x[part].tolist(), y[part].tolist(), lc=colour, marker=marker)
        words = [word for word in (names[curve.run] if len(names) > 1 else "", curve.kind) if word]
        text = " ".join([marker or "━", *words])
        lines += [plotille.color(text, fg=colour, mode="names", no_color=not colours)] if words else []
    title = f"{panel.label} (log scale)" if panel.is_log else panel.label
    # without the line for a label of the vertical axis
    return "\n".join([title, *lines, figure.show().partition("\n")[2]])


# -- pages ---------------------------------------------------------------------------------------------------

META = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
PAGE_STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --soft: #5b6169; --line: #d5d9de; --page: #fff; --best: #e3f2e6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8ea; --soft: #a3abb5; --line: #3b424b; --page: #16191d; --best: #1e3a26; }
}
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p { margin: .4rem 0; max-width: 60rem; } .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px; width: 100%; }
th, td { padding: .35rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child, .text { text-align: left; } td.best { background: var(--best); font-weight: 600; }
small { display: block; color: var(--soft); white-space: nowrap; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; display: block; }
@media print {
  :root { --text: #000; --soft: #444; --line: #bbb; --page: #fff; --best: #eee; }
  body { margin: 0; max-width: none; font-size: 11px; } table { font-size: 9.5px; }
  th, td { padding: .2rem .3rem; } figure, svg, tr { break-inside: avoid; }
  .wide { overflow: visible; }
}
"""


def write_page(title: str, parts: Iterable[str]) -> str:
    """Return a page with a title above some parts."""
    head = f"{META}<title>{escape(title)}</title><style>{PAGE_STYLE}</style>"
    body = "\n".join((f"<h1>{escape(title)}</h1>", *parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def picture(svg: bytes) -> str:
    """Return an SVG file as a part of a page: without the XML declaration, the document type and what made it."""
    text = svg.decode()
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def table(
    rows: Sequence[Mapping[str, str]], texts: Collection[str] = (), best: Collection[tuple[str, int]] = ()
) -> str:
    """Return a table; what stands in parentheses at the end of a cell is on a line of its own.

    Parameters
    ----------
    rows : sequence of mapping
        Text by column; a column that a row lacks is empty in it, and one that is empty in all rows is left out.
    texts : collection of str
        Columns that are aligned to the left.
    best : collection of (str, int)
        Column and row of cells that are marked.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row if any(each.get(name) for each in rows)))
    lines = [_table_line("th", columns, columns, texts)]
    for i, row in enumerate(rows):
        cells = [row.get(name, "") for name in columns]
        lines.append(_table_line("td", cells, columns, texts, [name for name in columns if (name, i) in best]))
    return f'<div class="wide"><table><thead>{lines[0]}</thead><tbody>{"".join(lines[1:])}</tbody></table></div>'


def _table_line(
    tag: str, cells: Iterable[str], columns: Iterable[str], texts: Collection[str], best: Collection[str] = ()
) -> str:
    line = ""
    for cell, name in zip(cells, columns, strict=True):
        figure, _, more = cell.partition(" (") if name not in texts and cell.endswith(")") else (cell, "", "")
        kind = ' class="text"' if name in texts else " class=best" if name in best else ""
        small = f"<small>{escape(more[:-1])}</small>" if more else ""
        line += f"<{tag}{kind}>{escape(figure)}{small}</{tag}>"
    return f"<tr>{line}</tr>"
