"""Sets of files as one store: a set of which a file is missing is refused, unless the pattern asks for a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from singa_dask.data import open_store
from singa_dask.data.stores.shards import shard_url, shard_urls
from singa_dask.errors import DataError
from tests.contracts.records import pixels, written


def make(folder: Path, name: str, count: int, *missing: int) -> None:
    for i in set(range(count)) - set(missing):
        (folder / shard_url(name, i, count)).touch()


def test_a_whole_set(tmp_path: Path) -> None:
    for i in range(3):
        written(tmp_path, "arrow", pixels(4), f"a-{i:05d}-of-00003")
    with open_store(str(tmp_path / "a-*.arrow")) as store:
        assert store.count == 12


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ([1], r"a-00001-of-00009\.arrow is missing, expected the whole set"),
        ([0, 8], r"a-00000-of-00009\.arrow, a-00008-of-00009\.arrow are missing"),
        ([0, 1, 2, 3, 4], r"a-00000-of-00009\.arrow, .* and 2 more are missing"),
    ],
)
def test_missing_files_are_named(missing: list[int], said: str, tmp_path: Path) -> None:
    make(tmp_path, "b.arrow", 2)
    make(tmp_path, "a.arrow", 9, *missing)
    with pytest.raises(DataError, match=rf"\*\.arrow: {said}"):
        shard_urls(str(tmp_path / "*.arrow"))
    assert len(shard_urls(str(tmp_path / "b-*.arrow"))) == 2


def test_a_part_of_a_set_that_is_asked_for(tmp_path: Path) -> None:
    make(tmp_path, "a.arrow", 4, 3)
    found = shard_urls(str(tmp_path / "a-0000[0-2]-of-00004.arrow"))
    assert [Path(url).name for url in found] == [f"a-0000{i}-of-00004.arrow" for i in range(3)]
