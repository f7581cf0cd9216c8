"""Files that other programs wrote; PROVENANCE.md says which. SINGA's are read in tests/data and tests/training."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.data.stores import open_store
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from tests.contracts.records import read_all

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOT_FOREIGN = {"PROVENANCE.md", "__init__.py", "test_foreign.py"}
PIXELS = np.load(HERE / "images.npy").transpose(0, 3, 1, 2)
LABELS = np.arange(len(PIXELS)) % 3
NAMES = ("cat", "dog", "fox")
COLUMNS = ["length", "width", "height"]


def listed() -> dict[Path, str]:
    """Return the files of PROVENANCE.md and their checksums."""
    rows = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", (HERE / "PROVENANCE.md").read_text(), re.MULTILINE)
    return {ROOT / "tests" / name: checksum for name, checksum in rows}


@pytest.mark.parametrize("path", listed(), ids=lambda path: path.name)
def test_the_bytes_are_those_that_were_written(path: Path) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == listed()[path]


def test_every_file_is_listed() -> None:
    files = {path for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.name not in NOT_FOREIGN} <= set(listed())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tensorflow_raw.tfrecord", {"shape": [5, 4, 3]}),
        ("tensorflow_raw.tfrecord.gz", {"shape": [5, 4, 3]}),
        ("tensorflow_png.tfrecord", {}),
        ("webdataset.tar.gz", {}),
        ("caffe_color.lmdb", {}),
        ("caffe_png.lmdb", {}),
    ],
)
def test_images(name: str, options: dict[str, list[int]]) -> None:
    wanted = PIXELS
    if name.startswith("caffe"):
        wanted = PIXELS[:, ::-1]  # by OpenCV: blue first
    with open_store(str(HERE / name), **options) as store:
        records = read_all(store)
    n = len(records["label"])
    assert n == (12 if name.startswith("caffe") else 10)
    np.testing.assert_array_equal(records["label"], LABELS[:n])
    found = records["pixel"].transpose(0, 3, 1, 2) if options else records["pixel"]
    np.testing.assert_array_equal(found, wanted[:n])


def test_grey_images_of_caffe() -> None:
    with open_store(str(HERE / "caffe_gray.lmdb")) as store:
        records = read_all(store)
    assert records["pixel"].shape == (12, 1, 5, 4)
    np.testing.assert_array_equal(records["label"], LABELS)
    luma = np.tensordot(PIXELS, [0.299, 0.587, 0.114], axes=(1, 0))
    np.testing.assert_allclose(records["pixel"][:, 0], luma, atol=1)


def test_options_of_encoded_images_of_caffe() -> None:
    with open_store(str(HERE / "caffe_png.lmdb"), resize=[3, 2], channels=1) as store:
        assert read_all(store)["pixel"].shape == (12, 1, 3, 2)
    with pytest.raises(DataError, match=r"caffe_color\.lmdb: resize and channels are for encoded images"):
        open_store(str(HERE / "caffe_color.lmdb"), resize=[3, 2])


@pytest.mark.parametrize("name", ["tensorflow_floats.tfrecord", "polars_array.parquet", "polars_list.parquet"])
def test_floats(name: str) -> None:
    with open_store(str(HERE / name)) as store:
        records = read_all(store)
    wanted = np.arange(6) / 8 + np.arange(10)[:, None] if "tensorflow" in name else np.arange(30).reshape(10, 3) / 4
    np.testing.assert_array_equal(records["data"], wanted.astype(np.float32))
    np.testing.assert_array_equal(records["label"], LABELS[:10])


@pytest.mark.parametrize(
    ("name", "backend", "options"),
    [
        ("numpy_x.npy", None, {}),
        ("numpy_compressed.npz", None, {}),
        ("polars_rows.ndjson", None, {}),
        ("huggingface_rows.jsonl", None, {}),
        ("h5py_rows.h5", None, {}),
        ("xarray.zarr", None, {}),
        ("pandas_records.jsonl", None, {"features": COLUMNS, "label": "species"}),
        ("spark_rows.json/part-*.json", "jsonl", {"features": COLUMNS, "label": "species"}),
        ("pandas_table.csv", "table", {"label": "species"}),
        ("pandas_pyarrow.parquet", "table", {"label": "species"}),
        ("pandas_fastparquet.parquet", "table", {"label": "species"}),
        ("spark_table.csv", "table", {"label": "species"}),
        ("spark_table.parquet", "table", {"label": "species"}),
    ],
)
def test_rows(name: str, backend: str | None, options: dict[str, object]) -> None:
    with open_store(str(HERE / name), backend, **options) as store:
        records = read_all(store)
        text = "numpy" not in name and "polars" not in name
        assert store.class_names == (NAMES if text else ())
    np.testing.assert_array_equal(records["data"], np.load(HERE / "numpy_x.npy").astype(np.float32))
    np.testing.assert_array_equal(records["label"], LABELS)


def test_rows_of_scikit_learn() -> None:
    with open_store(str(HERE / "sklearn_iris.csv"), "table", label="target") as store:
        records = read_all(store)
    np.testing.assert_array_equal(records["data"][[0, 9]], np.float32([[5.1, 3.5, 1.4, 0.2], [7.7, 3.0, 6.1, 2.3]]))
    assert records["label"].tolist() == [0] * 4 + [1] * 3 + [2] * 3


@pytest.mark.parametrize(
    "name", ["huggingface_images.parquet", "numpy_stored.npz", "h5py_images.h5", "zarr_2.zarr", "zarr_3.zarr"]
)
def test_images_with_their_class_names(name: str) -> None:
    with open_store(str(HERE / name)) as store:
        records = read_all(store)
        assert store.class_names == (() if "numpy" in name else NAMES)
    found = records["pixel"].transpose(0, 3, 1, 2) if "hugging" not in name else records["pixel"]
    np.testing.assert_array_equal(found, PIXELS)
    np.testing.assert_array_equal(records["label"], LABELS)


def test_columns_of_an_arrow_file_that_are_not_read_are_named() -> None:
    with pytest.raises(DataError, match=r"polars_array\.arrow: .*data"):
        open_store(str(HERE / "polars_array.arrow"))


def test_a_wrong_byte_in_a_record_of_tensorflow_is_found(tmp_path: Path) -> None:
    path = tmp_path / "damaged.tfrecord"
    shutil.copy(HERE / "tensorflow_raw.tfrecord", path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match="the crc32c of its length is wrong"), open_store(str(path)) as store:
        read_all(store)


@pytest.mark.parametrize(
    ("name", "options", "classes"),
    [("excel_csv_utf8.csv", {}, ("Bär", "Wolf")), ("excel_sep.csv", {}, ("Bär", "Grauer\nWolf"))],
)
def test_csv_of_excel(name: str, options: dict[str, str], classes: tuple[str, ...]) -> None:
    with TableStore(str(HERE / name), label="species", **options) as store:
        records = read_all(store)
        assert store.class_names == classes
    np.testing.assert_array_equal(records["data"], np.array([[5.1, 3.5], [4.9, 3], [6, 2.5]], np.float32))
    assert records["label"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("excel_semicolon.csv", {}, r", line 1: it contains no ',', but ';'\. Set separator: ';'\."),
        ("excel_semicolon.csv", {"separator": ";"}, r": column 'length': '5,1' has a decimal comma\."),
        ("excel_semicolon.csv", {"separator": ";", "features": ["length"]}, r": column 'length': '5,1' has a decimal"),
        (
            "excel_cp1252.csv",
            {"label": "species"},
            r": column 'species': the text is not UTF-8\. Write it as UTF-8, in Excel",
        ),
        ("excel_unicode_text.txt", {"format": "csv"}, r": the text is encoded in UTF-16\. Write it as UTF-8, in Excel"),
    ],
)
def test_csv_of_excel_that_needs_other_settings_says_which(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(str(HERE / name)) + message):
        TableStore(str(HERE / name), **options)


def test_text_that_is_not_used_may_be_in_any_encoding() -> None:
    with TableStore(str(HERE / "excel_cp1252.csv")) as store:
        assert list(store.table_facts.features) == ["length", "width"]
