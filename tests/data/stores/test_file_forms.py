"""Files as other programs write them: each is read exactly, or refused by an error that says why."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from PIL import Image

from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
from tests.contracts.foreign import example, frame

N = 6
IDS = np.arange(100, 100 + N)
LABELS = np.array([2, 0, 1, 1, 0, 2])
VALUES = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
NAMES = ["cat", "dog", "elk"]
TEXTS = [NAMES[label] for label in LABELS]
LISTS = pa.array(list(VALUES))
FEATURES = tuple("abc")

Write = Callable[[Path], str]


def parquet(columns: dict[str, Any], metadata: dict[bytes, bytes] | None = None) -> Write:
    def write(folder: Path) -> str:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), folder / "x.parquet")
        return str(folder / "x.parquet")

    return write


def feather(columns: dict[str, Any]) -> Write:
    def write(folder: Path) -> str:
        pa.feather.write_feather(pa.table(columns), str(folder / "x.arrow"), compression="uncompressed")
        return str(folder / "x.arrow")

    return write


def npz(**arrays: Any) -> Write:
    def write(folder: Path) -> str:
        np.savez(folder / "x.npz", allow_pickle=False, **arrays)
        return str(folder / "x.npz")

    return write


def hdf5(**arrays: Any) -> Write:
    def write(folder: Path) -> str:
        h5py = pytest.importorskip("h5py")
        with h5py.File(folder / "x.h5", "w") as file:
            for name, values in arrays.items():
                file[name] = values
        return str(folder / "x.h5")

    return write


def zarr(**arrays: Any) -> Write:
    def write(folder: Path) -> str:
        group = pytest.importorskip("zarr").open_group(str(folder / "x.zarr"), mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=values)
        return str(folder / "x.zarr")

    return write


def jsonl(**columns: Any) -> Write:
    def write(folder: Path) -> str:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        text = "".join(f"{json.dumps(row, default=lambda value: value.tolist())}\n" for row in rows)
        (folder / "x.jsonl").write_text(text)
        return str(folder / "x.jsonl")

    return write


def tfrecord(**columns: Any) -> Write:
    def write(folder: Path) -> str:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        (folder / "x.tfrecord").write_bytes(b"".join(frame(example(row)) for row in rows))
        return str(folder / "x.tfrecord")

    return write


def csv(header: str, *columns: Any, name: str = "x.csv") -> Write:
    def write(folder: Path) -> str:
        rows = (",".join(map(str, row)) for row in zip(*columns, strict=True))
        (folder / name).write_text("\n".join([*([header] if header else []), *rows, ""]))
        return str(folder / name)

    return write


def images(column: int) -> pa.Array:
    """Return a column as Hugging Face writes images, of one grey pixel each."""
    encoded = []
    for value in range(column, column + N):
        buffer = io.BytesIO()
        Image.new("L", (1, 1), value).save(buffer, "PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": None})
    return pa.array(encoded, pa.struct({"bytes": pa.binary(), "path": pa.string()}))


FIXED = pa.array([row.tobytes() for row in VALUES], pa.binary(12))
BYTES = [row.tobytes() for row in VALUES]
COLUMNS = VALUES.T.tolist()
TABLE = {"backend": "table"}
CLASS_LABEL = {b"huggingface": json.dumps({"info": {"features": {"kind": {"names": NAMES}}}}).encode()}
PERMUTED = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.float32(), (1, 3), permutation=[1, 0]),
    pa.FixedSizeListArray.from_arrays(VALUES.ravel(), 3),
)

# what is written, how it is opened, and the labels (None: there are none)
EXACT: dict[str, tuple[Write, dict[str, Any], Any]] = {
    **{
        f"parquet {name}": (parquet({"id": IDS, "x": LISTS, name: LABELS, "group": IDS}), {}, LABELS)
        for name in ("label", "labels", "y", "class", "target", "Class")
    },
    "parquet, named": (parquet({"id": IDS, "x": LISTS, "kind": LABELS}), {"label": "kind"}, LABELS),
    "parquet, one of two": (parquet({"x": LISTS, "y": LABELS, "class": IDS}), {"label": "y"}, LABELS),
    "parquet, one of two lists": (
        parquet({"image": pa.array([[1.0]] * N), "data": LISTS, "y": LABELS}),
        {"features": "data"},
        LABELS,
    ),
    "parquet, permuted": (parquet({"x": PERMUTED, "y": LABELS}), {}, LABELS),
    "parquet without a label": (parquet({"id": IDS, "x": LISTS}), {}, None),
    "feather": (feather({"id": IDS, "data": FIXED, "class": LABELS}), {}, LABELS),
    "feather, lists": (feather({"x": LISTS, "y": LABELS}), {}, LABELS),
    "feather, named": (feather({"data": FIXED, "y": IDS, "kind": LABELS}), {"label": "kind"}, LABELS),
    "feather without a label": (feather({"id": IDS, "data": FIXED}), {}, None),
    "npz": (npz(id=IDS, x=VALUES, **{"class": LABELS}), {}, LABELS),
    "npz, named": (npz(y=IDS, x=VALUES, kind=LABELS), {"label": "kind"}, LABELS),
    "npz without a label": (npz(id=IDS, x=VALUES), {}, None),
    "hdf5": (hdf5(id=IDS, x=VALUES, **{"class": LABELS}), {}, LABELS),
    "hdf5, text": (hdf5(id=IDS, x=VALUES, label=TEXTS), {}, LABELS),
    "hdf5, named": (hdf5(y=IDS, x=VALUES, kind=LABELS), {"label": "kind"}, LABELS),
    "zarr": (zarr(id=IDS, x=VALUES, **{"class": LABELS}), {}, LABELS),
    "jsonl": (jsonl(id=IDS, x=VALUES, **{"class": LABELS}), {}, LABELS),
    "jsonl, text": (jsonl(id=IDS, x=VALUES, y=TEXTS), {}, LABELS),
    "jsonl, named": (jsonl(y=IDS, x=VALUES, kind=LABELS), {"label": "kind"}, LABELS),
    "tfrecord": (tfrecord(id=IDS.tolist(), x=VALUES.tolist(), **{"class": LABELS.tolist()}), {}, LABELS),
    "tfrecord, named": (
        tfrecord(y=IDS.tolist(), x=VALUES.tolist(), kind=LABELS.tolist()),
        {"label": "kind"},
        LABELS,
    ),
    "tfrecord, one of two": (
        tfrecord(x=VALUES.tolist(), data=COLUMNS[:2] * 3, y=LABELS.tolist()),
        {"features": "x"},
        LABELS,
    ),
    "tfrecord, several": (
        tfrecord(id=IDS.tolist(), a=VALUES[:, 1:].tolist(), first=VALUES[:, :1].tolist(), y=LABELS.tolist()),
        {"features": ["first", "a"]},
        LABELS,
    ),
    "jsonl, one of two": (jsonl(x=VALUES, data=VALUES[:, :2], y=LABELS), {"features": "x"}, LABELS),
    "csv, label first": (csv("", LABELS, *COLUMNS), {}, LABELS),
    "csv, label first, by name": (csv("y,a,b,c", LABELS, *COLUMNS), {}, LABELS),
    "csv, text": (csv("a,b,c,kind", *COLUMNS, TEXTS), {**TABLE, "label": "kind"}, LABELS),
    "csv, ids": (csv("id,a,b,c,y", IDS, *COLUMNS, LABELS), {**TABLE, "features": FEATURES, "label": "y"}, LABELS),
    "csv, label by name": (csv("a,b,c,Class", *COLUMNS, LABELS), TABLE, LABELS),
    "csv, text, label by name": (csv("a,b,y,c", *COLUMNS[:2], TEXTS, COLUMNS[2]), TABLE, LABELS),
    "csv, label beside features": (csv("a,b,c,y", *COLUMNS, LABELS), {**TABLE, "features": FEATURES}, None),
    "csv, no label": (csv("a,b,c", *COLUMNS), TABLE, None),
    "csv, label not read": (csv("a,b,y", *COLUMNS), {**TABLE, "has_label": False}, None),
    "table of parquet": (
        parquet({"id": IDS, **dict(zip("abc", COLUMNS, strict=True)), "kind": TEXTS}),
        {**TABLE, "features": FEATURES, "label": "kind"},
        LABELS,
    ),
    "ClassLabel": (
        parquet({**dict(zip("abc", COLUMNS, strict=True)), "kind": LABELS}, CLASS_LABEL),
        {**TABLE, "label": "kind"},
        LABELS,
    ),
}


@pytest.mark.parametrize("form", EXACT)
def test_a_file_that_is_read(form: str, tmp_path: Path) -> None:
    write, options, labels = EXACT[form]
    with open_store(write(tmp_path), **options) as store:
        found = [store.read_block(block.id) for block in store.blocks]
        names = store.class_names
    values = np.concatenate([next(iter(block.values())) for block in found])
    if values.dtype == np.uint8:
        # fixed-size binary has no dtype
        values = values.view(np.float32)
    assert values.tobytes() == VALUES.tobytes()
    assert {*found[0]} - {"data", "pixel"} == ({"label"} if labels is not None else set())
    if labels is not None:
        assert np.concatenate([block["label"] for block in found]).tolist() == labels.tolist()
    has_names = form == "ClassLabel" or "text" in form or form == "table of parquet"
    assert names == (tuple(NAMES) if has_names else ())


BOTH = "could each be the label"
HUGE = pa.array([[1.0, 2.0]] * 3 + [[1.0, 1e39]] + [[1.0, 2.0]] * 2)
REFUSED: dict[str, tuple[Write, dict[str, Any], str]] = {
    "parquet, two": (
        parquet({"x": LISTS, "y": LABELS, "class": IDS}),
        {},
        f"y and class {BOTH}. Set user_conf: {{label",
    ),
    "parquet, two lists": (parquet({"a": LISTS, "b": LISTS, "y": LABELS}), {}, "a and b are arrays. Name one in"),
    "parquet, no such": (parquet({"x": LISTS, "y": LABELS}), {"label": "z"}, "no 'z' for the label. Fields: y."),
    "parquet, text": (parquet({"id": IDS, "x": LISTS, "label": TEXTS}), {}, "the label 'label' is of type string"),
    "parquet, lists": (parquet({"x": LISTS, "y": LISTS}), {"features": "x"}, "the label 'y' is of type list"),
    "parquet, too large": (parquet({"x": HUGE, "y": LABELS}), {}, "block 0, x, record 3: the value 1e+39 is too large"),
    "parquet, texts": (parquet({"x": [["a"]] * N, "y": LABELS}), {}, "no column of fixed-size binary"),
    "parquet, ragged": (
        parquet({"x": [[[1.0], [2.0]]] * (N - 1) + [[[1.0], [2.0, 3.0]]], "y": LABELS}),
        {},
        f"block 0, x, record {N - 1}: 2 values, expected 1.",
    ),
    "parquet, first empty": (
        parquet({"x": [[[]], *[[[1.0]]] * (N - 1)]}),
        {},
        "x, record 0: the record has no values, so its shape",
    ),
    "parquet, a null in a list": (
        parquet({"x": pa.array([[[1.0]], [None]] * 3, pa.list_(pa.list_(pa.float64())))}),
        {},
        "block 0, x: 3 lists are null.",
    ),
    "parquet, two columns of images": (
        parquet({"image": images(0), "img": images(9), "y": LABELS}),
        {},
        "image and img are images. Name one in",
    ),
    "feather, data and pixel": (feather({"data": FIXED, "pixel": FIXED, "y": LABELS}), {}, "data and pixel could each"),
    "feather, two": (feather({"data": FIXED, "y": LABELS, "class": IDS}), {}, f"y and class {BOTH}"),
    "feather, text": (feather({"data": FIXED, "y": TEXTS, "id": IDS}), {}, "the label 'y' is of type string"),
    "npz, two": (npz(x=VALUES, y=LABELS, target=IDS), {}, f"y and target {BOTH}"),
    "npz, two arrays": (npz(x=VALUES, data=VALUES, y=LABELS), {}, "data and x could each be the images or data"),
    "npz, text": (npz(x=VALUES, y=np.array(TEXTS), id=IDS), {}, "the values are of type <U3, expected integers"),
    "hdf5, two": (hdf5(x=VALUES, y=LABELS, label=IDS), {}, f"label and y {BOTH}"),
    "hdf5, two arrays": (hdf5(x=VALUES, data=VALUES, y=LABELS), {}, "data and x could each be the images or data"),
    "zarr, two": (zarr(x=VALUES, y=LABELS, label=IDS), {}, BOTH),
    "jsonl, two": (jsonl(x=VALUES, y=LABELS, label=IDS), {}, f"y and label {BOTH}"),
    "jsonl, two arrays": (
        jsonl(x=VALUES, data=VALUES, y=LABELS),
        {},
        "data and x could each be the values of a record. Set features",
    ),
    "jsonl, too large": (jsonl(x=[[1.0, 1e39]] * N, y=LABELS), {}, "line 1, column 'x': 1e+39 does not fit"),
    "tfrecord, two": (
        tfrecord(x=VALUES.tolist(), y=LABELS.tolist(), label=IDS.tolist()),
        {},
        BOTH,
    ),
    "tfrecord, two arrays": (
        tfrecord(x=VALUES.tolist(), data=VALUES.tolist(), y=LABELS.tolist()),
        {},
        "data and x could each be the image. Set user_conf: {features: NAME}",
    ),
    "tfrecord, numbers": (
        tfrecord(x=VALUES.tolist(), z=VALUES.tolist(), label=LABELS.tolist()),
        {},
        "x, z are numbers. Name the features of a record in user_conf: {features: [...]}",
    ),
    "tfrecord, bytes": (
        tfrecord(x=VALUES.tolist(), z=[b"z"] * N, label=LABELS.tolist()),
        {"features": ["x", "z"]},
        "z is bytes, expected numbers. Features: label, x, z",
    ),
    "tfrecord, both": (
        tfrecord(x=VALUES.tolist(), label=LABELS.tolist()),
        {"features": ["x", "label"], "label": "label"},
        "label is both a feature and the label",
    ),
    "csv, two": (csv("a,b,y,class", *COLUMNS[:2], LABELS, LABELS), TABLE, f"y and class {BOTH}. Set label: NAME"),
    "csv, a point": (csv("x,y,kind", *COLUMNS[:2], LABELS), TABLE, "y could be the label, or a coordinate"),
    "csv, label by name that is no class": (csv("a,y", *COLUMNS[:2]), TABLE, "column 'y': the label"),
    "csv, label elsewhere": (csv("n,a,b,c,y", IDS, *COLUMNS, LABELS), {}, "it is called 'y', but the label of a"),
    "csv, ids first": (
        csv("PassengerId,a,b,c,d", IDS, *COLUMNS, LABELS),
        {},
        "it is called 'PassengerId', but the label",
    ),
    "table, lists": (
        parquet({"id": IDS, "x": LISTS, "kind": LABELS}),
        {**TABLE, "label": "kind"},
        "column 'x' has an array in each record. Set features, with it or not; or read it",
    ),
    "csv, n.a.": (
        csv("a,b,c,kind", *COLUMNS[:2], [1.5, 2.5, "n.a.", 3.5, 4.5, 5.5], TEXTS),
        {**TABLE, "label": "kind"},
        "column 'c': 'n.a.' is not a number",
    ),
    "csv, too large": (csv("a,y", [1.0, 1e39] * 3, LABELS), {**TABLE, "label": "y"}, "does not fit in a float"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_a_file_that_is_refused(form: str, tmp_path: Path) -> None:
    write, options, said = REFUSED[form]
    url = write(tmp_path)
    with pytest.raises(DataError) as error, open_store(url, **options) as store:
        store.read_block(0)
    assert str(error.value).startswith(url)
    assert said in str(error.value)


@pytest.mark.parametrize(("features", "first"), [("img", 9), ("image", 0)])
def test_one_of_two_columns_of_images(features: str, first: int, tmp_path: Path) -> None:
    url = parquet({"image": images(0), "img": images(9), "y": LABELS})(tmp_path)
    with open_store(url, features=features, channels=1) as store:
        block = store.read_block(0)
    assert block["pixel"].ravel().tolist() == list(range(first, first + N))
    assert block["label"].tolist() == LABELS.tolist()


def test_keys_of_numbers_in_another_order_are_other_records(tmp_path: Path) -> None:
    (tmp_path / "x-0.jsonl").write_text('{"a": 1, "b": 2, "y": 0}\n')
    (tmp_path / "x-1.jsonl").write_text('{"b": 2, "a": 1, "y": 0}\n')
    with pytest.raises(DataError, match=r"x-1.jsonl: values of b, a, but a, b in .*x-0.jsonl"):
        open_store(str(tmp_path / "x-*.jsonl"))
    with open_store(str(tmp_path / "x-*.jsonl"), features=["a", "b"]) as store:
        assert [store.read_block(block)["data"].tolist() for block in (0, 1)] == [[[1, 2]], [[1, 2]]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_of_several_splits_are_not_one_table(suffix: str, tmp_path: Path) -> None:
    table = pa.table({"a": COLUMNS[0], "y": LABELS})
    for name in ("train-0", "train-1", "test-0", "part-0"):
        if suffix == "csv":
            (tmp_path / f"{name}.csv").write_text("a,y\n1,0\n2,1\n")
        else:
            pq.write_table(table, tmp_path / f"{name}.parquet")
    for url in (str(tmp_path), str(tmp_path / f"*.{suffix}")):
        with pytest.raises(DataError, match="files of test and train would be read as one dataset"):
            open_store(url, "table", label="y")
    with open_store(str(tmp_path / f"train-*.{suffix}"), "table", label="y") as store:
        assert store.count == (4 if suffix == "csv" else 2 * N)


def test_a_column_without_a_name_is_no_weight(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(",a,y\n0,1,0\n1,2,1\n")
    with open_store(str(tmp_path / "x.csv"), "table", label="y") as store:
        assert [(each.name, each.field) for each in store.table_columns] == [("", ""), ("a", "data"), ("y", "label")]


def test_huge_numbers_of_arrays_are_named(tmp_path: Path) -> None:
    values = np.array([[1.0, 2.0], [1.0, 1e39]])
    buffer = io.BytesIO()
    np.savez(buffer, x=values, y=LABELS[:2])
    (tmp_path / "x.npz").write_bytes(buffer.getvalue())
    with open_store(str(tmp_path / "x.npz")) as store, pytest.raises(DataError, match=r"record 1: the value 1e\+39"):
        store.read_block(0)
