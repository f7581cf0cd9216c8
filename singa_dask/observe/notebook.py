"""Progress of a job in the output of a notebook's cell, updated in place."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text
from rich.theme import Theme

from singa_dask.observe.progress import BarProgress
from singa_dask.redaction import redact

__all__ = ["NotebookProgress", "notebook_shell"]

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
