"""Converters from every kind to every store of ours: shards, images, characters, and the look at what was written."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from singa_dask.data.convert.source_kinds import open_source
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from tests.contracts.foreign import FOREIGN, png, shape_of, tar, write_foreign
from tests.contracts.records import SUFFIX, assert_same, floats, pixels, read_all, written
from tests.converting import convert
from tests.data.convert.test_convert import each_with_another
from tests.selection import few_examples, mostly_soak

OURS = ["arrow", "kvfile", "lmdb", "parquet"]


def read(url: str | Path, **options: Any) -> Arrays:
    with open_store(str(url), **options) as store:
        return read_all(store)


@pytest.mark.parametrize(("kind", "backend"), mostly_soak(each_with_another(FOREIGN, OURS), len(OURS)))
def test_files_of_others_to_each_store(kind: str, backend: str, tmp_path: Path) -> None:
    records = pixels(20, shape_of(kind))
    records["label"] = np.sort(records["label"] % 3)
    url = write_foreign(tmp_path, kind, records)
    sources = [url, url.replace("images-idx3", "labels-idx1")] if kind == "idx" else [url]
    target = str(tmp_path / f"out{SUFFIX[backend]}")
    assert convert(kind, sources, target, verify=True) == {target: 20}
    assert_same(read(target), records)


@pytest.mark.parametrize("kind", ["idx", "text", "words"])
def test_sources_of_several_files_are_pickled(kind: str, tmp_path: Path) -> None:
    if kind == "idx":
        url = write_foreign(tmp_path, kind, pixels(20, (4, 5)))
        urls, options = [url, url.replace("images-idx3", "labels-idx1")], {}
    else:
        urls = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
        for each in urls:
            Path(each).write_text("one two three\nfour\n" * 9)
        options = {"vocabulary": str(tmp_path / "vocabulary"), "window" if kind == "text" else "class_size": 3}
    with open_source(kind, urls, **options) as source, pickle.loads(pickle.dumps(source)) as copy:
        assert type(copy) is type(source)
        assert (copy.url, copy.fingerprint) == (source.url, source.fingerprint)
        assert_same(read_all(copy), read_all(source))


values = st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 5)).flatmap(
    lambda shape: arrays.arrays(np.uint8, shape) | arrays.arrays(np.float32, shape, elements=st.floats(-1, 1, width=32))
)


@few_examples(10)
@given(value=values, chain=st.lists(st.sampled_from(OURS), min_size=2, max_size=4), labelled=st.booleans())
def test_records_pass_through_any_stores(
    value: np.ndarray, chain: list[str], labelled: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    records: Arrays = {"pixel" if value.dtype == np.uint8 else "data": value}
    if labelled:
        records["label"] = np.arange(len(value), dtype=np.int32) - 3
    url = written(folder, chain[0], records, "0")
    for i, (kind, backend) in enumerate(itertools.pairwise(chain), 1):
        target = str(folder / f"{i}{SUFFIX[backend]}")
        convert(kind, [url], target, verify=True)
        url = target
    assert_same(read(url), records)


@pytest.mark.parametrize("backend", OURS)
def test_shards_are_one_store_with_the_same_records(backend: str, tmp_path: Path) -> None:
    source = written(tmp_path, "arrow", pixels(100))
    target = str(tmp_path / f"out{SUFFIX[backend]}")
    options: dict[str, Any] = {"shuffle": 3, "verify": True}
    convert("arrow", [source], target, **options)
    shards = convert("arrow", [source], str(tmp_path / f"s{SUFFIX[backend]}"), shards=3, **options)
    assert list(shards) == [str(tmp_path / f"s-0000{i}-of-00003{SUFFIX[backend]}") for i in range(3)]
    assert list(shards.values()) == [34, 33, 33]
    assert_same(read(tmp_path / f"s-*{SUFFIX[backend]}"), read(target))


def test_shards_of_a_split(tmp_path: Path) -> None:
    source = written(tmp_path, "arrow", pixels(100))
    found = convert("arrow", [source], str(tmp_path / "o.arrow"), split={"train": 0.8, "test": 0.2}, shards=2)
    names = ["train-00000", "train-00001", "test-00000", "test-00001"]
    assert [Path(url).name for url in found] == [f"o-{name}-of-00002.arrow" for name in names]
    assert list(found.values()) == [40, 40, 10, 10]


def test_a_pattern_is_a_source(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"part-{i}.tar").write_bytes(tar([("a.png", png(pixels(1, (3, 2, 2), seed=i)["pixel"][0]))]))
    convert("webdataset", [str(tmp_path / "part-*.tar")], str(tmp_path / "out.arrow"))
    expected = np.concatenate([pixels(1, (3, 2, 2), seed=i)["pixel"] for i in range(2)])
    assert_same(read(tmp_path / "out.arrow"), {"pixel": expected})


@pytest.mark.parametrize("kind", ["image-folder", "webdataset"])
def test_images_of_any_size_by_resize(kind: str, tmp_path: Path) -> None:
    images = [np.full((3, 4 + i, 9 - i), 40 * i, np.uint8) for i in range(5)]
    if kind == "webdataset":
        url = tmp_path / "x.tar"
        url.write_bytes(tar([(f"{i}.png", png(image)) for i, image in enumerate(images)]))
    else:
        url = tmp_path / "x"
        (url / "only").mkdir(parents=True)
        for i, image in enumerate(images):
            (url / "only" / f"{i}.png").write_bytes(png(image))
    with pytest.raises(DataError, match=r"but the first has|other records hold|holds pixel .* expected"):
        convert(kind, [str(url)], str(tmp_path / "out.arrow"))
    assert not (tmp_path / "out.arrow").exists()
    convert(kind, [str(url)], str(tmp_path / "out.arrow"), reading={"resize": [6, 8]})
    found = read(tmp_path / "out.arrow")["pixel"]
    assert found.shape == (5, 3, 6, 8)
    np.testing.assert_array_equal(found, np.broadcast_to(40 * np.arange(5)[:, None, None, None], found.shape))


def test_the_mean_of_images_as_singa_writes_it(tmp_path: Path) -> None:
    records = pixels(10, (3, 4, 5))
    source = written(tmp_path, "arrow", records)
    convert("arrow", [source], str(tmp_path / "out.bin"), mean=str(tmp_path / "image_mean.bin"))
    found = read(tmp_path / "image_mean.bin")
    assert_same(found, {"data": records["pixel"].mean(axis=0, dtype=np.float64)[None].astype(np.float32)})


def test_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("hello wörld\r\n".encode())
    (tmp_path / "b.txt").write_text("say hello")
    vocabulary = tmp_path / "vocab.txt"
    sources, options = [str(tmp_path / f"{name}.txt") for name in "ab"], {"vocabulary": str(vocabulary), "window": 4}
    convert("text", sources, str(tmp_path / "out.arrow"), reading=options)
    characters = vocabulary.read_bytes().decode()
    assert characters == "\n\r adehlorswyö"
    found = read(tmp_path / "out.arrow")["pixel"]
    assert found.shape == (5, 4)
    assert "".join(characters[i] for i in found.ravel()) == "hello wörld\r\nsay hel"
    (tmp_path / "b.txt").write_text("Say")
    with pytest.raises(DataError, match=r"b\.txt:1:1: character 'S' is not in the vocabulary"):
        convert("text", sources, str(tmp_path / "out.arrow"), reading=options)


def test_many_characters_become_floats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(map(chr, range(1000, 1300))))
    options = {"vocabulary": str(tmp_path / "vocab.txt"), "window": 300}
    convert("text", [str(tmp_path / "a.txt")], str(tmp_path / "out.arrow"), reading=options)
    assert_same(read(tmp_path / "out.arrow"), {"data": np.arange(300, dtype=np.float32)[None]})


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (b"ab\xffcd", {}, r"a\.txt, line 1: the text is not UTF-8: byte 2 is 0xff"),
        (b"abc", {"window": 4}, r"a\.txt: the text has 3 characters, fewer than a window of 4"),
        (b"abc", {"window": 0}, r"a\.txt: the window is 0 characters, expected 1 or more"),
    ],
)
def test_bad_text(text: bytes, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(text)
    reading = {"vocabulary": str(tmp_path / "vocab.txt"), **options}
    with pytest.raises(DataError, match=message):
        convert("text", [str(tmp_path / "a.txt")], str(tmp_path / "out.arrow"), reading=reading)


@pytest.mark.parametrize("labels", [True, False])
def test_verify_of_text(labels: bool, tmp_path: Path) -> None:
    source = written(tmp_path, "arrow", floats(10, labels=labels))
    target = str(tmp_path / "out.csv")
    assert convert("arrow", [source], target, verify=True, writing={"separator": ";"}) == {target: 10}


def test_verify_finds_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = written(tmp_path, "arrow", floats(10)), str(tmp_path / "out.parquet")
    parquet = STORES.find("parquet")
    write = parquet.write

    def damaged(url: str, records: Iterable[Arrays], storage_options: Any = None, keys: str = "") -> None:
        (chunk,) = records
        data = chunk["data"].copy()
        data[3, 0] += 1
        write(url, {**chunk, "data": data}, storage_options)

    convert("arrow", [source], target, verify=True)
    monkeypatch.setattr(parquet, "write", damaged)
    with pytest.raises(DataError, match=r"out\.parquet, block 0, record 3: data differs"):
        convert("arrow", [source], target, verify=True)


@pytest.mark.parametrize("backend", ["arrow", "parquet"])
def test_targets_of_a_table_are_kept(backend: str, tmp_path: Path) -> None:
    source, destination = tmp_path / "prices.csv", str(tmp_path / f"out{SUFFIX[backend]}")
    source.write_text("rooms,area,price\n2,50,0.25\n3,70.5,0.5\n")
    convert("table", [str(source)], destination, verify=True, reading={"target": ["price"]})
    with open_store(destination) as store:
        records = read_all(store)
    assert records["data"].tolist() == [[2, 50], [3, 70.5]]
    assert records["target"].tolist() == [[0.25], [0.5]]


def test_a_format_without_targets_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "prices.csv"
    source.write_text("rooms,price\n2,0.25\n")
    with pytest.raises(DataError, match=r"out\.bin: kvfile cannot store targets, .* Write arrow or parquet, or leave"):
        convert("table", [str(source)], str(tmp_path / "out.bin"), reading={"target": ["price"]})
