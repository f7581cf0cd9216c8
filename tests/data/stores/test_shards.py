"""Sets of files as one store: a set of which a file is missing is refused, unless the pattern asks for a part."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from singa_dask import fs
from singa_dask.data.stores import detect, open_store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.shards import shard_url, shard_urls
from singa_dask.errors import DataError
from singa_dask.fs import decompression, open_bytes
from singa_dask.fs.io_threads import MAX_OPENING
from tests.contracts.foreign import zipped
from tests.contracts.records import pixels, written


def make(folder: Path, name: str, count: int, *missing: int) -> None:
    for i in set(range(count)) - set(missing):
        (folder / shard_url(name, i, count)).touch()


def test_a_whole_set(tmp_path: Path) -> None:
    for i in range(3):
        written(tmp_path, "arrow", pixels(4), f"a-{i:05d}-of-00003")
    with open_store(str(tmp_path / "a-*.arrow")) as store:
        assert store.count == 12


def test_blocks_are_mapped_if_those_of_all_files_are(tmp_path: Path) -> None:
    written(tmp_path, "arrow", pixels(4), "a")
    with open_store(str(tmp_path / "*.arrow")) as store:
        assert store.mapped
    written(tmp_path, "arrow", pixels(4), "b", compression="lz4")
    with open_store(str(tmp_path / "*.arrow")) as store:
        assert not store.mapped


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


def gzipped(folder: Path, count: int) -> str:
    for i in range(count):
        (folder / f"{i}.jsonl").write_text(f'{{"x": [{i}, 1.5], "label": {i}}}\n' * 2)
        zipped(folder / f"{i}.jsonl")
    return str(folder / "*.jsonl.gz")


def test_gzipped_files_are_decompressed_together_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = gzipped(tmp_path, 6)
    two, decompress = threading.Barrier(2), decompression.gunzip
    seen: list[str] = []
    decompress = decompression.gunzip

    def gunzip(source: Any, limit: int) -> memoryview:
        seen.append(source.url)
        two.wait()
        return decompress(source, limit)

    monkeypatch.setattr(open_bytes, "gunzip", gunzip)
    with open_store(url) as store:
        assert [each.url for each in store.parts] == [str(tmp_path / f"{i}.jsonl.gz") for i in range(6)]
        labels = np.concatenate([store.read_block(block.id)["label"] for block in store.blocks])
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert sorted(seen) == [str(tmp_path / f"{i}.jsonl.gz") for i in range(6)]


def test_stores_share_the_threads_that_open_their_files(tmp_path: Path) -> None:
    url = gzipped(tmp_path, 3)
    for _ in range(5):
        open_store(url).close()
    assert 0 < len([each for each in threading.enumerate() if each.name.startswith("open-")]) <= MAX_OPENING


def test_the_first_file_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = gzipped(tmp_path, 9)
    for i in (3, 7):
        path = tmp_path / f"{i}.jsonl.gz"
        path.write_bytes(path.read_bytes()[:-3])
    n_open = Counter[str]()
    opened, closed = RangeStore.__init__, RangeStore.close
    monkeypatch.setattr(
        RangeStore,
        "__init__",
        lambda store, *given, **options: (n_open.update([given[0]]), opened(store, *given, **options))[1],
    )
    monkeypatch.setattr(RangeStore, "close", lambda store: (n_open.subtract([store.url]), closed(store))[1])
    with pytest.raises(DataError, match=r"/3\.jsonl\.gz: the gzip file is damaged"):
        open_store(url)
    assert {each for each, n in n_open.items() if n and "*" not in each} == set()


def test_the_format_is_detected_by_one_look_at_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    fs.write_atomic("memory://looks/a.csv", b"1,2,3\n" * 50)
    asked: list[str] = []
    for name in ("exists", "info", "isdir", "size"):
        known = getattr(MemoryFileSystem, name)
        monkeypatch.setattr(MemoryFileSystem, name, lambda *given, n=name, f=known: (asked.append(n), f(*given))[1])
    assert detect("memory://looks/a.csv") == "csv"
    assert asked == ["info"]
    with pytest.raises(DataError, match=r"^memory://looks/b\.csv: no such file .* Did you mean '.*/a\.csv'\?$"):
        detect("memory://looks/b.csv")
