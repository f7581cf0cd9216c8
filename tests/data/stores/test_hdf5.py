"""HDF5: which arrays are read, their types and chunks, and what is refused."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store, write_manifest
from singa_dask.errors import ConfigError, DataError
from singa_dask.testing.store_exam import check_fetched
from tests.contracts.records import assert_same, read_all
from tests.selection import mostly_soak

ROWS = np.random.default_rng(0).integers(0, 200, (50, 4, 3))
LABELS = np.arange(50) % 3


def written(folder: Path, name: str = "x.h5", **arrays: Any) -> str:
    with h5py.File(folder / name, "w") as file:
        for key, (values, options) in arrays.items():
            file.create_dataset(key.replace("__", "/"), data=values, **options)
    return str(folder / name)


KINDS = ["u1", ">i2", "i8", "f2", "<f8", "?"]
CHUNKS: list[dict[str, Any]] = [
    {},
    {"chunks": (7, 4, 3)},
    {"chunks": (9, 3, 2), "compression": "gzip", "shuffle": True, "fletcher32": True},
    {"chunks": (20, 4, 3), "compression": "lzf", "shuffle": True},
    {"chunks": (64, 4, 3), "maxshape": (None, 4, 3)},
]


@pytest.mark.parametrize(("kind", "options"), mostly_soak(itertools.product(KINDS, CHUNKS), 4))
def test_types_and_chunks(kind: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.data.stores.arrays.stored_array.BLOCK_BYTES", 300)
    values = ROWS.astype(kind)
    with open_store(written(tmp_path, X=(values, options), y=(LABELS, {}))) as store:
        name = "pixel" if kind == "u1" else "data"
        found = read_all(store)
        assert_same(found, {name: values.astype(found[name].dtype), "label": LABELS.astype(np.int32)})
        assert store.mapped == (kind == "u1" and not options)
        check_fetched(store)


def test_small_chunks_are_read_by_few_requests(tmp_path: Path) -> None:
    url = written(tmp_path, data=(ROWS, {"chunks": (1, 4, 3), "compression": "gzip"}))
    fs.write_atomic("memory://hdf5/x.h5", Path(url).read_bytes())
    with open_store("memory://hdf5/x.h5") as store:
        assert (len(store.blocks), len(store.ranges(0))) == (1, 1)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(read_all(store)["data"], ROWS)
    fs.remove_tree("memory://hdf5")


@pytest.mark.parametrize("text", [["cat", "dog", "fox"], ["cat", "a longer name", "ö"]])
@pytest.mark.parametrize("options", [{}, {"chunks": (8,), "compression": "gzip"}])
@pytest.mark.parametrize("fixed", [False, True])
def test_labels_of_text(text: list[str], options: dict[str, Any], fixed: bool, tmp_path: Path) -> None:
    labels: Any = [text[label] for label in LABELS]
    labels = np.array([each.encode() for each in labels]) if fixed else labels
    with open_store(written(tmp_path, x=(ROWS, {}), label=(labels, options))) as store:
        assert store.class_names == tuple(sorted(text))
        assert [store.class_names[label] for label in store.read_labels(0)] == [text[label] for label in LABELS]


def test_arrays_and_class_names_are_found_by_name(tmp_path: Path) -> None:
    url = written(tmp_path, train__pictures=(ROWS, {}), train__y=(LABELS, {}), test__x=(ROWS[:9], {}))
    with h5py.File(url, "a") as file:
        file["train/y"].attrs["classes"] = ["cat", "dog", "fox"]
    with open_store(url, features="train/pictures") as store:
        assert (store.count, list(store.schema), store.class_names) == (50, ["data", "label"], ("cat", "dog", "fox"))
    with open_store(url, features="test/x") as store:
        assert (store.count, list(store.schema)) == (9, ["data"])
    names = r"Arrays: test/x, train/pictures, train/y\."
    with pytest.raises(
        DataError, match=rf"x\.h5: there is no array called images or .*{names} Set the options features and"
    ):
        open_store(url)
    with pytest.raises(DataError, match=rf"x\.h5: there is no array called 'labels'. {names}$"):
        open_store(url, features="test/x", label="labels")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": (ROWS, {}), "y": (LABELS[:9], {})}, r"have different lengths: \{'x': 50, 'y': 9\}"),
        ({"x": (ROWS, {}), "y": (LABELS / 2, {})}, r"y, record 1: the label 0.5 is not an integer"),
        ({"x": (ROWS, {}), "y": (np.eye(3)[LABELS], {})}, r"one label for each record. If they are one-hot"),
        ({"x": (ROWS * 1j, {})}, "the values are of type complex128, expected numbers"),
        ({"x": (np.float32(3), {})}, "a single number"),
        ({"x": (["a", "b"], {})}, "expected numbers"),
        ({"x": (ROWS[:0], {"maxshape": (None, 4, 3)})}, "the array is empty"),
        ({"x": (ROWS, {"scaleoffset": 3})}, "scaleoffset, which is not supported"),
    ],
)
def test_arrays_that_are_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        open_store(written(tmp_path, **arrays))


def test_files_that_would_be_read_wrongly_are_refused(tmp_path: Path) -> None:
    url = written(tmp_path, x=(ROWS, {}))
    for attribute, message in (
        ("MATLAB_class", "reverse order"),
        ("scale_factor", "scale_factor, which is not supported"),
    ):
        with h5py.File(url, "a") as file:
            file["x"].attrs[attribute] = 2.0
        with pytest.raises(DataError, match=message):
            open_store(url)
        with h5py.File(url, "a") as file:
            del file["x"].attrs[attribute]
    with h5py.File(url, "w") as file:
        file.create_dataset("x", (50, 3), "f4", chunks=(10, 3))[:20] = 1
    with pytest.raises(DataError, match=r"x: 2 of 5 chunks are there"):
        open_store(url)


def test_chunks_that_decompress_to_another_size_are_refused(tmp_path: Path) -> None:
    url = written(tmp_path, x=(ROWS, {"chunks": (25, 4, 3), "compression": "gzip"}))
    with h5py.File(url, "a") as file:
        for n in (10, 100_000):
            other = file.create_dataset(f"n{n}", data=ROWS[:25], chunks=(25, 4, 3), compression="gzip")
            one = file.create_dataset(f"of{n}", data=np.zeros(n), chunks=(n,), compression="gzip")
            other.id.write_direct_chunk((0, 0, 0), one.id.read_direct_chunk((0,))[1])
    for n, message in ((10, "has 80 bytes of values, expected 2400"), (100_000, "has more than 2400 bytes")):
        with (
            open_store(url, features=f"n{n}") as store,
            pytest.raises(DataError, match=rf"x\.h5, block 0: a chunk .*{message}"),
        ):
            store.read_block(0)


def test_a_manifest_finds_other_labels(tmp_path: Path) -> None:
    url = written(tmp_path, x=(ROWS, {}), y=(LABELS, {}))
    write_manifest(url)
    with open_store(url) as store:
        assert store.blocks[0].crc is not None
    with h5py.File(url, "a") as file:
        file["y"][7] += 1
    with pytest.raises(DataError, match=r"x\.h5: the labels differ from those in its manifest"):
        open_store(url)


def test_the_package_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = written(tmp_path, x=(ROWS, {}))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"x\.h5: the package h5py cannot .*pip install 'singa-dask\[hdf5\]'"):
        open_store(url)
