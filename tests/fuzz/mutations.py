"""Mutations of a file: wrong bits, words, runs of zeros, cuts, insertions. The same seed gives the same mutation."""

from __future__ import annotations

import numpy as np

__all__ = ["KINDS", "mutate"]

# lengths and offsets that a reader may believe
WORDS = (0, 1, 0x7F, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
# headers and footers are damaged more often than what is between them
EDGES = (16, 160, 1024)
MAX_RUN = 4096
PAGE_BYTES, PAGE_HEAD_BYTES = 4096, 40


def _bit(data: bytearray, at: int, random: np.random.Generator) -> None:
    data[at] ^= 1 << int(random.integers(8))


def _word(data: bytearray, at: int, random: np.random.Generator) -> None:
    size = int(random.choice([1, 2, 4, 8]))
    known = WORDS[int(random.integers(len(WORDS)))] if random.integers(2) else int(random.integers(1 << 62))
    word = (known % (1 << 8 * size)).to_bytes(size, "little" if random.integers(2) else "big")
    data[at : at + size] = word[: len(data) - at]


def _zeros(data: bytearray, at: int, random: np.random.Generator) -> None:
    n = min(int(random.integers(1, MAX_RUN)), len(data) - at)
    data[at : at + n] = bytes(n)


def _cut(data: bytearray, at: int, random: np.random.Generator) -> None:
    n = len(data) if random.integers(2) else int(random.integers(1, MAX_RUN))
    del data[at : at + n]


def _insert(data: bytearray, at: int, random: np.random.Generator) -> None:
    n = int(random.integers(1, 64 if random.integers(2) else MAX_RUN))
    if random.integers(2):
        data[at:at] = random.bytes(n)
        return
    # something that is in the file already, and looks right
    start = int(random.integers(len(data)))
    data[at:at] = data[start : start + n]


KINDS = (_bit, _bit, _word, _word, _zeros, _cut, _insert)


def _place(size: int, random: np.random.Generator) -> int:
    """Return where a file is damaged: near one of its ends, at the head of a page, or anywhere."""
    edge = int(random.choice([*EDGES, PAGE_BYTES, size, size]))
    at = int(random.integers(min(edge, max(size, 1))))
    if edge == PAGE_BYTES and size > PAGE_BYTES:
        return int(random.integers(size // PAGE_BYTES)) * PAGE_BYTES + at % PAGE_HEAD_BYTES
    return max(size - 1 - at, 0) if random.integers(2) else at


def mutate(data: bytes, seed: int) -> bytes:
    """Return a damaged copy of a file that is not empty; it differs from the file, or is shorter or longer."""
    random = np.random.default_rng(seed)
    damaged = bytearray(data)
    while damaged == data:
        KINDS[int(random.integers(len(KINDS)))](damaged, _place(len(damaged), random), random)
    return bytes(damaged)
