"""What people see: texts without secrets and control characters, on a stderr that may be gone."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from singa_dask.redaction import escaped, redact

T = TypeVar("T")

# C0 and C1 but tabs and line ends, and what turns the direction of a line
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
COLOUR = "\x1b\\[[0-9;]*m"


def shown(text: str, one_line: bool = False, coloured: bool = False) -> str:
    r"""Return a text as it may be printed: without secrets, and with control characters of others escaped.

    A name or message of somebody else's job could set the title of a terminal, write its clipboard, or hide what is
    before it.

    Parameters
    ----------
    text : str
    one_line : bool
        Escape line ends and tabs, too, as in a cell of a table.
    coloured : bool
        Keep the colours of a text that this program has coloured.
    """
    text = redact(text)
    if one_line:
        text = text.replace("\n", r"\n").replace("\t", r"\t")
    if not coloured:
        return CONTROL.sub(escaped, text)
    parts = re.split(f"({COLOUR})", text)
    return "".join(part if i % 2 else CONTROL.sub(escaped, part) for i, part in enumerate(parts))


def plural(n: float, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, as ``1 slice`` or ``2 slices``; ``nouns`` is for those that take no s."""
    number = f"{n:g}" if isinstance(n, float) else n
    return f"{number} {noun if n == 1 else nouns or noun + 's'}"


def by_shape(shape: Iterable[int]) -> str:
    """Show a shape as ``28 x 28``."""
    return " x ".join(map(str, shape))


class Stderr(io.TextIOBase):
    """The stderr of this process, whichever it is now; it is given up where it cannot be written.

    Attributes
    ----------
    lost : str
        Why it was given up: its reader is gone, it is closed, or its disk is full. Empty if it was not.
    """

    def __init__(self) -> None:
        self._given_up: tuple[Any, str] = (None, "")

    @property
    def lost(self) -> str:
        """See above."""
        stream, why = self._given_up
        return why if stream is _stderr() else ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return getattr(_stderr(), "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text, if that is possible."""
        return self._try(lambda stream: int(stream.write(text) or 0), len(text))

    def flush(self) -> None:
        """Flush the stream, if that is possible."""
        self._try(lambda stream: stream.flush(), None)

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._try(lambda stream: bool(stream.isatty()), False)

    def _try(self, act: Callable[[Any], T], otherwise: T) -> T:
        if self.lost:
            return otherwise
        stream = _stderr()
        try:
            if stream is None:
                raise OSError("it is closed")
            return act(stream)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._given_up = stream, f"stderr cannot be written: {why}. Nothing more is shown; the job goes on."
            return otherwise


def _stderr() -> Any:
    """Return the stream itself, where rich shows bars in its place."""
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


STDERR: Any = Stderr()  # libraries want an `IO[str]`, which `io.TextIOBase` is not by its type
