"""How well the shuffled orders mix records that are sorted by class, and how little a cursor is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from singa_dask.data.sampler import Sampler

N, CLASSES, BATCH = 60_000, 10, 256
BLOCKS = [256] * (N // 256) + [N % 256]


def variation(order: Sampler) -> float:
    """Return how far the classes of a batch are from equal shares, as the mean of an epoch (0.075 by pure chance)."""
    labels = np.arange(N) * CLASSES // N
    batches = labels[order.rows(0, n_steps=N // BATCH)]
    shares = np.stack([(batches == label).mean(axis=1) for label in range(CLASSES)])
    return float(np.abs(shares - 1 / CLASSES).sum(axis=0).mean() / 2)


@pytest.mark.parametrize(("shuffle", "most"), [("block", 0.20), ("full", 0.09)])
@pytest.mark.parametrize("seed", range(3))
def test_classes_are_mixed(shuffle: Any, most: float, seed: int) -> None:
    assert variation(Sampler(BLOCKS, BATCH, shuffle, seed)) <= most


def test_blocks_of_a_mebibyte_are_mixed_too() -> None:
    assert variation(Sampler([1280] * 46 + [1120], BATCH, "block", 1)) <= 0.20


def test_file_order_mixes_nothing() -> None:
    assert variation(Sampler(BLOCKS, BATCH)) > 0.85


@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_a_cursor_is_small(shuffle: Any) -> None:
    order = Sampler([10**6] * 10**4, 2**14, shuffle, 2**63 - 1, skip=10**9, fingerprint="0" * 16)
    assert len(json.dumps(order.cursor(10**12))) < 300
