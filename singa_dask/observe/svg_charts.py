"""Charts as SVG text to stand in an HTML page, which gives colours for text and lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

# after Okabe and Ito: told apart by colour-blind people too, on white and on black
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 26, 40
BAR_WIDTH, BAR_HEIGHT = 250, 150
MAX_BARS = 12


@dataclass(frozen=True)
class Series:
    """One line of a chart, and the band around it.

    Attributes
    ----------
    name, colour : str
    x, y, low, high : (N,) arrays
        Points of the line; the edges of the band, equal to ``y`` where there is none.
    """

    name: str
    colour: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


class _Axis:
    """Maps values to positions in pixels.

    Parameters
    ----------
    low, high : float
        Values at the ends.
    start, end : float
        Pixels there.
    log : bool
    """

    def __init__(self, low: float, high: float, start: float, end: float, log: bool = False) -> None:
        self._log = log and low > 0
        self._low, self._high = (math.log10(low), math.log10(high)) if self._log else (low, high)
        if self._high - self._low < 1e-12:
            self._low, self._high = self._low - 0.5, self._high + 0.5
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        at = math.log10(max(value, 1e-300)) if self._log else value
        share = (at - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[float]:
        """Return round values within the axis."""
        if not self._log:
            return _round_values(self._low, self._high)
        exponents = range(math.floor(self._low), math.ceil(self._high) + 1)
        for digits in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
            found = [digit * 10.0**exponent for exponent in exponents for digit in digits]
            found = [value for value in found if self._low <= math.log10(value) <= self._high]
            if len(found) >= 3:
                break
        return found


def _round_values(low: float, high: float, n: int = 5) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / n))
    step = next(step * k for k in (1, 2, 5, 10) if (high - low) / (step * k) <= n)
    return [round(i * step, 12) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Format a number for a tick or a table, e.g. ``160k``, ``0.95``."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.4g}"


def line_chart(
    title: str, x_label: str, series: Sequence[Series], *, log: bool = False, mark: float | None = None
) -> str:
    """Draw lines.

    Parameters
    ----------
    title, x_label : str
    series : sequence of Series
    log : bool
        Logarithmic values, if all are above 0. Else the lowest seventh of them, how a run begins, may be cut off.
    mark : float, optional
        Value of a horizontal line.
    """
    y = np.concatenate([each.y for each in series])
    highs = [float(np.max(each.high)) for each in series]
    log = log and float(y.min()) > 0
    low, high = float(y.min() if log else np.quantile(y, 0.15)), max([*highs, *([mark] if mark is not None else [])])
    low, high = (low / 1.05, high * 1.05) if log else (low, high + 0.05 * (high - low))
    x_axis = _Axis(0.0, max(float(np.max(each.x)) for each in series), LEFT, WIDTH - RIGHT)
    y_axis = _Axis(low, high, HEIGHT - BOTTOM, TOP, log)
    box = (LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM)
    size = 'x="{}" y="{}" width="{}" height="{}"'.format(*box)
    # an SVG within another one cuts off what is outside
    parts = [_grid(x_axis, y_axis), '<svg {} viewBox="{} {} {} {}">'.format(size, *box)]
    if mark is not None:
        parts.append(f'<path class="mark" d="M{LEFT} {y_axis(mark)}H{WIDTH - RIGHT}"/>')
    for each in series:
        edge = [*zip(each.x, each.high, strict=True), *reversed([*zip(each.x, each.low, strict=True)])]
        parts.append(f'<path d="{_path(edge, x_axis, y_axis)}Z" fill="{each.colour}" fill-opacity=".1"/>')
    for each in series:
        line = _path([*zip(each.x, each.y, strict=True)], x_axis, y_axis)
        name = f"<title>{escape(each.name)}</title>"
        parts.append(f'<path class="line" d="{line}" stroke="{each.colour}">{name}</path>')
    parts.append("</svg>")
    parts.append(f'<text class="title" x="{LEFT}" y="14">{escape(title)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(x_label)}</text>')
    return _svg(WIDTH, HEIGHT, parts, f"{title} by {x_label}")


def _grid(x_axis: _Axis, y_axis: _Axis) -> str:
    parts = []
    for value in y_axis.ticks():
        at = y_axis(value)
        parts.append(f'<path class="grid" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{short(value)}</text>')
    for value in x_axis.ticks():
        parts.append(f'<text x="{x_axis(value)}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{short(value)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return "".join(parts)


def _path(points: Sequence[tuple[float, float]], x_axis: _Axis, y_axis: _Axis) -> str:
    return "M" + "L".join(f"{x_axis(x)} {y_axis(y)}" for x, y in points)


def bar_chart(title: str, counts: Mapping[str, int], colour: str) -> str:
    """Draw the share of each name among all, as bars from left to right; those after the first twelve are one bar."""
    names = list(counts)
    shares = {name: counts[name] / max(sum(counts.values()), 1) for name in names[: MAX_BARS - 1]}
    if rest := sum(counts[name] for name in names[MAX_BARS - 1 :]):
        shares[f"≥{names[MAX_BARS - 1]}"] = rest / sum(counts.values())
    slot = BAR_WIDTH / max(len(shares), 6)
    base, top = BAR_HEIGHT - 20, 36
    parts = [f'<text class="title" x="0" y="14">{escape(title)}</text>']
    for i, (name, share) in enumerate(shares.items()):
        height = round(share * (base - top), 1)
        middle = round((i + 0.5) * slot, 1)
        parts.append(
            f'<rect x="{i * slot + 2:.1f}" y="{base - height:.1f}" width="{slot - 4:.1f}" height="{height}" '
            f'fill="{colour}"/>'
            f'<text x="{middle}" y="{base + 15}" text-anchor="middle">{escape(name)}</text>'
            f'<text x="{middle}" y="{base - height - 4:.1f}" text-anchor="middle">{_percent(share)}</text>'
        )
    parts.append(f'<path class="axis" d="M0 {base}H{BAR_WIDTH}"/>')
    return _svg(BAR_WIDTH, BAR_HEIGHT, parts, title)


def _percent(share: float) -> str:
    return "&lt;1" if 0 < share < 0.005 else f"{100 * share:.0f}"


def _svg(width: int, height: int, parts: Sequence[str], label: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
