"""Text of other programs: byte order marks, encodings, line ends, and duplicate keys in JSON."""

from __future__ import annotations

import codecs
import re
from typing import Any

from singa_dask.errors import DataError

# UTF-32 comes first, because its little-endian mark begins with the mark of UTF-16
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
LINE_END = re.compile(r"\r\n?|\n")


def charset_of(data: bytes) -> tuple[str, int]:
    """Return the encoding that a byte order mark names, and the length of the mark; UTF-8 and 0 without a mark."""
    return next(((charset, len(mark)) for mark, charset in MARKS.items() if data.startswith(mark)), ("utf-8", 0))


def decode(data: bytes, where: str) -> str:
    """Decode a text, dropping its byte order mark and keeping its line ends.

    Parameters
    ----------
    data : bytes
        UTF-8, or UTF-16 or UTF-32 with a byte order mark.
    where : str
        File, for errors.

    Raises
    ------
    DataError
        The encoding is another one; names the line of the first wrong byte. Caused by the `UnicodeDecodeError`.
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
    """Split a text at CR, LF and CRLF only: `str.splitlines` also splits at form feeds, U+0085 and U+2028."""
    found = LINE_END.split(text)
    return found if found[-1] else found[:-1]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, as ``object_pairs_hook``; raise a ValueError if a key occurs twice."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found
