"""Make two small sets of sequences: reviews in a table of strings, as numbers of words, and numbers to write backwards.

    python examples/sequences.py data/sequences

writes into the directory ``data/sequences``:

- ``reviews.csv``, a table with the columns ``text`` and ``label``, and ``vocabulary.txt``, its words, a line each;
- ``reviews-train.npz`` and ``reviews-test.npz``: ``data``, the place of each word in the vocabulary, padded with -1,
  and ``label``; see ``configs/sequences/reviews.yaml``;
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

LENGTH, N_REVIEWS = 16, 6000
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


def encode(texts: list[str], vocabulary: list[str]) -> np.ndarray:
    """Return the place of each word in the vocabulary, -1 behind the last one: (texts, LENGTH) int32."""
    numbers = np.full((len(texts), LENGTH), -1, np.int32)
    for row, text in zip(numbers, texts, strict=True):
        words = text.split()
        row[: len(words)] = [vocabulary.index(word) for word in words]
    return numbers


def write_reviews(folder: Path, draw: random.Random) -> None:
    """Write a table of texts, its words, and the numbers of these."""
    rows = [review(draw) for _ in range(N_REVIEWS)]
    with (folder / "reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    with (folder / "reviews.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    vocabulary = sorted({word for row in table for word in row["text"].split()})
    (folder / "vocabulary.txt").write_text("\n".join(vocabulary))
    data = encode([row["text"] for row in table], vocabulary)
    labels = np.array([int(row["label"]) for row in table], np.int32)
    for name, part in (("train", slice(1000, None)), ("test", slice(1000))):
        np.savez(folder / f"reviews-{name}.npz", data=data[part], label=labels[part])


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
