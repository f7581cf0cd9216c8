"""Text -> windows of character indices in a vocabulary, as in SINGA's char-rnn example.

A vocabulary file contains its characters without separators; the index of a character is its position.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.fs.byte_source import open_bytes
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["decode_text", "encode_text", "read_text", "vocabulary_of"]

# characters that are looked up at a time
PIECE = 1 << 22


def read_text(
    urls: Sequence[str], storage_options: fs.Options = None, vocabulary: str = "vocab.txt", window: int = 50
) -> Arrays:
    """Read text as records of ``window`` characters; an incomplete window at the end is dropped.

    Parameters
    ----------
    urls : sequence of str
        Files in UTF-8, concatenated.
    vocabulary : str
        URL of the vocabulary. If it does not exist, it is created: the characters of the text, sorted by code point.
    window : int
        Characters per record.

    Returns
    -------
    dict of str to ndarray
        ``pixel`` (n, window) uint8 of indices; ``data`` float32 if the vocabulary has more than 256 characters.

    Raises
    ------
    DataError
        The text is not UTF-8, is shorter than a window, or has a character that is not in the vocabulary.
    """
    if window < 1:
        raise DataError(f"{', '.join(urls)}: windows of {window} characters, expected 1 or more.")
    texts = {url: decode_text(url, storage_options) for url in urls}
    is_new = not fs.exists(vocabulary, storage_options)
    characters = vocabulary_of("".join(texts.values())) if is_new else decode_text(vocabulary, storage_options)
    indices = np.concatenate([encode_text(texts[url], characters, url, vocabulary) for url in urls])
    n = len(indices) // window
    if not n:
        raise DataError(f"{', '.join(urls)}: {len(indices)} characters, less than a window of {window}.")
    if is_new:
        fs.write_atomic(vocabulary, characters.encode(), storage_options)
    rows = indices[: n * window].reshape(n, window)
    return {"pixel": rows.astype(np.uint8)} if len(characters) <= 256 else {"data": rows.astype(np.float32)}


def vocabulary_of(text: str) -> str:
    """Return the distinct characters of a text, sorted by code point."""
    return "".join(map(chr, np.unique(_codes(text)).tolist()))


def encode_text(text: str, vocabulary: str, where: str, url: str = "") -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the index of each character in the vocabulary: (len(text),), of the smallest sufficient dtype.

    Raises
    ------
    DataError
        A character is missing from the vocabulary. The error names ``where``, line and column, and the ``url`` of the
        vocabulary, if given.
    """
    known, missing = _codes(vocabulary), len(vocabulary)
    indices = np.full(sys.maxunicode + 1, missing, np.int32)
    # if a character occurs twice, its first index counts
    indices[known[::-1]] = np.arange(missing)[::-1]
    found = np.empty(len(text), np.min_scalar_type(max(missing - 1, 0)))
    for start in range(0, len(text), PIECE):
        part = indices[_codes(text[start : start + PIECE])]
        if (part == missing).any():
            at = start + int(np.argmax(part == missing))
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            named = f" {url}. Give another file, or delete this one to create it again" if url else ""
            raise DataError(f"{where}:{line}:{column}: character {text[at]!r} is not in the vocabulary{named}.")
        found[start : start + PIECE] = part
    return found


def _codes(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def decode_text(url: str, storage_options: fs.Options = None) -> str:
    """Read a UTF-8 file, gzipped or not; line ends are kept."""
    try:
        with contextlib.closing(open_bytes(url, storage_options)) as source:
            return bytes(source.read(0, source.size)).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{url}: not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}.") from error
