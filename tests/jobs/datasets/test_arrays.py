"""Arrays of NumPy and Dask as datasets: what their partitions become, and what cannot be records."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray
from dask import compute

from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.jobs.datasets.records import Dataset

X = np.arange(24, dtype=np.float64).reshape(12, 2)
Y = np.arange(12) % 3
NAMES = np.array(["dog", "cat", "owl"])[Y]
NAN = float("nan")


def write(dataset: Dataset, folder: Path) -> list[int]:
    """Write all partitions as another process would."""
    write_part = pickle.loads(pickle.dumps(dataset.write_part))
    values = compute(*dataset.parts, scheduler="synchronous")
    return [write_part(value, str(folder / dataset.file_name(i)), i) for i, value in enumerate(values)]


def read(folder: Path, dataset: Dataset) -> dict[str, np.ndarray]:
    with open_store(str(folder / dataset.pattern)) as store:
        blocks = [store.read_block(i) for i in range(len(store.blocks))]
        return {name: np.concatenate([block[name] for block in blocks]) for name in store.schema}


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (X, None, {"data": X.astype(np.float32)}),
        (X.astype(np.uint8), Y, {"pixel": X.astype(np.uint8), "label": Y}),
        (X > 3, Y[:, None], {"data": (X > 3).astype(np.float32), "label": Y}),
        (X.reshape(12, 2, 1), X[:, 0], {"data": X.astype(np.float32).reshape(12, 2, 1), "target": X[:, :1]}),
        (X.astype(np.int64), X, {"data": X, "target": X}),
        (X.astype(np.float16), Y == 1, {"data": X, "label": Y == 1}),
        (np.asfortranarray(X), NAMES, {"data": X, "label": [[1, 0, 2][i] for i in Y]}),
        (X[::-1], NAMES.astype(object), {"data": X[::-1], "label": [[1, 0, 2][i] for i in Y]}),
        (X, NAMES.astype("S"), {"data": X, "label": [[1, 0, 2][i] for i in Y]}),
    ],
)
def test_what_arrays_become(x: Any, y: Any, expected: dict[str, Any], lazy: bool, tmp_path: Path) -> None:
    if lazy:
        x, y = da.from_array(x, chunks=(5, 1, 1)[: x.ndim]), None if y is None else da.from_array(y, chunks=4)
    dataset = as_dataset("train", x if y is None else (x, y))
    facts = write(dataset, tmp_path)
    assert facts == ([5, 5, 2] if lazy else [12])
    found = read(tmp_path, dataset)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert (found[name] == np.asarray(values)).all()


def test_arrays_with_columns_of_other_kinds(tmp_path: Path) -> None:
    """Arrays of xarray, and y of pandas, Dask and pyarrow."""
    x = xarray.DataArray(X, dims=("record", "value"))
    for i, (features, y) in enumerate(
        [
            (x, pd.Series(NAMES)),
            (x, pd.Series(NAMES, dtype="category")),
            (x, pa.chunked_array([NAMES[:5], NAMES[5:]])),
            (x.chunk(record=4), xarray.DataArray(NAMES, dims="record")),
            (da.from_array(X, chunks=(4, 2)), dd.from_pandas(pd.Series(NAMES), npartitions=3)),
        ]
    ):
        (folder := tmp_path / str(i)).mkdir()
        dataset = as_dataset("train", (features, y))
        write(dataset, folder)
        found = read(folder, dataset)
        assert (found["data"] == X).all()
        assert found["label"].tolist() == [[1, 0, 2][i] for i in Y]
    with pytest.raises(DataError, match=r"xarray.*Dataset, expected .*Pass one of its variables"):
        as_dataset("train", x.to_dataset(name="x"))


def test_class_names_are_in_each_file(tmp_path: Path) -> None:
    dataset = as_dataset("train", (da.from_array(X, chunks=1), da.from_array(NAMES, chunks=1)))
    write(dataset, tmp_path)
    for path in tmp_path.iterdir():
        with open_store(str(path)) as store:
            assert store.class_names == ("cat", "dog", "owl")


@pytest.mark.parametrize("kind", ["numpy", "pandas", "dask"])
def test_weights(kind: str, tmp_path: Path) -> None:
    values: Any = {"numpy": Y + 0.5, "pandas": pd.Series(Y + 0.5), "dask": da.from_array(Y + 0.5, chunks=4)}[kind]
    x, y = (X, Y) if kind != "dask" else (da.from_array(X, chunks=5), Y)
    dataset = as_dataset("train", (x, y, values))
    write(dataset, tmp_path)
    found = read(tmp_path, dataset)
    np.testing.assert_array_equal(found["weight"], (Y + 0.5)[:, None])
    np.testing.assert_array_equal(found["label"], Y)


@pytest.mark.parametrize("wrong", [-1.0, NAN, np.inf])
def test_weights_that_are_none(wrong: float, tmp_path: Path) -> None:
    dataset = as_dataset("train", (X, Y, with_value(np.ones(12), wrong, 7)))
    with pytest.raises(DataError, match=rf"record 7, weights: the weight {wrong:g}, expected a number from 0 on"):
        write(dataset, tmp_path)


def test_chunks_of_unknown_lengths_and_empty_ones(tmp_path: Path) -> None:
    x, y = da.from_array(X, chunks=3), da.from_array(Y, chunks=3)
    kept = (y != 1) & (da.arange(12, chunks=3) < 9)
    dataset = as_dataset("train", (x[kept], y[kept]))
    assert write(dataset, tmp_path) == [2, 2, 2, 0]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"part-0000{i}.arrow" for i in range(3)]
    assert list(read(tmp_path, dataset)["label"]) == [0, 2] * 3
    # targets with an axis of their own or without
    for number, targets in enumerate((y + 0.5, (y + 0.5)[:, None])):
        (directory := tmp_path / str(number)).mkdir()
        dataset = as_dataset("train", (x[kept], targets[kept]))
        assert write(dataset, directory) == [2, 2, 2, 0]
        np.testing.assert_array_equal(read(directory, dataset)["target"], [[0.5], [2.5]] * 3)


def test_files_of_many_partitions_sort_by_name() -> None:
    dataset = Dataset("train", (None,) * 100_001, as_dataset("a", X).write_part, ".arrow")
    assert dataset.file_name(7) == "part-000007.arrow"
    assert as_dataset("a", X).file_name(7) == "part-00007.arrow"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], r"an object of type list, expected an array"),
        ((X, Y, Y, Y), r"a tuple of 4 items, expected an array"),
        ((X, None, Y), r"there are weights but no y, expected an array"),
        ((X, Y, Y[:7]), r"X has 12 records, but weights have 7"),
        ((X, Y, X), r"weights: the shape is \(12, 2\), expected \(records,\)"),
        ((X, Y, NAMES), r"weights: the values are of type <U3, expected numbers"),
        (X[:, 0], r"X: the array has 1 axes.*X\[:, None\]"),
        (X * 1j, r"X: values of type complex128, expected numbers\. Give real"),
        (np.array([[1], [2, 3]], object)[:, None], r"X: values of type object, .*different lengths"),
        (X.astype("datetime64[D]"), r"X: values of type datetime64\[D\], .*dates as numbers"),
        (X.astype(str), r"X: values of type <U32, .*categories"),
        (X[:0], r"no records"),
        (X[:, :0], r"X: the shape is \(12, 0\)"),
        ((X, Y[:7]), r"X has 12 records, but y has 7"),
        ((X, X.astype(int)), r"y: the shape is \(12, 2\) of int64, expected \(records,\)\. Several labels are columns"),
        ((X, Y.astype("M8[s]")), r"y: values of type datetime64\[s\]"),
        ((X, np.array(["a", None] * 6, object)), r"y, record 1: None, expected the name of a class"),
        (
            (da.from_array(X, chunks=4)[da.from_array(Y, chunks=4) > 0], Y[:8]),
            r"X has 3 chunks of records, but y has 1",
        ),
    ],
)
def test_values_that_cannot_be_records(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=rf"^dataset 'train'.*{message}"):
        as_dataset("train", value)


def with_value(array: np.ndarray, value: Any, place: Any) -> np.ndarray:
    """Return a copy of an array with one other value."""
    made = array.copy()
    made[place] = value
    return made


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (with_value(X, NAN, (9, 1)), Y, r"partition 2, X, record 1\[1\]: nan, .*missing: mean"),
        (with_value(X, 1e300, (9, 1)), Y, r"partition 2, X, record 1\[1\]: 1e\+300, expected a 32-bit float"),
        (X, with_value(X[:, 0], np.inf, 5), r"partition 1, y, record 1\[0\]: inf"),
        (X, with_value(Y, -1, 6), r"partition 1, y, record 2: the label -1 is negative"),
        (X, Y + 2**31 - 2, r"partition 0, y, record 2: the label 2147483648 does not fit in 32 bits"),
        (np.ma.masked_equal(X, 3), Y, r"partition 0, X: masked values"),
    ],
)
def test_wrong_values_of_partitions(x: Any, y: Any, message: str, tmp_path: Path) -> None:
    dataset = as_dataset("train", (da.from_array(x, chunks=4), da.from_array(y, chunks=4)))
    with pytest.raises(DataError, match=rf"^dataset 'train', {message}"):
        write(dataset, tmp_path)


def test_values_that_are_to_be_standardised_fit_in_32_bits_too(tmp_path: Path) -> None:
    write_part = as_dataset("train", with_value(X, 1e300, (9, 1))).write_part.widened()
    with pytest.raises(DataError, match=r"X, record 9\[1\]: 1e\+300, expected a 32-bit float"):
        write_part(with_value(X, 1e300, (9, 1)), str(tmp_path / "part.arrow"), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda block: block[:, :1], r"X: the records have shape \(1,\), expected \(2,\)"),
        (lambda block: block.astype(object), r"X: values of type object, expected numbers"),
        (lambda block: block[:-1], r"X has 3 records, but y has 4"),
        (lambda block: block.tolist(), r"X: an object of type builtins.list"),
    ],
)
def test_partitions_that_are_not_as_declared(change: Any, message: str, tmp_path: Path) -> None:
    x = da.from_array(X, chunks=(4, 2)).map_blocks(change, dtype=X.dtype, meta=X[:0])
    dataset = as_dataset("train", (x, da.from_array(Y, chunks=4)))
    with pytest.raises(DataError, match=rf"^dataset 'train', partition 0.*{message}"):
        write(dataset, tmp_path)
