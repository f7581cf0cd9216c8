"""A change names the rooms that it touches, and the soak tests that examine them."""

from __future__ import annotations

import pytest

from tests.affected import EXAMINED, has_soak_tests, rooms_above, rooms_of, soak_tests
from tests.test_layering import LEVELS, ROOT


@pytest.mark.parametrize(
    ("path", "room", "soak"),
    [
        ("singa_dask/runtime/units/server.py", "runtime", "tests/faults"),
        ("singa_dask/comm/stub.py", "comm", "tests/faults"),
        ("singa_dask/ops/numpy/linear.py", "ops", "tests/contracts"),
        ("singa_dask/data/stores/messages/lmdb.py", "data", "tests/fuzz"),
        ("tests/contracts/test_ops.py", "ops", "tests/contracts"),
        ("tests/net/test_partition.py", "net", "tests/oracles"),
    ],
)
def test_a_change_has_a_room_and_soak_tests(path: str, room: str, soak: str) -> None:
    assert room in rooms_of([path])
    assert soak in soak_tests(rooms_of([path]))


def test_what_is_no_part_of_the_package_has_no_room() -> None:
    assert rooms_of(["README.md", "docs/hdfs.md", "setup.cfg", "tests/selection.py"]) == set()


@pytest.mark.long
def test_rooms_above_are_those_that_import() -> None:
    assert {"net", "training"} <= rooms_above({"layers"})
    assert "ops" not in rooms_above({"layers"})


def test_each_soak_test_examines_a_room() -> None:
    """Soak tests of a folder that is named after no room are in the table."""
    places = {path.relative_to(ROOT).as_posix() for path in has_soak_tests()}
    assert {place for place in places if place not in EXAMINED and place.removeprefix("tests/") not in LEVELS} == set()
    assert set(EXAMINED) <= places
