"""Tasks of a conversion or an inference, run here or on Dask, with progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from singa_dask.data.convert.tasks import reporting

__all__ = ["shown"]

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


class Step(Protocol):
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


T = TypeVar("T", bound=Step)
R = TypeVar("R")


def shown(
    run: Callable[[Sequence[T]], Iterable[R]],
    index_of: Callable[[R], int],
    quiet: bool = False,
    console: Console | None = None,
    line_s: float = LINE_S,
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
    line_s : float
        Seconds from a line to the next.
    """
    console = console or Console(stderr=True, highlight=False)
    if quiet:
        return run

    def run_shown(tasks: Sequence[T]) -> Iterator[R]:
        if not tasks:
            return
        sizes = {task.index: task.n_records for task in tasks}
        text, total = DONE[tasks[0].step], sum(sizes.values())
        show = _Bar(console, text, total) if console.is_interactive else _Lines(console, text, total, line_s)
        with show, reporting(show.advance):
            done = 0
            for result in run(tasks):
                done += sizes[index_of(result)]
                show.advance(done - show.done)
                yield result

    return run_shown


class _Lines:
    """A line every few seconds."""

    def __init__(self, console: Console, text: str, total: int, line_s: float) -> None:
        self._console, self._text, self._total, self._line_s = console, text, total, line_s
        self._start = self._last = time.monotonic()
        self.done = 0.0

    def advance(self, n: float) -> None:
        self.done += n
        now = time.monotonic()
        if not n or now - self._last < self._line_s:
            return
        self._last = now
        rate = self.done / max(now - self._start, 1e-9)
        left = timedelta(seconds=math.ceil((self._total - self.done) / max(rate, 1e-9)))
        line = f"{self._text}: {self.done:.0f} of {self._total} records, {rate:.0f}/s, {left} left"
        self._console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Bar:
    """A bar, which is removed at the end."""

    def __init__(self, console: Console, text: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(None), _Records(), TimeRemainingColumn(compact=True))
        self._progress = Progress(*columns, console=console, transient=True, expand=True)
        self._task = self._progress.add_task(text, total=total)
        self.done = 0.0

    def advance(self, n: float) -> None:
        self.done += n
        self._progress.update(self._task, completed=self.done)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


class _Records(ProgressColumn):
    """Records done, their total, and records per second."""

    def render(self, task: Task) -> Text:
        speed = "" if task.speed is None else f"  {task.speed:.0f}/s"
        return Text(f"{task.completed:.0f}/{task.total or 0:.0f}{speed}")
