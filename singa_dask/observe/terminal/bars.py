"""Progress bars of a job on a terminal, and below a cell of a notebook."""

from __future__ import annotations

import io
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rich import progress
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from singa_dask.observe.event_texts import UNKNOWN, duration, layer_metrics, number
from singa_dask.observe.terminal.progress import LinesProgress
from singa_dask.shown import shown

MAX_ROWS = 8
"""With more worker groups than this, one row shows all of them."""
BAR_WIDTHS = (5, 30)
REFRESH_PER_S = 4

ECHO = 2
"""Number of columns on the right that stay free for the ``^C`` that a terminal echoes after the last row.

Without these columns, the cursor would be a line lower than rich expects, and the header of the table would stay
behind."""

BAR = "bar"
KEPT_METRICS = 2
"""Number of metrics that are shown even on the narrowest terminal."""
WAITS = 1000
"""Columns of at least this rank are dropped before the bar is shortened."""


class _Column(NamedTuple):
    """A column of the table.

    If the terminal is too narrow, columns with the highest ``rank`` are dropped first. Rank 0 is never dropped.

    ``name`` is the header, and ``cells`` are the texts of the rows.
    """

    name: str
    rank: int
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.name, *self.cells)))


def epoch_of(row: progress.Task, event: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return how many epochs a row has done, and the seconds until its current epoch ends.

    Unknown values are None. Both values are extrapolated from the last metrics of the row (``event``) by the steps
    since then.
    """
    epoch = event.get("epoch")
    if not epoch:
        return epoch, None
    a_step = epoch / (event["step"] + 1)
    now = epoch + a_step * max(row.completed - event["step"] - 1, 0)
    steps = min((math.floor(now) + 1 - now) / a_step, row.remaining or 0)
    return now, steps / row.speed if row.speed else None


class GroupBars(progress.Progress):
    """A table of steps, bars, times, rates and metrics, as wide as the terminal allows.

    The column ``eta`` has the time until the job ends, and ``ends`` the time until the epoch ends. See `LinesProgress`
    for the parameters.
    """

    def __init__(self, console: Console, n_groups: int, n_steps: int) -> None:
        self._terminal = console
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
        """Return the table with the columns that fit. rich calls this method for each refresh."""
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

        metrics = [layer_metrics(event) for event in events]
        epochs = [epoch_of(row, event) for row, event in zip(rows, events, strict=True)]
        names = dict.fromkeys(name for each in metrics for name in each)
        columns = [
            _Column("group", 0, [row.description for row in rows]),
            _Column("step", 0, [f"{row.completed:.0f}/{row.total or 0:.0f}" for row in rows]),
            _Column(BAR, 2, []),
            _Column("time", 7, [duration(row.elapsed) for row in rows]),
            _Column("eta", 1, [duration(row.time_remaining) for row in rows]),
            _Column("epoch", 4, [number(now, ".1f") for now, _ in epochs]),
            _Column("ends", 5, [duration(ends) for _, ends in epochs]),
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
        """Return the last training metrics of a row.

        A row of all groups has the means over the groups, and the sum of their speeds.
        """
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
    """Return the columns that fit beside each other, separated by spaces, and the width of the bar."""
    for rank in sorted((column.rank for column in columns), reverse=True):
        others = [column.width for column in columns if column.name != BAR]
        room = width - sum(others) - len(columns) + 1
        shortest = BAR_WIDTHS[rank >= WAITS] + ECHO
        if room >= (shortest if len(others) < len(columns) else 0):
            return columns, min(room - ECHO, BAR_WIDTHS[1])
        columns = [column for column in columns if not column.rank or column.rank < rank]
    return columns, 0


class BarProgress(LinesProgress):
    """Shows a live table with a bar for each worker group; other events are printed above it.

    URLs below ``run_url`` are shown relative to it. For the other parameters see `LinesProgress`.
    """

    def __init__(self, console: Console, n_groups: int, n_steps: int, run_url: str = "") -> None:
        super().__init__(console.file, n_groups)
        self.console = console
        self._run_url = run_url
        self.bars = GroupBars(console, n_groups, n_steps)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Show steps and training metrics in the table; print everything else."""
        if event["event"] == "metrics" and event["phase"] == "train":
            self.bars.show_metrics(event)
        elif event["event"] == "started" and "train_steps" in event:
            for row in self.bars.task_ids:
                self.bars.update(row, total=event["train_steps"])
        elif event["event"] == "steps":
            for group, step in event["steps"].items():
                self.bars.show_step(int(group), step)
        elif event["event"] == "checkpoint":
            super().on_event({**event, "url": event["url"].removeprefix(f"{self._run_url}/")})
        else:
            super().on_event(event)

    def say(self, line: str) -> None:
        """Print a line above the table, without markup and without wrapping."""
        self.console.print(Text(shown(line)), soft_wrap=True)

    def __enter__(self) -> BarProgress:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()
        super().__exit__(*error)


WIDTH = 100
"""Width of the table in a notebook, in characters. Columns that do not fit are dropped, as on a terminal."""
MAX_LINES = 12
"""Maximum number of lines below the table. New lines replace the oldest."""
UPDATE_S = 0.25
# colours that are legible on light and dark pages
COLOURS = Theme({"bar.complete": "#1976d2", "bar.finished": "#388e3c", "bar.back": "#c0c0c0"})
FORMAT = '<pre style="line-height:1.35;margin:0">{code}</pre>'


class NotebookProgress(BarProgress):
    """Shows the table of `BarProgress` below a notebook cell, and the latest other events below the table.

    Create the object in the thread that executes the cell. Events may come from another thread, also after the cell has
    ended.

    Parameters
    ----------
    show : callable, optional
        Displays a dict from MIME type to text. By default it replaces the output of the cell.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self,
        n_groups: int,
        n_steps: int,
        run_url: str = "",
        show: Callable[[dict[str, str]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        hidden = Console(file=io.StringIO(), width=WIDTH, force_jupyter=False, force_terminal=False)
        super().__init__(hidden, n_groups, n_steps, run_url)
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._show = show or _cell_output()
        self._time = clock
        self._shown_at = clock()
        self._lock = threading.Lock()
        self._show(_rendered(Text("starting ...")))

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event. The display changes at most every `UPDATE_S` seconds."""
        with self._lock:
            super().on_event(event)
            if self._time() - self._shown_at >= UPDATE_S:
                self._update()

    def say(self, line: str) -> None:
        """Keep a line for the next update."""
        self._lines.append(shown(line))

    def __enter__(self) -> NotebookProgress:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            for line in self._left_out.values():
                self.say(line)
            for row in self.bars.task_ids:
                self.bars.stop_task(row)
            self._update()

    def _update(self) -> None:
        self._shown_at = self._time()
        table = self.bars.make_tasks_table(self.bars.tasks)
        self._show(_rendered(table, *map(Text, self._lines)))


def _rendered(*parts: RenderableType) -> dict[str, str]:
    """Return what rich prints for ``parts``, as HTML and as text."""
    console = Console(
        file=io.StringIO(), width=WIDTH, record=True, theme=COLOURS, force_jupyter=False, force_terminal=True
    )
    for part in parts:
        console.print(part, soft_wrap=True, highlight=False)
    html = console.export_html(inline_styles=True, code_format=FORMAT, clear=False)
    return {"text/html": html, "text/plain": console.export_text().rstrip("\n")}


def _cell_output() -> Callable[[dict[str, str]], None]:
    """Return a function that replaces a part of the output of the current cell."""
    display = sys.modules["IPython"].display
    handle = display.DisplayHandle()
    handle.display({"text/plain": ""}, raw=True)
    return lambda content: handle.update(content, raw=True)
