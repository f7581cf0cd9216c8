"""Text for people: without secrets and control characters, and written to a stderr that may be closed."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from singa_dask.redaction import escaped, redact

T = TypeVar("T")

# control characters C0 and C1 except tabs and line ends, and characters that change the direction of text
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
COLOUR = "\x1b\\[[0-9;]*m"


def shown(text: str, one_line: bool = False, coloured: bool = False) -> str:
    """Return a printable text: secrets are hidden, and control characters are escaped.

    Escaping is necessary because names and messages of other users' jobs could set the title of a terminal, write its
    clipboard, or hide text.

    Parameters
    ----------
    text : str
    one_line : bool
        Also escape line ends and tabs, for a cell of a table.
    coloured : bool
        Keep colour codes.
    """
    text = redact(text)
    if one_line:
        text = text.replace("\n", r"\n").replace("\t", r"\t")
    if not coloured:
        return CONTROL.sub(escaped, text)
    parts = re.split(f"({COLOUR})", text)
    return "".join(part if i % 2 else CONTROL.sub(escaped, part) for i, part in enumerate(parts))


def plural(n: float, noun: str, nouns: str = "") -> str:
    """Return a number with its noun, ``1 slice`` or ``2 slices``; pass an irregular plural as ``nouns``."""
    number = f"{n:g}" if isinstance(n, float) else n
    return f"{number} {noun if n == 1 else nouns or noun + 's'}"


def by_shape(shape: Iterable[int]) -> str:
    """Return a shape as ``28 x 28``."""
    return " x ".join(map(str, shape))


class Stderr(io.TextIOBase):
    """The current ``sys.stderr``. It raises no errors: after a failed write, the stream is ignored."""

    def __init__(self) -> None:
        self._given_up: tuple[Any, str] = (None, "")

    @property
    def lost(self) -> str:
        """The reason why the stream is ignored, such as a full disk; empty if it is not ignored."""
        stream, why = self._given_up
        return why if stream is _stderr() else ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream."""
        return getattr(_stderr(), "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write a text if possible."""
        return self._try(lambda stream: int(stream.write(text) or 0), len(text))

    def flush(self) -> None:
        """Flush the stream if possible."""
        self._try(lambda stream: stream.flush(), None)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
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
            self._given_up = stream, f"stderr cannot be written: {why}. No more output is shown; the job continues."
            return otherwise


def _stderr() -> Any:
    """Return the real stderr, even while rich shows progress bars."""
    return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


STDERR: Any = Stderr()  # Any, because libraries expect an `IO[str]`, and `io.TextIOBase` is another type
