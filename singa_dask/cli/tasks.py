"""Progress of the tasks of a conversion or an inference."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from singa_dask.data.convert.tasks import reporting
from singa_dask.observe.event_texts import duration
from singa_dask.shown import STDERR
from singa_dask.shown import shown as as_shown

# name of a step of a conversion or inference -> the words for it in progress messages
DONE = {
    "inference": "computed",
    "labels": "labels read",
    "manifest": "checksums",
    "scatter": "shuffled",
    "shard": "written",
    "verify": "verified",
}
LINE_S = 5.0
"""Minimum number of seconds between lines."""
MANY_LINES = 50
"""A pause between lines lasts at least this fraction of the time so far."""


R = TypeVar("R")


def shown(
    run: Callable[[Sequence[Any]], Iterable[R]],
    index_of: Callable[[R], int],
    quiet: bool = False,
    console: Console | None = None,
) -> Callable[[Sequence[Any]], Iterable[R]]:
    """Return a runner of tasks that shows progress on ``console``, by default stderr, unless ``quiet``.

    Tasks have a ``step``, a key of `DONE`, an ``index`` among the tasks of the step, and ``n_records``. ``index_of``
    returns the index of the task that has returned a result.
    """
    if quiet:
        return run

    def run_shown(tasks: Sequence[Any]) -> Iterator[R]:
        if not tasks:
            return
        sizes = {task.index: task.n_records for task in tasks}
        counter = RecordCounter(DONE[tasks[0].step], sum(sizes.values()), console)
        with counter, reporting(counter.advance):
            done = 0
            for result in run(tasks):
                done += sizes[index_of(result)]
                counter.advance(done - counter.done)
                yield result

    return run_shown


@contextlib.contextmanager
def reported(text: str, total: int, quiet: bool = False) -> Iterator[None]:
    """Show how many of ``total`` records are done, as this thread reports them."""
    if quiet:
        yield
        return
    with RecordCounter(text, total) as counter, reporting(counter.advance):
        yield


class RecordCounter:
    """Context manager that shows how many of ``total`` records are done: a bar on a terminal, else occasional lines."""

    def __init__(self, text: str, total: int, console: Console | None = None) -> None:
        self._text, self._total, self._console = text, total, console or Console(file=STDERR, highlight=False)
        self._start = self._last = time.monotonic()
        self.done = 0.0
        self._bar: Progress | None = None
        if self._console.is_interactive:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(text, total=total)

    def advance(self, n: float) -> None:
        self.done += n
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done)
            return
        now = time.monotonic()
        took = now - self._start
        # print lines less often the longer the task runs
        if not n or now - self._last < max(LINE_S, took / MANY_LINES):
            return
        self._last = now
        rate = self.done / max(took, 1e-9)
        left = duration((self._total - self.done) / max(rate, 1e-9))
        self.say(f"{self._text}: {self.done:.0f} of {self._total} records, {rate:.0f}/s, {left} left")

    def say(self, line: str) -> None:
        self._console.print(Text(as_shown(line)), soft_wrap=True)

    def __enter__(self) -> RecordCounter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
