"""Texts as indices in a vocabulary: windows of characters, as in char-rnn, or words, as in rnnlm.

A vocabulary of characters is a text; the index of a character is the position of the character in this text.

Text is split into words as in Mikolov's rnnlm 0.4. The end of a line is the word ``</s>``, index 0. A vocabulary of
words is a text file with a word and its count in each line, in descending order of counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.texts import split_lines

# number of characters that are looked up at a time
PIECE = 1 << 22
END = "</s>"


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
        Indices of the characters, (n, window): ``pixel`` uint8, or ``data`` float32 if the vocabulary has more than 256
        characters.

    Raises
    ------
    DataError
        The text is not UTF-8, is shorter than a window, or has a character outside the vocabulary.
    """
    if window < 1:
        raise DataError(f"{', '.join(urls)}: the window is {window} characters, expected 1 or more.")
    texts = {url: decode_text(url, storage_options) for url in urls}
    is_new = not fs.exists(vocabulary, storage_options)
    characters = vocabulary_of("".join(texts.values())) if is_new else decode_text(vocabulary, storage_options)
    indices = np.concatenate([encode_text(texts[url], characters, url, vocabulary) for url in urls])
    n = len(indices) // window
    if not n:
        raise DataError(f"{', '.join(urls)}: the text has {len(indices)} characters, fewer than a window of {window}.")
    if is_new:
        fs.write_atomic(vocabulary, characters, storage_options)
    rows = indices[: n * window].reshape(n, window)
    return {"pixel": rows.astype(np.uint8)} if len(characters) <= 256 else {"data": rows.astype(np.float32)}


def vocabulary_of(text: str) -> str:
    """Return the distinct characters of a text, sorted by code point."""
    return "".join(map(chr, np.unique(_codes(text)).tolist()))


def encode_text(text: str, vocabulary: str, where: str, url: str = "") -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the index of each character in the vocabulary: (len(text),), in the smallest dtype.

    Raises a `DataError` if a character is not in the vocabulary. The error names ``where``, line and column, and the
    ``url`` of the vocabulary if it is passed.
    """
    known, missing = _codes(vocabulary), len(vocabulary)
    indices = np.full(sys.maxunicode + 1, missing, np.int32)
    # write indices in reverse order, so that a character that occurs twice keeps its first index
    indices[known[::-1]] = np.arange(missing)[::-1]
    encoded = np.empty(len(text), np.min_scalar_type(max(missing - 1, 0)))
    for start in range(0, len(text), PIECE):
        part = indices[_codes(text[start : start + PIECE])]
        if (part == missing).any():
            at = start + int(np.argmax(part == missing))
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            named = f" {url}. Pass another file, or delete this one to create it again" if url else ""
            raise DataError(f"{where}:{line}:{column}: character {text[at]!r} is not in the vocabulary{named}.")
        encoded[start : start + PIECE] = part
    return encoded


def _codes(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def read_words(
    urls: Sequence[str], storage_options: fs.Options = None, vocabulary: str = "vocab.txt", class_size: int = 100
) -> Arrays:
    """Read text as one record per word; words that are not in the vocabulary are skipped.

    Parameters
    ----------
    urls : sequence of str
        Files in UTF-8, concatenated.
    vocabulary : str
        URL of the vocabulary. If it does not exist, it is created from this text.
    class_size : int
        Number of classes, at most the number of words.

    Returns
    -------
    dict of str to ndarray
        ``data`` (n, 4) float32: the fields word_index, class_index, class_start and class_end of WordRecord. Words
        of a class have the indices class_start to class_end - 1.

    Raises
    ------
    DataError
        The text is not UTF-8 or has no word of the vocabulary, or the vocabulary is invalid.
    """
    where = ", ".join(urls)
    words = [word for url in urls for word in split_words(decode_text(url, storage_options))]
    is_new = not fs.exists(vocabulary, storage_options)
    counts = count_words(words) if is_new else _read_vocabulary(vocabulary, storage_options)
    if not 1 <= class_size <= len(counts):
        raise DataError(
            f"{where}: the number of word classes is {class_size}, expected 1 to {len(counts)}, the number of words."
        )
    numbers = {word: i for i, word in enumerate(counts)}
    word_numbers = np.array([numbers[word] for word in words if word in numbers], np.int64)
    if not len(word_numbers):
        raise DataError(f"{where}: the text has no word of the vocabulary {vocabulary}.")
    if is_new:
        lines = "".join(f"{word} {count}\n" for word, count in counts.items())
        fs.write_atomic(vocabulary, lines, storage_options)
    classes = classes_of(np.array(list(counts.values()), np.int64), class_size)
    return {"data": _with_classes(word_numbers, classes).astype(np.float32)}


def split_words(text: str) -> list[str]:
    """Split text at blanks, tabs and line ends; line ends are words themselves."""
    blanks = text.replace("\r", "").replace("\t", " ").replace("\n", f" {END} ")
    return [word for word in blanks.split(" ") if word]


def count_words(words: Sequence[str]) -> dict[str, int]:
    """Return the count of each word: ``</s>`` first, then by count; equal counts in text order."""
    counts = Counter(words)
    end = counts.pop(END, 0)
    return {END: end, **dict(counts.most_common())}


def classes_of(counts: npt.NDArray[np.int64], n_classes: int) -> npt.NDArray[np.int64]:
    """Return the class of each word, (n,) int64, ascending. Classes have about equal shares of the text."""
    classes, now, seen, total = [], 0, 0.0, float(counts.sum())
    for count in counts.tolist():
        # sum in the same order as rnnlm, to get the same rounding
        seen = min(seen + count / total, 1.0)
        classes.append(now)
        if seen > (now + 1) / n_classes and now < n_classes - 1:
            now += 1
    return np.array(classes, np.int64)


def _with_classes(words: npt.NDArray[np.int64], classes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return (n, 4): index, class, and start and end of the class of each word."""
    starts = np.searchsorted(classes, classes, side="left")
    ends = np.searchsorted(classes, classes, side="right")
    return np.stack([words, classes[words], starts[words], ends[words]], axis=1)


def _read_vocabulary(url: str, storage_options: fs.Options) -> dict[str, int]:
    counts: dict[str, int] = {}
    for i, line in enumerate(split_lines(decode_text(url, storage_options)), 1):
        word, _, count = line.partition(" ")
        if not word or not count.isdecimal() or word in counts or (not counts and word != END):
            raise DataError(
                f"{url}, line {i}: the line is {line!r}. Expected a new word and its count, first that of {END}. Pass "
                f"another file, or delete this one to create it again."
            )
        counts[word] = int(count)
    return counts
