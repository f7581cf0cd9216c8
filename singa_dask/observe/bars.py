"""GroupBars: a live table of a training run on a terminal, with a progress bar for each worker group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from rich import progress
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

MAX_ROWS = 8
"""With more worker groups than this, one row stands for all of them."""
BAR_WIDTHS = (5, 30)
REFRESH_PER_S = 4

ECHO = 2
"""Columns that the bar leaves free: a terminal echoes Ctrl-C as ``^C`` after the last row. Without room for it the
cursor would be a line lower than rich expects, and the header of the table would stay."""

BAR = "bar"
UNKNOWN = "-"
KEPT_METRICS = 2
"""Number of metrics that are shown however narrow the terminal is."""
WAITS = 1000
"""From this rank on, a column is dropped rather than shorten the bar."""


class _Column(NamedTuple):
    """A column: header, rank, and text of each row. The column of the highest rank is dropped first, rank 0 never."""

    name: str
    rank: int
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.name, *self.cells)))


class Epoch(NamedTuple):
    """Passes over the records so far, and seconds until this one ends; None if unknown."""

    now: float | None
    ends_s: float | None

    @classmethod
    def of(cls, row: progress.Task, event: Mapping[str, Any]) -> Epoch:
        """Return the epoch of a row, from its last metrics and the steps since then."""
        epoch = event.get("epoch")
        if not epoch:
            return cls(epoch, None)
        a_step = epoch / (event["step"] + 1)
        now = epoch + a_step * max(row.completed - event["step"] - 1, 0)
        steps = min((math.floor(now) + 1 - now) / a_step, row.remaining or 0)
        return cls(now, steps / row.speed if row.speed else None)


class GroupBars(progress.Progress):
    """A table of step, bar, time left, epoch, learning rate, speed and metrics, as wide as the terminal allows.

    ``eta`` is the time until the job ends, ``ends`` that until the epoch does.

    Parameters
    ----------
    console : Console
        A terminal.
    n_groups, n_steps : int
        Number of worker groups, and of training steps of each.
    metrics : callable
        Returns the metrics of an event, by name, in the order of their columns.
    """

    def __init__(
        self, console: Console, n_groups: int, n_steps: int, metrics: Callable[[Mapping[str, Any]], Mapping[str, float]]
    ) -> None:
        self._terminal = console
        self._metrics = metrics
        self._n_groups = n_groups
        self._merged = n_groups > MAX_ROWS
        self._steps = dict.fromkeys(range(n_groups), 0)
        self._events: dict[int, Mapping[str, Any]] = {}
        super().__init__(console=console, refresh_per_second=REFRESH_PER_S)
        names = [f"all {n_groups}"] if self._merged else [str(group) for group in range(n_groups)]
        self._rows = [self.add_task(name, total=n_steps) for name in names]

    def show_step(self, group: int, step: int) -> None:
        """Show that a group has done ``step`` steps."""
        self._steps[group] = max(step, self._steps.get(group, 0))
        if self._merged:
            self.update(self._rows[0], completed=min(self._steps.values()))
        else:
            self.update(self._rows[group], completed=self._steps[group])

    def show_metrics(self, event: Mapping[str, Any]) -> None:
        """Show the training metrics of a group."""
        self._events[event["group"]] = event
        self.show_step(event["group"], event["step"] + 1)

    def make_tasks_table(self, tasks: Iterable[progress.Task]) -> Table:
        """Return the table with the columns that fit; rich calls this for each refresh."""
        rows = list(tasks)
        columns, width = fit(self._columns(rows), self._terminal.width)
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for column in columns:
            table.add_column(column.name, justify="left" if column.name == BAR else "right", no_wrap=True)
        for i, row in enumerate(rows):
            bar = ProgressBar(total=row.total or 1, completed=row.completed, width=width)
            cells: list[RenderableType] = [bar if each.name == BAR else each.cells[i] for each in columns]
            table.add_row(*cells)
        return table

    def _columns(self, rows: list[progress.Task]) -> list[_Column]:
        events = [self._event_of(i) for i in range(len(rows))]

        def values(name: str, rank: int, key: str, form: str) -> _Column:
            return _Column(name, rank, [number(event.get(key), form) for event in events])

        metrics = [self._metrics(event) for event in events]
        epochs = [Epoch.of(row, event) for row, event in zip(rows, events, strict=True)]
        names = dict.fromkeys(name for each in metrics for name in each)
        columns = [
            _Column("group", 0, [row.description for row in rows]),
            _Column("step", 0, [f"{row.completed:.0f}/{row.total or 0:.0f}" for row in rows]),
            _Column(BAR, 2, []),
            _Column("time", 7, [duration(row.elapsed) for row in rows]),
            _Column("eta", 1, [duration(row.time_remaining) for row in rows]),
            _Column("epoch", 4, [number(each.now, ".1f") for each in epochs]),
            _Column("ends", 5, [duration(each.ends_s) for each in epochs]),
            values("lr", 6, "lr", ".3g"),
            values("samples/s", 3, "samples_per_s", ".0f"),
            *(
                _Column(name, 0 if i < KEPT_METRICS else 8 + i, [number(each.get(name), ".4f") for each in metrics])
                for i, name in enumerate(names)
            ),
            values("data ms", WAITS, "wait_data_ms", ".1f"),
            values("params ms", WAITS + 1, "wait_params_ms", ".1f"),
        ]
        shown = [column for column in columns if column.name in (BAR, "eta") or set(column.cells) != {UNKNOWN}]
        return shown if self._n_groups > 1 else shown[1:]

    def _event_of(self, row: int) -> Mapping[str, Any]:
        """Return the last training metrics of a row: of its group, or means over all groups and their total speed."""
        if not self._merged:
            return self._events.get(row, {})
        events = list(self._events.values())
        names = dict.fromkeys(name for event in events for name in event)
        numbers = {
            name: [event[name] for event in events if isinstance(event.get(name), int | float)] for name in names
        }
        means = {name: sum(values) / len(values) for name, values in numbers.items() if values}
        if "samples_per_s" in means:
            means["samples_per_s"] = sum(numbers["samples_per_s"])
        return means


def fit(columns: list[_Column], width: int) -> tuple[list[_Column], int]:
    """Drop columns until the others fit, separated by a space; return them, and the width of the bar."""
    for rank in sorted((column.rank for column in columns), reverse=True):
        others = [column.width for column in columns if column.name != BAR]
        room = width - sum(others) - len(columns) + 1
        shortest = BAR_WIDTHS[rank >= WAITS] + ECHO
        if room >= (shortest if len(others) < len(columns) else 0):
            return columns, min(room - ECHO, BAR_WIDTHS[1])
        columns = [column for column in columns if not column.rank or column.rank < rank]
    return columns, 0


def duration(seconds: float | None) -> str:
    """Format seconds as ``2:05`` or ``1:02:05``; a dash if unknown."""
    if seconds is None:
        return UNKNOWN
    text = str(timedelta(seconds=math.ceil(seconds)))
    return text.removeprefix("0:").removeprefix("0")


def number(value: float | None, form: str) -> str:
    """Format a number; a dash if there is none."""
    return UNKNOWN if value is None else f"{value:{form}}"
