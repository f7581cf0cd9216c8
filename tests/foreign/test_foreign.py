"""Files that other programs wrote; PROVENANCE.md says which. SINGA's are read in tests/data and tests/train."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from singa_dask.data import open_store
from singa_dask.errors import DataError
from tests.contracts.records import read_all

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOT_FOREIGN = {"PROVENANCE.md", "__init__.py", "test_foreign.py"}
PIXELS = np.load(HERE / "images.npy").transpose(0, 3, 1, 2)
LABELS = np.arange(len(PIXELS)) % 3


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


def test_encoded_images_of_caffe_are_refused() -> None:
    with pytest.raises(DataError, match=r"caffe_png\.lmdb: neither .* encoded images are not supported"):
        open_store(str(HERE / "caffe_png.lmdb"))


@pytest.mark.parametrize("name", ["tensorflow_floats.tfrecord", "polars_array.parquet", "polars_list.parquet"])
def test_floats(name: str) -> None:
    with open_store(str(HERE / name)) as store:
        records = read_all(store)
    wanted = np.arange(6) / 8 + np.arange(10)[:, None] if "tensorflow" in name else np.arange(30).reshape(10, 3) / 4
    np.testing.assert_array_equal(records["data"], wanted.astype(np.float32))
    np.testing.assert_array_equal(records["label"], LABELS[:10])


def test_columns_of_an_arrow_file_that_are_not_read_are_named() -> None:
    with pytest.raises(DataError, match=r"polars_array\.arrow: .*data"):
        open_store(str(HERE / "polars_array.arrow"))


def test_a_wrong_byte_in_a_record_of_tensorflow_is_found(tmp_path: Path) -> None:
    path = tmp_path / "damaged.tfrecord"
    shutil.copy(HERE / "tensorflow_raw.tfrecord", path)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DataError, match="wrong crc32c"), open_store(str(path)) as store:
        read_all(store)
