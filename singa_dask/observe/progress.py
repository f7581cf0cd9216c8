"""Progress of a job: bars on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

import io
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from rich import progress
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from singa_dask.redaction import redact

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


def epoch_of(row: progress.Task, event: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the passes of a row over the records so far, and the seconds until this one ends; None if unknown.

    They follow from its last metrics, and the steps since then.
    """
    epoch = event.get("epoch")
    if not epoch:
        return epoch, None
    a_step = epoch / (event["step"] + 1)
    now = epoch + a_step * max(row.completed - event["step"] - 1, 0)
    steps = min((math.floor(now) + 1 - now) / a_step, row.remaining or 0)
    return now, steps / row.speed if row.speed else None


class GroupBars(progress.Progress):
    """A table of step, bar, time left, epoch, learning rate, speed and metrics, as wide as the terminal allows.

    ``eta`` is the time until the job ends, ``ends`` that until the epoch does.

    Parameters
    ----------
    console : Console
        A terminal.
    n_groups, n_steps : int
        Number of worker groups, and of training steps of each.
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


FREE_LINES = 100
"""Lines of metrics that are printed without a pause."""

# Every other key of a metrics event is a metric of a layer.
NOT_METRICS = frozenset(
    ("event", "phase", "group", "step", "time", "epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
)


def layer_metrics(event: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of layers, losses first."""
    metrics = {name: value for name, value in event.items() if name not in NOT_METRICS}
    return dict(sorted(metrics.items(), key=lambda item: (not item[0].endswith("loss"), item[0])))


def show_metrics(event: Mapping[str, Any]) -> str:
    """Format the metrics of an event as ``loss = 0.4512, accuracy = 0.8594``."""
    return ", ".join(f"{name} = {_shown(value)}" for name, value in layer_metrics(event).items())


def _shown(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4f}"


def metrics_line(event: Mapping[str, Any], n_groups: int = 1, left_s: float | None = None) -> str:
    """Format metrics as in SINGA's log, e.g. ``Train @ step 60: loss = 0.4512  (1234 samples/s, 0:12 left)``."""
    group = f", group {event['group']}" if n_groups > 1 else ""
    rate = [f"{event['samples_per_s']:.0f} samples/s"] if event.get("samples_per_s") else []
    facts = ", ".join([*rate, *([] if left_s is None else [f"{duration(left_s)} left"])])
    line = f"{str(event['phase']).capitalize()} @ step {event['step']}{group}: {show_metrics(event)}"
    return f"{line}  ({facts})" if facts else line


class Progress:
    """Shows nothing, for ``--quiet``; the base class of the others.

    Use it in a ``with`` block; ``on_event`` is called by one thread at a time.
    """

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the job."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class LinesProgress(Progress):
    """Prints a line for each event, for logs and pipes; of many metrics only some.

    After `FREE_LINES` lines of metrics the pauses between them grow with the time that the job has taken, so that a
    long job prints some hundreds. What was left out last is printed at the end.

    Parameters
    ----------
    console : Console
    n_groups, n_steps : int
        Number of worker groups, and of training steps of each; with several groups, lines name the group. Without
        steps, lines do not say how much time is left.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self, console: Console, n_groups: int = 1, n_steps: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console
        self.n_groups = n_groups
        self._n_steps = n_steps
        self._clock = clock
        self._began = clock()
        self._said_at = self._began
        self._n_lines = 0
        # of each phase and group: the line that was left out last
        self._left_out: dict[tuple[str, int], str] = {}
        # time and step of the first training metrics of each group
        self._first: dict[int, tuple[float, int]] = {}

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Print metrics, checkpoints and warnings."""
        kind = event["event"]
        if kind == "started":
            self._n_steps = event.get("train_steps", self._n_steps)  # of epochs it is not known before
        elif kind == "metrics":
            self._say_metrics(event)
        elif kind == "checkpoint":
            self.say(f"Checkpoint @ step {event['step']}: {event['url']}")
        elif kind in ("notice", "queued"):
            self.say(event["message"])
        # an error of a unit ends the job, and is shown once at its end
        elif kind == "log" and event["level"] == "WARNING":
            self.say(f"{event['unit']}: {event['message']}")

    def _say_metrics(self, event: Mapping[str, Any]) -> None:
        now, key = self._clock(), (event["phase"], event["group"])
        line = metrics_line(event, self.n_groups, self._left_s(event))
        if self._n_lines >= FREE_LINES and now - self._said_at < (now - self._began) / FREE_LINES:
            if self._n_lines == FREE_LINES:
                self.say("Fewer lines from here on; metrics.jsonl has all.")
                self._n_lines += 1
            self._left_out[key] = line
            return
        self._left_out.pop(key, None)
        self._n_lines += 1
        self._said_at = now
        self.say(line)

    def _left_s(self, event: Mapping[str, Any]) -> float | None:
        """Return the seconds that a group has left to train; None if they are unknown."""
        if event["phase"] != "train" or not self._n_steps:
            return None
        # events that were missed for a while come all at once
        began, first = self._first.setdefault(event["group"], (event["time"], event["step"]))
        done = event["step"] - first
        return (event["time"] - began) / done * (self._n_steps - 1 - event["step"]) if done > 0 else None

    def __exit__(self, *error: object) -> None:
        for line in self._left_out.values():
            self.say(line)

    def say(self, line: str) -> None:
        """Print a line without markup and without wrapping."""
        self.console.print(Text(redact(line)), soft_wrap=True)


class BarProgress(LinesProgress):
    """Shows a live table with a bar for each worker group; other events are printed above it.

    Parameters
    ----------
    console : Console
        A terminal.
    n_groups, n_steps : int
        Number of worker groups, and of training steps of each.
    run_url : str
        Run directory; URLs below it are shown relative to it.

    Attributes
    ----------
    bars : GroupBars
    """

    def __init__(self, console: Console, n_groups: int, n_steps: int, run_url: str = "") -> None:
        super().__init__(console, n_groups)
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

    def __enter__(self) -> BarProgress:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()
        super().__exit__(*error)


def join_if_fits(first: str, second: str, console: Console | None = None) -> str:
    """Join two parts of a message by ``; ``, or by a line break on a terminal that is too narrow."""
    console = console or Console(stderr=True)
    line = f"{first}; {second}"
    return f"{first}\n{second}" if console.is_terminal and len(line) > console.width else line


def start_progress(
    n_groups: int, n_steps: int, quiet: bool = False, console: Console | None = None, run_url: str = ""
) -> Progress:
    """Return a `Progress` that shows nothing, bars, or lines.

    Parameters
    ----------
    n_groups, n_steps : int
        Number of worker groups, and of training steps of each.
    quiet : bool
        Show nothing.
    console : Console, optional
        Output; stderr by default.
    run_url : str
        Run directory.
    """
    # the kernel of a notebook sets FORCE_COLOR for its children, whose stderr is a pipe
    on_terminal = None if sys.stderr.isatty() else False
    console = console or Console(stderr=True, highlight=False, force_interactive=on_terminal)
    if quiet:
        return Progress()
    # False if the cursor cannot be moved, as with TERM=dumb
    if console.is_interactive:
        return BarProgress(console, n_groups, n_steps, run_url)
    return LinesProgress(console, n_groups, n_steps)


WIDTH = 100
"""Characters of a line; columns that do not fit are left out, as on a terminal."""
MAX_LINES = 12
"""Lines that are kept below the table; later ones replace the first."""
UPDATE_S = 0.25
# seen on a light and on a dark page
COLOURS = Theme({"bar.complete": "#1976d2", "bar.finished": "#388e3c", "bar.back": "#c0c0c0"})
FORMAT = '<pre style="line-height:1.35;margin:0">{code}</pre>'


def notebook_shell() -> Any:
    """Return the shell of IPython if this process is the kernel of a notebook, else None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


class NotebookProgress(BarProgress):
    """Shows the table of `BarProgress` below a cell, and the latest other events below it.

    It is made in the thread that executes the cell; events may come in another one, and also after the cell has ended.

    Parameters
    ----------
    n_groups, n_steps : int
        Number of worker groups, and of training steps of each.
    run_url : str
        Run directory; URLs below it are shown relative to it.
    show : callable, optional
        Takes what is to be shown, a dict from mime type to text; by default the output of the cell.
    clock : callable
        Returns seconds.
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
        """Take an event; what is shown changes every quarter of a second at most."""
        with self._lock:
            super().on_event(event)
            if self._time() - self._shown_at >= UPDATE_S:
                self._update()

    def say(self, line: str) -> None:
        """Keep a line for the next update."""
        self._lines.append(redact(line))

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
    """Return what rich prints, as HTML and as text."""
    console = Console(
        file=io.StringIO(), width=WIDTH, record=True, theme=COLOURS, force_jupyter=False, force_terminal=True
    )
    for part in parts:
        console.print(part, soft_wrap=True, highlight=False)
    html = console.export_html(inline_styles=True, code_format=FORMAT, clear=False)
    return {"text/html": html, "text/plain": console.export_text().rstrip("\n")}


def _cell_output() -> Callable[[dict[str, str]], None]:
    """Return what replaces a part of the output of the cell that runs now."""
    display = sys.modules["IPython"].display
    handle = display.DisplayHandle()
    handle.display({"text/plain": ""}, raw=True)
    return lambda content: handle.update(content, raw=True)
