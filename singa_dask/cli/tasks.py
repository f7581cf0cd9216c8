"""Tasks of a conversion or an inference, run here or on Dask, and what a person sees meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

__all__ = ["shown"]

# what the steps of a conversion, or the parts of an inference, have done
SAID = {
    "inference": "parts computed",
    "labels": "labels read",
    "manifest": "manifests written",
    "scatter": "shuffled",
    "shard": "files written",
    "verify": "files verified",
}
LINE_S = 5.0


class Step(Protocol):
    """A task; ``step`` is a key of SAID."""

    @property
    def step(self) -> str:
        """What it is a piece of."""


T = TypeVar("T", bound=Step)
R = TypeVar("R")


def shown(
    run: Callable[[Sequence[T]], Iterable[R]],
    quiet: bool = False,
    console: Console | None = None,
    line_s: float = LINE_S,
) -> Callable[[Sequence[T]], Iterable[R]]:
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

    def run_shown(tasks: Sequence[T]) -> Iterable[R]:
        return show(console, SAID[tasks[0].step], len(tasks), run(tasks), line_s) if tasks else ()

    return run_shown


def _bar(console: Console, text: str, n: int, results: Iterable[R], line_s: float) -> Iterator[R]:
    with Progress(console=console, transient=True) as progress:
        yield from progress.track(results, n, description=text)


def _lines(console: Console, text: str, n: int, results: Iterable[R], line_s: float) -> Iterator[R]:
    last = time.monotonic()
    for i, result in enumerate(results, 1):
        if time.monotonic() - last >= line_s:
            last = time.monotonic()
            console.print(Text(f"{text}: {i} of {n}"), soft_wrap=True)
        yield result
