"""Tasks of a conversion or an inference, run here or on Dask, with progress."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from singa_dask.data.convert.tasks import reporting
from singa_dask.observe.progress import BAR_WIDTHS, duration
from singa_dask.redaction import redact

# what becomes of the records in the steps of a conversion, or in an inference
DONE = {
    "inference": "computed",
    "labels": "labels read",
    "manifest": "checksums",
    "scatter": "shuffled",
    "shard": "written",
    "verify": "verified",
}
LINE_S = 5.0
BESIDE_BAR = 28
"""Columns that speed, time left and spaces take."""
MANY_LINES = 50
"""After so many lines a pause lasts this fraction of the time so far."""


class ShownTask(Protocol):
    """A task; ``step`` is a key of DONE."""

    @property
    def step(self) -> str:
        """The step that it is part of."""

    @property
    def index(self) -> int:
        """Its index among the tasks of the step."""

    @property
    def n_records(self) -> int:
        """Number of its records."""


T = TypeVar("T", bound=ShownTask)
R = TypeVar("R")


def shown(
    run: Callable[[Sequence[T]], Iterable[R]],
    index_of: Callable[[R], int],
    quiet: bool = False,
    console: Console | None = None,
    line_s: float | None = None,
) -> Callable[[Sequence[T]], Iterable[R]]:
    """Return a runner of tasks that shows progress: a bar on a terminal, else a line every few seconds.

    Both show records done, records a second, and the time left.

    Parameters
    ----------
    run : function
    index_of : function
        Returns the index of the task that has returned something.
    quiet : bool
        Show nothing.
    console : Console, optional
        Where to; stderr if it is not given.
    line_s : float, optional
        Seconds from a line to the next; `LINE_S` by default.
    """
    console = console or Console(stderr=True, highlight=False)
    if quiet:
        return run

    def run_shown(tasks: Sequence[T]) -> Iterator[R]:
        if not tasks:
            return
        sizes = {task.index: task.n_records for task in tasks}
        show = counted(DONE[tasks[0].step], sum(sizes.values()), console, line_s)
        with show, reporting(show.advance):
            done = 0
            for result in run(tasks):
                done += sizes[index_of(result)]
                show.advance(done - show.done)
                yield result

    return run_shown


def counted(text: str, total: int, console: Console | None = None, line_s: float | None = None) -> _Lines | _Bar:
    """Return what shows how many of ``total`` records are done, as `shown` does: enter it, and call ``advance``."""
    console = console or Console(stderr=True, highlight=False)
    if console.is_interactive:
        return _Bar(console, text, total)
    return _Lines(console, text, total, LINE_S if line_s is None else line_s)


@contextlib.contextmanager
def reported(text: str, total: int, quiet: bool = False) -> Iterator[None]:
    """Show how many of ``total`` records are done, from what this thread reports."""
    if quiet:
        yield
        return
    with counted(text, total) as show, reporting(show.advance):
        yield


class _Lines:
    """A line every few seconds, and more rarely the longer it takes."""

    def __init__(self, console: Console, text: str, total: int, line_s: float) -> None:
        self._console, self._text, self._total, self._line_s = console, text, total, line_s
        self._start = self._last = time.monotonic()
        self.done = 0.0

    def advance(self, n: float) -> None:
        self.done += n
        now = time.monotonic()
        took = now - self._start
        if not n or now - self._last < max(self._line_s, took / MANY_LINES):
            return
        self._last = now
        rate = self.done / max(took, 1e-9)
        left = duration((self._total - self.done) / max(rate, 1e-9))
        self.say(f"{self._text}: {self.done:.0f} of {self._total} records, {rate:.0f}/s, {left} left")

    def say(self, line: str) -> None:
        self._console.print(Text(redact(line)), soft_wrap=True)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Bar:
    """A bar, which is removed at the end."""

    def __init__(self, console: Console, text: str, total: int) -> None:
        width = min(console.width - len(text) - 2 * len(str(total)) - BESIDE_BAR, BAR_WIDTHS[1])
        bar = [BarColumn(width)] if width >= BAR_WIDTHS[0] else []
        columns = (TextColumn("{task.description}"), *bar, _Records())
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task(text, total=total)
        self.done = 0.0

    def advance(self, n: float) -> None:
        self.done += n
        self._progress.update(self._task, completed=self.done)

    def say(self, line: str) -> None:
        self._progress.console.print(Text(redact(line)), soft_wrap=True)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


class _Records(ProgressColumn):
    """Records done, their total, records per second, and the time left."""

    def render(self, task: Task) -> Text:
        speed = "" if task.speed is None else f"  {task.speed:.0f}/s"
        left = "" if task.time_remaining is None else f"  {duration(task.time_remaining)} left"
        return Text(f"{task.completed:.0f}/{task.total or 0:.0f}{speed}{left}", no_wrap=True)
