"""Names in messages: lists of names, and suggestions for mistyped ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

ENCLOSED = re.compile(r"'[^']*'|\"[^\"]*\"|\(.*\)")
MANY = 20
"""Maximum number of names to list after a hint; a longer list would hide the hint."""


def listed(names: Sequence[str], limit: int = 20) -> str:
    """Return at most ``limit`` names for a message: ``a, b, c and 4 more``.

    See `quoted` for names with commas.
    """
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(map(quoted, names[:limit]))}{more}"


def quoted(name: str) -> str:
    """Return a name as it is shown in a list: in quotes if it has a comma, or blanks at its ends.

    Commas within quotes or parentheses do not count.
    """
    has_comma = "," in name and "," in ENCLOSED.sub("", name)
    return repr(name) if has_comma or name != name.strip() else name


def question_of(name: str, known: Iterable[str]) -> str:
    """Return a question such as ``"Did you mean 'X'? "``; empty if no known name is similar."""
    close = nearest(name, known)
    return f"Did you mean {close!r}? " if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to a mistyped one; empty if none is similar."""
    folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else ""


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggest the intended name for a mistyped one, and list the known names.

    Returns
    -------
    str
        A text such as ``"Did you mean 'X'? Known: A, B, X."``. The question is left out if no known name is similar,
        and the list if there is a question and the list is long.
    """
    names = sorted(known)
    return hint_at(question_of(name, names).rstrip(), names)


def hint_at(hint: str, known: Iterable[str]) -> str:
    """Return a hint, and the known names if there is no hint or the names are few.

    For example ``"Did you mean 'X'? Known: A, X."``.
    """
    names = sorted(known)
    shown = f"Known: {listed(names, len(names))}."
    return shown if not hint else hint if len(names) > MANY else f"{hint} {shown}"
