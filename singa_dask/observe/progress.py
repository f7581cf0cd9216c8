"""What a person sees while a job runs, on stderr: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

__all__ = ["LinesProgress", "Progress", "TableProgress", "figures", "metrics_line", "show_figures", "start_progress"]

# Every other key of a metrics event is a figure that a layer has measured.
NOT_FIGURES = ("event", "phase", "group", "step", "time", "samples_per_s", "wait_data_ms", "wait_params_ms")


def figures(event: Mapping[str, Any]) -> dict[str, float]:
    """Return what the layers measured, loss first."""
    found = {name: value for name, value in event.items() if name not in NOT_FIGURES}
    return dict(sorted(found.items(), key=lambda item: (not item[0].endswith("loss"), item[0])))


def show_figures(event: Mapping[str, Any]) -> str:
    """Write the figures of an event as ``loss = 0.4512, accuracy = 0.8594``."""
    return ", ".join(f"{name} = {value:.4f}" for name, value in figures(event).items())


def metrics_line(event: Mapping[str, Any], n_groups: int = 1) -> str:
    """Write a metrics event as SINGA's log did, e.g. ``Train @ step 60: loss = 0.4512  (1234 samples/s)``."""
    group = f", group {event['group']}" if n_groups > 1 else ""
    rate = f"  ({event['samples_per_s']:.0f} samples/s)" if event.get("samples_per_s") else ""
    return f"{str(event['phase']).capitalize()} @ step {event['step']}{group}: {show_figures(event)}{rate}"


class Progress:
    """Shows nothing: what ``--quiet`` asks for, and the base of those that show something.

    Use it in a ``with`` block; ``on_event`` is called by one thread at a time.
    """

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Take note of an event of the job."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@dataclasses.dataclass
class LinesProgress(Progress):
    """One line an event, for logs and pipes.

    Parameters
    ----------
    console : Console
    n_groups : int
        Worker groups; with more than one, lines say whose they are.
    """

    console: Console
    n_groups: int = 1

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Print metrics, checkpoints and warnings."""
        kind = event["event"]
        if kind == "metrics":
            self.say(metrics_line(event, self.n_groups))
        elif kind == "checkpoint":
            self.say(f"Checkpoint @ step {event['step']}: {event['url']}")
        elif kind == "notice":
            self.say(event["message"])
        elif kind == "log" and event["level"] not in ("DEBUG", "INFO"):
            self.say(f"{event['unit']}: {event['message']}")

    def say(self, line: str) -> None:
        """Print a line as it is: nothing in it is markup, and it is not wrapped."""
        self.console.print(Text(line), soft_wrap=True)


class TableProgress(LinesProgress):
    """A live table with a row for each worker group; what is worth keeping scrolls by above it.

    Parameters
    ----------
    console : Console
        A terminal.
    n_groups, n_steps : int
        Worker groups, and training steps of each.
    """

    def __init__(self, console: Console, n_groups: int, n_steps: int) -> None:
        super().__init__(console, n_groups)
        self.n_steps = n_steps
        self._latest: dict[int, Mapping[str, Any]] = {}
        self._live = Live(self.table(), console=console, refresh_per_second=4)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Keep a group's last figures in its row; print everything else."""
        if event["event"] == "metrics" and event["phase"] == "train":
            self._latest[event["group"]] = event
            self._live.update(self.table())
        else:
            super().on_event(event)

    def table(self) -> Table:
        """Draw the rows."""
        table = Table("group", "step", "train", box=None, pad_edge=False)
        for name in ("samples/s", "waits for data", "for params"):
            table.add_column(name, justify="right")
        for group, event in sorted(self._latest.items()):
            table.add_row(
                str(group),
                f"{event['step']}/{self.n_steps}",
                show_figures(event),
                f"{event.get('samples_per_s', 0):.0f}",
                f"{event.get('wait_data_ms', 0):.1f} ms",
                f"{event.get('wait_params_ms', 0):.1f} ms",
            )
        return table

    def __enter__(self) -> TableProgress:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()


def start_progress(n_groups: int, n_steps: int, quiet: bool = False, console: Console | None = None) -> Progress:
    """Choose how to show progress: not at all, in a table, or line by line.

    Parameters
    ----------
    n_groups, n_steps : int
        Worker groups, and training steps of each.
    quiet : bool
        Show nothing.
    console : Console, optional
        Where to; stderr if it is not given.
    """
    console = console or Console(stderr=True, highlight=False)
    if quiet:
        return Progress()
    return TableProgress(console, n_groups, n_steps) if console.is_terminal else LinesProgress(console, n_groups)
