"""Slices: SINGA's own numbers, and that nothing is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.slices import MAX_SLICE, partition_slices, slice_sizes, slice_table

SIZES = [14112, 96, 256, 884736, 384]
LENET = [2400, 32, 25600, 32, 51200, 64, 57600, 10]
SLICES = [97984, *[112448] * 6, 112064]


@pytest.mark.parametrize(
    ("n", "cut"),
    [
        (1, [884736]),
        (2, [435328, 449408]),
        (3, [285398, 299862, 299476]),
        (4, [210432, 224896, 224896, 224512]),
        (8, SLICES),
    ],
)
def test_params_are_cut_as_singa_cuts_them(n: int, cut: list[int]) -> None:
    assert slice_sizes(n, SIZES) == [[14112], [96], [256], cut, [384]]


def test_small_nets_are_cut_as_singa_cuts_them() -> None:
    assert slice_sizes(0, SIZES) == []
    assert slice_sizes(2, [100]) == [[50, 50]]
    assert slice_sizes(2, LENET)[4] == [40405, 10795]
    assert slice_sizes(4, LENET)[4] == [6172, 34236, 10792]
    assert slice_sizes(4, LENET)[6] == [23380, 34220]


@pytest.mark.parametrize(
    ("n", "boxes"),
    [
        (1, [0] * 8),
        (2, [0, 0, 0, 0, 1, 1, 1, 1]),
        (3, [0, 0, 0, 1, 1, 2, 2, 2]),  # SINGA assigns the last one to a box that does not exist, 3
        (4, [0, 0, 1, 1, 2, 2, 3, 3]),
        (8, list(range(8))),
    ],
)
def test_slices_are_assigned_as_singa_assigns_them(n: int, boxes: list[int]) -> None:
    assert partition_slices(n, SLICES) == boxes


@given(st.lists(st.integers(1, 3 * MAX_SLICE), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 5))
def test_a_table_covers_every_value_once(sizes: list[int], n_groups: int, n_servers: int) -> None:
    table = slice_table(sizes, n_groups, n_servers)
    assert [piece.id for piece in table] == list(range(len(table)))
    assert all(0 <= piece.server < n_servers and 0 <= piece.master < n_groups for piece in table)
    assert all(piece.size <= MAX_SLICE for piece in table)
    for param, size in enumerate(sizes):
        pieces = [(piece.start, piece.stop) for piece in table if piece.param == param]
        assert [start for start, _ in pieces] == [0, *[stop for _, stop in pieces[:-1]]]
        assert pieces[-1][1] == size
