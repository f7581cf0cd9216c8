"""Text files of other programs: byte order marks, encodings, line ends, and duplicate keys in JSON."""

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
REWRITE = 'Write it as UTF-8, in Excel as "CSV UTF-8"'
LINE_END = re.compile(r"\r\n?|\n")


def charset_of(data: bytes) -> tuple[str, int]:
    """Return the encoding that a byte order mark names, and the length of the mark.

    Without such a mark, the result is (UTF-8, 0).
    """
    return next(((charset, len(mark)) for mark, charset in MARKS.items() if data.startswith(mark)), ("utf-8", 0))


def refuse_wide(where: str, head: bytes) -> None:
    """Raise a `DataError` for a table in UTF-16 or UTF-32, given its first bytes.

    Without a byte order mark, UTF-16 is recognised by the zero bytes of its ASCII characters.
    """
    marked, start = charset_of(head)
    wide = marked[:6] if start and marked != "utf-8" else ""
    zeros = head[::2].count(0), head[1::2].count(0)
    if 4 * max(zeros) > len(head) and not min(zeros):
        wide = wide or ("utf-16be" if zeros[0] else "utf-16le")
    if wide:
        raise DataError(
            f"{where}: the text is encoded in {wide.upper()}. {REWRITE}, or convert it with iconv -f {wide} -t utf-8."
        )


def decode(data: bytes, where: str) -> str:
    """Decode a text. The byte order mark is removed; line ends are kept.

    Parameters
    ----------
    data : bytes
        UTF-8, or UTF-16 or UTF-32 with a byte order mark.
    where : str
        Name of the file, for errors.

    Raises
    ------
    DataError
        The text has another encoding. The message names the line of the first wrong byte, and ``__cause__`` is the
        `UnicodeDecodeError`.
    """
    charset, start = charset_of(data)
    text = data[start:]
    try:
        return text.decode(charset)
    except UnicodeDecodeError as error:
        line = len(LINE_END.findall(text[: error.start].decode(charset))) + 1
        at, byte = start + error.start, text[error.start]
        raise DataError(
            f"{where}, line {line}: the text is not {charset.upper()}: byte {at} is 0x{byte:02x}."
        ) from error


def split_lines(text: str) -> list[str]:
    """Split a text at CR, LF and CRLF only.

    `str.splitlines` also splits at form feeds, U+0085 and U+2028.
    """
    found = LINE_END.split(text)
    return found if found[-1] else found[:-1]


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; raise a ValueError if a key occurs twice.

    Pass it to the JSON parser as ``object_pairs_hook``.
    """
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found
