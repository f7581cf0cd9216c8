"""Texts of others: byte order marks, encodings and line ends of small files, and names of categories and classes."""

from __future__ import annotations

import codecs
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from singa_dask.errors import DataError

# UTF-32 first: its mark in little-endian order begins with that of UTF-16
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
LINE_END = re.compile(r"\r\n?|\n")
WHOLE = re.compile(r"(-?\d+)\.0+")


def charset_of(data: bytes) -> tuple[str, int]:
    """Return the encoding that a byte order mark names, and the length of the mark; UTF-8 and 0 without a mark."""
    return next(((charset, len(mark)) for mark, charset in MARKS.items() if data.startswith(mark)), ("utf-8", 0))


def decode(data: bytes, where: str) -> str:
    """Decode a text without its byte order mark; line ends are kept.

    Parameters
    ----------
    data : bytes
        UTF-8; or UTF-16 or UTF-32 with a byte order mark.
    where : str
        File, for errors.

    Raises
    ------
    DataError
        It is in another encoding, with the line of the first wrong byte; caused by the `UnicodeDecodeError`.
    """
    charset, start = charset_of(data)
    text = data[start:]
    try:
        return text.decode(charset)
    except UnicodeDecodeError as error:
        line = len(LINE_END.findall(text[: error.start].decode(charset))) + 1
        at, byte = start + error.start, text[error.start]
        raise DataError(f"{where}, line {line}: not {charset.upper()} text: byte {at} is 0x{byte:02x}.") from error


def split_lines(text: str) -> list[str]:
    """Split a text at CR, LF and CRLF alone: `str.splitlines` cuts at form feeds, U+0085 and U+2028 too."""
    found = LINE_END.split(text)
    return found if found[-1] else found[:-1]


# Names of categories and classes. Formats write one value in several ways, which are one name.


def plain_name(text: str) -> str:
    """Return a name without blanks around it, with accents composed (NFC)."""
    return unicodedata.normalize("NFC", text).strip()


def name_key(text: str) -> str:
    """Return what all spellings of a name have in common: ``7.0`` is ``7``, ``True`` and ``TRUE`` are ``true``."""
    text = plain_name(text)
    if text.lower() in ("false", "true"):
        return text.lower()
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole else text


def distinct_names(texts: Iterable[str]) -> set[str]:
    """Return one name for each key: the key itself if it is among the names, else the first of them."""
    found: dict[str, str] = {}
    for name in sorted({plain_name(text) for text in texts}):
        key = name_key(name)
        if name == key or key not in found:
            found[key] = name
    return set(found.values())


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names sorted by value if all are numbers, nan last, else as text: alike in all processes."""
    names = distinct_names(names)

    def value(name: str) -> tuple[bool, float, str]:
        number = float(name)
        return math.isnan(number), 0.0 if math.isnan(number) else number, name

    try:
        return tuple(sorted(names, key=value))
    except ValueError:
        return tuple(sorted(names))


class NameNumbers(dict[str, int]):
    """The number of each name; of a text that is none of them, the number of the name with its key, -1 if none has."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__({name: number for number, name in enumerate(names)})
        self._by_key = {name_key(name): self[name] for name in reversed(names)}

    def __missing__(self, text: str) -> int:
        return self._by_key.get(name_key(text), -1)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON, an ``object_pairs_hook``; raise a ValueError if a key occurs twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found
