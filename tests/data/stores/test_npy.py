"""npy files: types, orders, where labels are found, and what damaged files are reported as."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
from tests.contracts.records import assert_same, read_all

VALUES = np.random.default_rng(0).normal(size=(50, 3, 4))
LABELS = np.arange(50, dtype=np.int32) % 7


def refused(path: Path, message: str, **options: object) -> None:
    with pytest.raises(DataError) as caught, open_store(str(path), **options) as store:
        read_all(store)
    assert str(caught.value).replace(f"{path.parent}/", "") == message


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", "<f2", "<i8", "|i1", "|b1", "|u1"])
def test_numbers_of_all_types(kind: str, tmp_path: Path) -> None:
    values = (VALUES * 9).astype(np.uint8 if kind == "|u1" else kind)
    np.save(tmp_path / "x.npy", values)
    with open_store(str(tmp_path / "x.npy")) as store:
        name, dtype = ("pixel", np.uint8) if kind == "|u1" else ("data", np.float32)
        assert_same(read_all(store), {name: values.astype(dtype)})


@pytest.mark.parametrize("url", ["local", "memory"])
@pytest.mark.parametrize("pack", [np.asfortranarray, np.ascontiguousarray])
def test_orders_and_blocks(url: str, pack: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa_dask.data.stores.arrays.column.BLOCK_BYTES", 1000)
    np.save(tmp_path / "X_train.npy", pack(VALUES))
    np.save(tmp_path / "y_train.npy", LABELS[:, None].astype(float))
    folder = str(tmp_path)
    if url == "memory":
        folder = "memory://npy"
        for path in tmp_path.iterdir():
            fs.write_atomic(f"{folder}/{path.name}", path.read_bytes())
    with open_store(f"{folder}/X_train.npy") as store:
        assert len(store.blocks) > 3
        assert_same(read_all(store), {"data": VALUES.astype(np.float32), "label": LABELS})
    fs.remove_tree("memory://npy")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ("X.npy", "y.npy"),
        ("train_images.npy", "train_labels.npy"),
        ("x-00.npy", "y-00.npy"),
        ("max_x.npy", "max_y.npy"),
        ("features.npy", "labels.npy"),
    ],
)
def test_labels_beside_the_values(values: str, labels: str, tmp_path: Path) -> None:
    np.save(tmp_path / values, VALUES)
    with open_store(str(tmp_path / values)) as store:
        assert list(store.schema) == ["data"]
    np.save(tmp_path / labels, LABELS)
    with open_store(str(tmp_path / values)) as store:
        np.testing.assert_array_equal(read_all(store)["label"], LABELS)
    np.save(tmp_path / "other.npy", LABELS[::-1])
    with open_store(str(tmp_path / values), labels=str(tmp_path / "other.npy")) as store:
        np.testing.assert_array_equal(read_all(store)["label"], LABELS[::-1])


def test_arrays_that_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    large = VALUES.copy()
    large[7, 1, 1] = 1e300
    for values, message in (
        (np.float64(3), "x.npy: the array is a single number, expected a row for each record."),
        (np.array(["a"]), "x.npy: the values are of type <U1, expected numbers."),
        (np.zeros(2, "i4,f8"), "x.npy: the values are of type [('f0', '<i4'), ('f1', '<f8')], expected numbers."),
        (np.zeros(2, complex), "x.npy: the values are of type complex128, expected numbers."),
        (VALUES[:0], "x.npy: no records."),
        (
            large,
            "x.npy, block 0, record 7: the value 1e+300 is too large for float32, expected at most 3.4e+38. "
            "Scale the data first.",
        ),
    ):
        np.save(path, values)
        refused(path, message)
    np.save(path, np.array([None]), allow_pickle=True)
    refused(path, "x.npy: the values are of type object, expected numbers.")
    np.save(path, VALUES)
    for labels, message in (
        (LABELS[:3], "the arrays have different lengths: {'x.npy': 50, 'y.npy': 3}."),
        (
            np.eye(50),
            "the labels have shape (50, 50), expected one label for each record. If they are one-hot, write "
            "labels.argmax(1).",
        ),
    ):
        np.save(tmp_path / "y.npy", labels)
        refused(path, f"x.npy: {message}")
    np.save(tmp_path / "y.npy", np.full(50, 1 << 32))
    refused(path, "x.npy, block 0: y.npy, record 0: the label 4294967296 does not fit in 32 bits.")


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, VALUES)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused(
        path,
        "x.npy: the file has 4799 bytes of values, expected 4800 for (50, 3, 4) float64. It is truncated or damaged.",
    )
    path.write_bytes(whole + b"1")
    refused(
        path,
        "x.npy: the file has 4801 bytes of values, expected 4800 for (50, 3, 4) float64. It is truncated or damaged.",
    )
    path.write_bytes(whole[:6] + b"\4" + whole[7:])
    refused(path, "x.npy: not an npy file, or a damaged one: an npy file of version 4.0, expected at most 3.0.")
    path.write_bytes(b"what")
    refused(path, "x.npy: not an npy file, or a damaged one: not an npy file.")
    path.write_bytes(whole[:40])
    with pytest.raises(DataError, match=r"x\.npy: not an npy file, or a damaged one"):
        open_store(str(path))
