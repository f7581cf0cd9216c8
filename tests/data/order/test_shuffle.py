"""Permutations: the same in all versions."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data import random
from singa_dask.data.random import permutation
from tests.selection import few_examples


@pytest.mark.parametrize(("n", "crc"), [(1000, 666993761), (8192, 1909826416), (100_000, 3041509660)])
def test_permutations_never_change(n: int, crc: int) -> None:
    found = permutation(n, 7, "full", 0)
    assert found.dtype == np.int64
    assert zlib.crc32(found.tobytes()) == crc


@few_examples(25)
@given(
    high=st.lists(st.integers(0, 3), max_size=2 * random.MIN_PACKED),
    low=st.lists(st.integers(0, 100), min_size=2 * random.MIN_PACKED, max_size=2 * random.MIN_PACKED),
)
def test_numbers_that_differ_in_few_bits(high: list[int], low: list[int]) -> None:
    numbers = np.array([(a << 62) + b for a, b in zip(high, low, strict=False)], np.uint64)
    assert random._argsort(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
