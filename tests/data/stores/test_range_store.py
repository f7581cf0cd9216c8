"""RangeStore: what a format need not do itself, shown by the format in its docstring."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.blocks import cut_blocks
from singa_dask.data.stores import open_store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from singa_dask.fs.sources import Range
from tests.contracts.foreign import write_foreign
from tests.contracts.records import assert_same, pixels, written


class Quads(RangeStore):
    """Records of four bytes, of which the first is the label."""

    title = "a file of quads"
    gzipped = True
    damage = (ValueError,)

    def index(self) -> None:
        n = self.open_source().size // 4
        self.blocks = cut_blocks(self.url, np.arange(n + 1) * 4, 20)
        self.schema = {"pixel": Field(np.dtype(np.uint8), (3,)), "label": Field(np.dtype(np.int32))}

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        rows = np.frombuffer(data[0], np.uint8).reshape(-1, 4)
        if 255 in rows[:, 0]:
            raise ValueError("a label of 255")
        return {"pixel": rows[:, 1:], "label": rows[:, 0].astype(np.int32)}


def quads(tmp_path: Path, n: int = 12) -> str:
    path = tmp_path / "a.quads"
    path.write_bytes(np.arange(4 * n, dtype=np.uint8).tobytes())
    return str(path)


def test_a_format_says_how_to_index_and_to_decode(tmp_path: Path) -> None:
    with Quads(quads(tmp_path)) as store, pickle.loads(pickle.dumps(store)) as copy:
        assert [block.n for block in store.blocks] == [5, 5, 2]
        assert store.ranges(1) == (Range(store.sources[0], 20, 20),)
        assert_same(store.read_block(1), copy.read_block(1, copy.fetch(1)))
        assert store.read_block(2)["label"].tolist() == [40, 44]
        assert not store.remote


def test_files_that_are_not_local_are_remote(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/a.quads"
    fs.write_atomic(url, Path(quads(tmp_path)).read_bytes())
    with Quads(url) as store, Quads(quads(tmp_path)) as near:
        assert store.remote
        for again in (False, True):
            assert_same(store.read_block(0, store.fetch(0, again)), near.read_block(0))


def test_errors_name_url_and_block(tmp_path: Path) -> None:
    url = quads(tmp_path)
    with Path(url).open("r+b") as file:
        file.seek(24)
        file.write(b"\xff")
    with Quads(url) as store:
        store.read_block(0)
        with pytest.raises(DataError, match=r"a\.quads, block 1: a label of 255\.$"):
            store.read_block(1)


def test_a_file_that_cannot_be_indexed_is_closed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Quads] = []

    def fail(store: Quads) -> None:
        opened.append(store)
        store.open_source()
        raise ValueError("odd")

    monkeypatch.setattr(Quads, "index", fail)
    with pytest.raises(DataError, match=r"a\.quads: not a file of quads, or a damaged one: odd\.$"):
        Quads(quads(tmp_path))
    with pytest.raises(DataError, match=r"of a file of|bytes at offset"):
        opened[0].sources[0].read(0, 100)


def test_no_records_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.quads: no records"):
        Quads(quads(tmp_path, 0))


def test_labels_and_pixels_of_one_record_are_one_range(tmp_path: Path) -> None:
    with open_store(write_foreign(tmp_path, "cifar", pixels(9, (3, 32, 32))), "cifar") as store:
        assert isinstance(store, RangeStore)
        assert [each[1:] for each in store.ranges(0)] == [(0, 9 * 3073)]
        assert store.mapped
    with open_store(written(tmp_path, "npz", pixels(9))) as store:
        assert isinstance(store, RangeStore)
        assert [each.length for each in store.ranges(0)] == [9 * 12, 9 * 4]


def test_shards_fetch_from_their_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        url = written(tmp_path, "arrow", pixels(9, seed=ord(name)), name=name)
        fs.write_atomic(f"memory://{tmp_path.name}/{name}.arrow", Path(url).read_bytes())
    with open_store(f"memory://{tmp_path.name}/*.arrow") as store, open_store(str(tmp_path / "*.arrow")) as near:
        assert isinstance(store, RangeStore)
        assert isinstance(near, RangeStore)
        assert store.remote
        assert not near.remote
        assert [store.ranges(i)[0].source.url[-7:] for i in (0, 1)] == ["a.arrow", "b.arrow"]
        for i in (0, 1):
            assert_same(store.read_block(i, store.fetch(i)), near.read_block(i))
