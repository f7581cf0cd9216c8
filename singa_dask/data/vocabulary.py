"""Text -> windows of characters by their place in a vocabulary file, as SINGA's char-rnn has it.

A vocabulary is the file of its characters, nothing between them; a character's index is its place there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.store import Arrays
from singa_dask.errors import DataError

__all__ = ["decode_text", "encode_text", "read_text", "vocabulary_of"]


def read_text(
    urls: Sequence[str], storage_options: fs.Options = None, vocabulary: str = "vocab.txt", window: int = 50
) -> Arrays:
    """Read text as records of ``window`` characters; what is left at the end and fills no window is dropped.

    Parameters
    ----------
    urls : sequence of str
        UTF-8, taken as one text.
    vocabulary : str
        URL of the file of characters: read if it is there, else made of the characters in the order of their codes.
    window : int
        Characters of a record.

    Returns
    -------
    dict of str to ndarray
        ``pixel`` (n, window) uint8 of indices; ``data`` float32 where the vocabulary has more than 256 characters.

    Raises
    ------
    DataError
        The text is no UTF-8, is shorter than a window, or has a character that is not in the vocabulary.
    """
    if window < 1:
        raise DataError(f"{', '.join(urls)}: windows of {window} characters, expected 1 or more.")
    text = "".join(decode_text(url, storage_options) for url in urls)
    if fs.exists(vocabulary, storage_options):
        characters = decode_text(vocabulary, storage_options)
    else:
        characters = vocabulary_of(text)
        fs.write_atomic(vocabulary, characters.encode(), storage_options)
    indices = encode_text(text, characters, ", ".join(urls))
    n = len(indices) // window
    if not n:
        raise DataError(f"{', '.join(urls)}: {len(indices)} characters, less than a window of {window}.")
    rows = indices[: n * window].reshape(n, window)
    return {"pixel": rows.astype(np.uint8)} if len(characters) <= 256 else {"data": rows.astype(np.float32)}


def vocabulary_of(text: str) -> str:
    """Return the characters of a text, each once, in the order of their codes."""
    return "".join(map(chr, np.unique(_codes(text)).tolist()))


def encode_text(text: str, vocabulary: str, where: str) -> npt.NDArray[np.int64]:
    """Return each character's place in the vocabulary: (len(text),) int64."""
    codes, known = _codes(text), _codes(vocabulary)
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known, codes, sorter=order)
    indices = order[np.minimum(places, len(known) - 1)] if len(known) else np.zeros(len(codes), np.int64)
    missing = np.flatnonzero(known[indices] != codes) if len(known) else np.arange(len(codes))
    if len(missing):
        raise DataError(f"{where}: character {missing[0]}, {text[missing[0]]!r}, is not in the vocabulary.")
    return indices


def _codes(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def decode_text(url: str, storage_options: fs.Options = None) -> str:
    """Read a file of UTF-8, line ends as they are."""
    try:
        return fs.read_bytes(url, storage_options=storage_options).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{url}: no UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}.") from error
