"""Rows: any chunks in, chunks of one length out; so a store's bytes are the same however its records came."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from tests.contracts.records import SUFFIX, floats, pixels
from tests.converting import convert
from tests.selection import few_examples, mostly_long


def chunks(records: Arrays, cuts: list[int]) -> Iterator[Arrays]:
    """Cut records; some chunks are empty."""
    n = len(next(iter(records.values())))
    places = [0, *sorted(min(cut, n) for cut in cuts), n]
    for first, end in itertools.pairwise(places):
        yield {name: array[first:end] for name, array in records.items()}


@few_examples(25)
@given(n=st.integers(1, 50), cuts=st.lists(st.integers(0, 50), max_size=8), length=st.integers(1, 60))
def test_chunks_of_one_length(n: int, cuts: list[int], length: int) -> None:
    records = pixels(n, (2,))
    rows = Rechunker("x", chunks(records, cuts))
    found = list(rows.chunks(length))
    assert [len(chunk["label"]) for chunk in found[:-1]] == [length] * (len(found) - 1)
    assert (rows.taken, rows.record_bytes) == (n, 6)
    for name, array in records.items():
        np.testing.assert_array_equal(np.concatenate([chunk[name] for chunk in found]), array)


BACKENDS = ["arrow", "kvfile", "lmdb", "parquet", "csv"]


@pytest.mark.parametrize(("backend", "kind"), mostly_long(itertools.product(BACKENDS, ["u8", "f32"]), 3))
def test_the_bytes_do_not_depend_on_the_chunks(backend: str, kind: str, tmp_path: Path) -> None:
    records = pixels(3000, (30, 30)) if kind == "u8" else floats(3000, (100,), labels=False)
    cuts = [[], [1, 2, 2, 1000, 2999], list(range(0, 3000, 256)), [777]]
    urls = [tmp_path / f"{i}{SUFFIX[backend]}" for i in range(len(cuts))]
    for url, places in zip(urls, cuts, strict=True):
        STORES.find(backend).write(str(url), chunks(records, places) if places else records)
    contents = {(url / "data.mdb" if url.is_dir() else url).read_bytes() for url in urls}
    assert len(contents) == 1


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ([], "x: there are no records to write"),
        ([{"pixel": np.zeros((0, 2), np.uint8)}], "x: there are no records to write"),
        ([pixels(2, (2,)), pixels(2, (3,))], r"x: holds pixel \(3,\) uint8.*expected pixel \(2,\) uint8"),
        ([pixels(2), {**pixels(2), "label": np.zeros(3, np.int32)}], "have different lengths"),
    ],
)
def test_what_is_no_stream_of_records(stream: list[Arrays], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(Rechunker("x", stream).chunks(3))


def test_a_stream_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def stream() -> Iterator[Arrays]:
        yield pixels(5000)
        raise KeyError

    for backend in BACKENDS:
        with pytest.raises(KeyError):
            STORES.find(backend).write(str(tmp_path / f"x{SUFFIX[backend]}"), stream())
    assert [path.name for path in tmp_path.rglob("*")] == ["x.lmdb"]


@pytest.mark.parametrize("suffix", ["arrow", "parquet", "npz", "lmdb", "bin", "csv"])
def test_a_number_is_a_record_of_one_value(suffix: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([0.5, 1.5, 2.5]), y=np.arange(3))
    convert("npz", [str(tmp_path / "x.npz")], url := str(tmp_path / f"out.{suffix}"), verify=True)
    with open_store(url) as store:
        found = store.read_block(0)
    assert (found["data"].tolist(), found["label"].tolist()) == ([[0.5], [1.5], [2.5]], [0, 1, 2])
