"""Names of categories and classes.

Formats write the same value in several ways. These spellings count as one name.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

WHOLE = re.compile(r"(-?\d+)\.0+")


def plain_name(text: str) -> str:
    """Return a name without surrounding blanks, and with composed accents (NFC)."""
    return unicodedata.normalize("NFC", text).strip()


def name_key(text: str) -> str:
    """Return a key that all spellings of a name share.

    The key of ``7.0`` is ``7``; the key of ``True`` and ``TRUE`` is ``true``.
    """
    text = plain_name(text)
    if text.lower() in ("false", "true"):
        return text.lower()
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole else text


def distinct_names(texts: Iterable[str]) -> set[str]:
    """Return one name for each key: the key itself if it is among the names, else the first name."""
    names_by_key: dict[str, str] = {}
    for name in sorted({plain_name(text) for text in texts}):
        key = name_key(name)
        if name == key or key not in names_by_key:
            names_by_key[key] = name
    return set(names_by_key.values())


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names, sorted.

    If all names are numbers, they are sorted by value, with nan last. Otherwise they are sorted as text.
    """
    names = distinct_names(names)

    def value(name: str) -> tuple[bool, float, str]:
        number = float(name)
        return math.isnan(number), 0.0 if math.isnan(number) else number, name

    try:
        return tuple(sorted(names, key=value))
    except ValueError:
        return tuple(sorted(names))


class NameNumbers(dict[str, int]):
    """A mapping from names to numbers.

    A text that is not a name maps to the number of the name with the same key, or to -1.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__({name: number for number, name in enumerate(names)})
        self._by_key = {name_key(name): self[name] for name in reversed(names)}

    def __missing__(self, text: str) -> int:
        return self._by_key.get(name_key(text), -1)
