"""Make two small sets of sequences: tables of reviews, and numbers to write backwards.

    python examples/sequences.py data/sequences

writes into the directory ``data/sequences``:

- ``reviews-train.csv`` and ``reviews-test.csv``, tables with the columns ``text`` and ``label``; see
  ``configs/sequences/reviews.yaml``;
- ``number-train.npy`` and ``number-test.npy``, the digits of numbers, padded with -1, and ``answer-train.npy`` and
  ``answer-test.npy``: 10, which starts an answer, the same digits backwards, and 11 to the end; see
  ``configs/sequences/reverse.yaml``.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

import numpy as np

N_REVIEWS = 6000
DIGITS, N_NUMBERS = 8, 40000
START, END = 10, 11

THINGS = "film book song meal game play story show hotel album".split()
PARTS = "start middle end music cast style plot view price sound".split()
WORDS = {
    1: "great lovely superb charming moving clever".split(),
    0: "awful dull weak boring clumsy poor".split(),
}


def review(draw: random.Random) -> tuple[str, int]:
    """Return an opinion, and whether it is a good one: what comes after ``but`` counts, and ``not`` turns it round."""
    label = draw.randrange(2)

    def clause(thing: str, opinion: int) -> str:
        negated = draw.random() < 0.4
        word = draw.choice(WORDS[1 - opinion if negated else opinion])
        extent = draw.choice(["", "very ", "really ", "all that "]) if negated else draw.choice(["", "very ", "so "])
        return f"the {thing} was {'not ' if negated else ''}{extent}{word}"

    last = clause(draw.choice(THINGS), label)
    if draw.random() < 0.6:
        return f"{clause(draw.choice(PARTS), 1 - label)} but {last}", label
    return last, label


def write_reviews(folder: Path, draw: random.Random) -> None:
    """Write two tables of texts and labels."""
    rows = [review(draw) for _ in range(N_REVIEWS)]
    for name, part in (("train", rows[1000:]), ("test", rows[:1000])):
        with (folder / f"reviews-{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *part])


def write_numbers(folder: Path) -> None:
    """Write numbers of one to ``DIGITS`` digits, and what a decoder reads and writes."""
    numbers = np.random.default_rng(1)
    source = numbers.integers(0, 10, (N_NUMBERS, DIGITS), dtype=np.int32)
    lengths = numbers.integers(1, DIGITS + 1, N_NUMBERS)
    source[np.arange(DIGITS) >= lengths[:, None]] = -1
    answer = np.full((N_NUMBERS, DIGITS + 2), END, np.int32)
    answer[:, 0] = START
    for row, digits, n in zip(answer, source, lengths, strict=True):
        row[1 : n + 1] = digits[:n][::-1]
    for name, part in (("train", slice(1000, None)), ("test", slice(1000))):
        np.save(folder / f"number-{name}.npy", source[part])
        np.save(folder / f"answer-{name}.npy", answer[part])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/sequences.py FOLDER")
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    write_reviews(made, random.Random(1))
    write_numbers(made)
