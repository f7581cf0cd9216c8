"""Show the progress of a job as lines; `bars` shows it on a terminal and in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from singa_dask.lazy import LazyModule
from singa_dask.observe.event_texts import metrics_line
from singa_dask.shown import STDERR, shown

if TYPE_CHECKING:
    from rich.console import Console

bars, rich_console = LazyModule("singa_dask.observe.terminal.bars"), LazyModule("rich.console")

FREE_LINES = 100
"""Number of lines of metrics that are printed before lines are skipped."""


class Progress:
    """Base class of all classes that show progress. This class shows nothing, for ``--quiet``.

    Use the object in a ``with`` block. Only one thread at a time may call ``on_event``.
    """

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event of the job."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class LinesProgress(Progress):
    """Prints a line for each event, for logs and pipes.

    After `FREE_LINES` lines of metrics, lines are skipped: the pauses between lines grow with the running time of the
    job. Thus even a long job prints only a few hundred lines. The last skipped line is printed at the end.

    Parameters
    ----------
    file : file of text
        Where to print.
    n_groups : int
        Number of worker groups. If there are several, lines name the group.
    n_steps : int
        Number of training steps of a group. With 0, lines do not show the time left.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self, file: IO[str], n_groups: int = 1, n_steps: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self.n_groups = n_groups
        self._n_steps = n_steps
        self._clock = clock
        self._began = clock()
        self._said_at = self._began
        self._n_lines = 0
        # (phase, group) -> last line that was skipped
        self._left_out: dict[tuple[str, int], str] = {}
        # the last warning, to skip repetitions: layers that read the same store give the same warning
        self._warning = ""
        # group -> time and step of its first training metrics
        self._first: dict[int, tuple[float, int]] = {}

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Print metrics, checkpoints and warnings."""
        kind = event["event"]
        if kind == "started":
            # for a job with epochs, the number of steps is known only now
            self._n_steps = event.get("train_steps", self._n_steps)
        elif kind == "metrics":
            self._say_metrics(event)
        elif kind == "checkpoint":
            self.say(f"Checkpoint @ step {event['step']}: {event['url']}")
        elif kind in ("notice", "queued"):
            self.say(event["message"])
        # errors of units are not shown here: they end the job, and are shown once at its end
        elif kind == "log" and event["level"] == "WARNING":
            warning, before = f"{event['unit']}: {event['message']}", self._warning
            self._warning = warning
            if warning != before:
                self.say(warning)

    def _say_metrics(self, event: Mapping[str, Any]) -> None:
        now, key = self._clock(), (event["phase"], event["group"])
        line = metrics_line(event, self.n_groups, self._left_s(event))
        if self._n_lines >= FREE_LINES and now - self._said_at < (now - self._began) / FREE_LINES:
            if self._n_lines == FREE_LINES:
                self.say("From here on lines are skipped; metrics.jsonl has all.")
                self._n_lines += 1
            self._left_out[key] = line
            return
        self._left_out.pop(key, None)
        self._n_lines += 1
        self._said_at = now
        self.say(line)

    def _left_s(self, event: Mapping[str, Any]) -> float | None:
        """Return the seconds that a group has left to train; None if unknown."""
        if event["phase"] != "train" or not self._n_steps:
            return None
        # use the times in events, because events that were missed arrive later, all together
        began, first = self._first.setdefault(event["group"], (event["time"], event["step"]))
        done = event["step"] - first
        return (event["time"] - began) / done * (self._n_steps - 1 - event["step"]) if done > 0 else None

    def __exit__(self, *error: object) -> None:
        for line in self._left_out.values():
            self.say(line)

    def say(self, line: str) -> None:
        """Print a line."""
        print(shown(line), file=self._file, flush=True)


def join_if_fits(first: str, second: str, console: Console | None = None) -> str:
    """Join two parts of a message by ``; ``, or by a line break on a terminal that is too narrow."""
    line = f"{first}; {second}"
    if console is None and not STDERR.isatty():
        return line
    console = console or rich_console.Console(file=STDERR)
    return f"{first}\n{second}" if console.is_terminal and len(line) > console.width else line


def start_progress(
    n_groups: int, n_steps: int, quiet: bool = False, console: Console | None = None, run_url: str = ""
) -> Progress:
    """Return a `Progress` that shows nothing, lines, or bars.

    It shows nothing if ``quiet``, bars on a terminal or in a notebook, else lines.

    Parameters
    ----------
    n_groups, n_steps : int
        Number of worker groups, and of training steps of a group.
    console : Console, optional
        Where to print; by default stderr.
    run_url : str
        URLs below this URL are shown relative to it.
    """
    if quiet:
        return Progress()
    progress: Progress
    if notebook_shell() is not None:
        progress = bars.NotebookProgress(n_groups, n_steps, run_url)
        return progress
    if console is None and STDERR.isatty():
        console = rich_console.Console(file=STDERR, highlight=False)
    # is_interactive is False if the cursor cannot move, as with TERM=dumb
    if console is not None and console.is_interactive:
        progress = bars.BarProgress(console, n_groups, n_steps, run_url)
        return progress
    return LinesProgress(STDERR if console is None else console.file, n_groups, n_steps)


def notebook_shell() -> Any:
    """Return IPython's shell if this process is the kernel of a notebook, else None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None
