"""Make histories of users, and items that they like or not.

    python examples/histories.py data/histories

writes into the directory ``data/histories``, for ``configs/towers/items.yaml``:

- ``history-train.npy`` and ``history-test.npy``, up to 12 items of 300 that a user has liked, padded with -1;
- ``item-train.npy`` and ``item-test.npy``, another item for each user;
- ``liked-train.npy`` and ``liked-test.npy``, 1 if the user likes it, else 0.

An item has one of ten topics. A user likes the items of two of them, and now and then others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

N_ITEMS, N_TOPICS, LENGTH, N_TRAIN, N_TEST = 300, 10, 12, 20000, 2000


def make(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return histories (n, LENGTH) int32, items (n, 1) int32, and whether they are liked, (n, 1) float32."""
    # the topic of an item is its number modulo N_TOPICS
    topics = random.permuted(np.tile(np.arange(N_TOPICS), (n, 1)), axis=1)
    chosen = np.take_along_axis(topics, random.integers(0, 2, (n, LENGTH)), axis=1)
    chosen = np.where(random.random((n, LENGTH)) < 0.1, random.integers(0, N_TOPICS, (n, LENGTH)), chosen)
    histories = chosen + N_TOPICS * random.integers(0, N_ITEMS // N_TOPICS, (n, LENGTH))
    histories[np.arange(LENGTH) >= random.integers(4, LENGTH + 1, (n, 1))] = -1
    liked = random.integers(0, 2, (n, 1))
    topic = np.take_along_axis(topics, np.where(liked, 0, 2) + random.integers(0, 2, (n, 1)), axis=1)
    items = topic + N_TOPICS * random.integers(0, N_ITEMS // N_TOPICS, (n, 1))
    return histories.astype(np.int32), items.astype(np.int32), liked.astype(np.float32)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/histories.py FOLDER")
    made, random = Path(sys.argv[1]), np.random.default_rng(1)
    made.mkdir(parents=True, exist_ok=True)
    for name, n in (("train", N_TRAIN), ("test", N_TEST)):
        for field, values in zip(("history", "item", "liked"), make(n, random), strict=True):
            np.save(made / f"{field}-{name}.npy", values)
