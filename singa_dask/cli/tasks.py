"""The tasks of a conversion, run here or on Dask, and what a person sees meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from singa_dask.data.convert import Run

__all__ = ["shown"]

# what the steps of a conversion have done
SAID = {
    "labels": "labels read",
    "manifest": "manifests written",
    "scatter": "shuffled",
    "shard": "files written",
    "verify": "files verified",
}
LINE_S = 5.0


def shown(run: Run, quiet: bool = False, console: Console | None = None, line_s: float = LINE_S) -> Run:
    """Return what runs tasks and shows how far it is: a bar on a terminal, a line now and then elsewhere.

    Parameters
    ----------
    run : function
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
    show = _bar if console.is_terminal else _lines

    def run_shown(tasks: Sequence[Any]) -> Iterable[int]:
        return show(console, SAID[tasks[0].step], len(tasks), run(tasks), line_s) if tasks else ()

    return run_shown


def _bar(console: Console, text: str, n: int, results: Iterable[int], line_s: float) -> Iterator[int]:
    with Progress(console=console, transient=True) as progress:
        yield from progress.track(results, n, description=text)


def _lines(console: Console, text: str, n: int, results: Iterable[int], line_s: float) -> Iterator[int]:
    last = time.monotonic()
    for i, result in enumerate(results, 1):
        if time.monotonic() - last >= line_s:
            last = time.monotonic()
            console.print(Text(f"{text}: {i} of {n}"), soft_wrap=True)
        yield result
