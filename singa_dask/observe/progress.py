"""Progress of a job on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from singa_dask.observe.bars import GroupBars

__all__ = [
    "BarProgress",
    "LinesProgress",
    "Progress",
    "join_if_fits",
    "layer_metrics",
    "metrics_line",
    "show_metrics",
    "start_progress",
]

# Every other key of a metrics event is a metric of a layer.
NOT_METRICS = frozenset(
    ("event", "phase", "group", "step", "time", "epoch", "lr", "samples_per_s", "wait_data_ms", "wait_params_ms")
)


def layer_metrics(event: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of layers, losses first."""
    found = {name: value for name, value in event.items() if name not in NOT_METRICS}
    return dict(sorted(found.items(), key=lambda item: (not item[0].endswith("loss"), item[0])))


def show_metrics(event: Mapping[str, Any]) -> str:
    """Format the metrics of an event as ``loss = 0.4512, accuracy = 0.8594``."""
    return ", ".join(f"{name} = {value:.4f}" for name, value in layer_metrics(event).items())


def metrics_line(event: Mapping[str, Any], n_groups: int = 1) -> str:
    """Format a metrics event as in SINGA's log, e.g. ``Train @ step 60: loss = 0.4512  (1234 samples/s)``."""
    group = f", group {event['group']}" if n_groups > 1 else ""
    rate = f"  ({event['samples_per_s']:.0f} samples/s)" if event.get("samples_per_s") else ""
    return f"{str(event['phase']).capitalize()} @ step {event['step']}{group}: {show_metrics(event)}{rate}"


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


@dataclasses.dataclass
class LinesProgress(Progress):
    """Prints a line for each event, for logs and pipes.

    Parameters
    ----------
    console : Console
    n_groups : int
        Number of worker groups; with more than one, lines name the group.
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
        # an error of a unit ends the job, and is shown once at its end
        elif kind == "log" and event["level"] == "WARNING":
            self.say(f"{event['unit']}: {event['message']}")

    def say(self, line: str) -> None:
        """Print a line without markup and without wrapping."""
        self.console.print(Text(line), soft_wrap=True)


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
        self.bars = GroupBars(console, n_groups, n_steps, layer_metrics)

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Show steps and training metrics in the table; print everything else."""
        if event["event"] == "metrics" and event["phase"] == "train":
            self.bars.show_metrics(event)
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
    console = console or Console(stderr=True, highlight=False)
    if quiet:
        return Progress()
    # False if the cursor cannot be moved, as with TERM=dumb
    if console.is_interactive:
        return BarProgress(console, n_groups, n_steps, run_url)
    return LinesProgress(console, n_groups)
