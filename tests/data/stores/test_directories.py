"""Directories of many kinds are opened as what they are, or refused with what is in them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image, ImageOps

from singa_dask.data.stores import detect, open_store
from singa_dask.errors import DataError
from singa_dask.survey.survey import find_sets

FRAME = pd.DataFrame({"a": [0.5, 1.5], "label": [0, 1]})


def saved_by_hugging_face(path: Path) -> None:
    """Write what ``Dataset.save_to_disk`` writes."""
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    with pa.OSFile(str(path / "data-00000-of-00001.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as w:
        w.write_table(table)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (path / "dataset_info.json").write_text("{}")


def nested(path: Path) -> None:
    for name in ("a/x", "b/y"):
        (path / name).mkdir(parents=True)
        Image.new("L", (2, 2)).save(path / name / "1.png")


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "parquet": (lambda path: FRAME.to_parquet(path / "part-0.parquet"), "README.txt, part-0.parquet"),
    "csv": (lambda path: FRAME.to_csv(path / "part-0.csv"), "README.txt, part-0.csv"),
    "idx": (lambda path: (path / "train-images-idx3-ubyte").write_bytes(b""), "README.txt, train-images-idx3-ubyte"),
    "nested pictures": (nested, "README.txt, a, b"),
    "texts": (lambda path: (path / "a.txt").write_text("hello\n"), "README.txt, a.txt"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_is_no_store_says_what_is_in_it(tmp_path: Path, kind: str) -> None:
    make, inside = KINDS[kind]
    make(tmp_path)
    (tmp_path / "README.txt").write_text("hello, all\n")
    assert detect(str(tmp_path)) is None
    with pytest.raises(DataError, match=f"the directory is not a store. It contains {inside}. Name a file"):
        open_store(str(tmp_path))


def test_tables_in_directories_are_named_by_a_pattern(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        FRAME.to_parquet(tmp_path / name / "part-0.parquet")
    with pytest.raises(DataError, match=r"contains a, b\. .* a pattern, as in DIRECTORY/\*\*/\*\.parquet\."):
        open_store(str(tmp_path))
    with open_store(f"{tmp_path}/**/*.parquet", "table", features=list(FRAME)) as store:
        assert store.count == 2 * len(FRAME)


def test_a_stream_of_arrow_says_how_it_is_read(tmp_path: Path) -> None:
    saved_by_hugging_face(tmp_path)
    with pytest.raises(
        DataError, match=r"data-00000-of-00001.arrow: the file is a stream of Arrow, .* backend: parquet or table"
    ):
        open_store(str(tmp_path / "*.arrow"), "arrow")


def test_folders_of_pictures_may_have_other_files(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        Image.new("L", (2, 2)).save(tmp_path / name / "1.png")
    (tmp_path / "README.txt").write_text("hello, all\n")
    assert detect(str(tmp_path)) == "image-folder"


def test_pictures_are_found_behind_what_a_mac_leaves_and_an_empty_class(tmp_path: Path) -> None:
    for name in ("__MACOSX/x", "ant", "bee"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "__MACOSX" / "x" / "._1.png").write_bytes(b"\0\5\x16\7")
    (tmp_path / "bee" / "._1.png").write_bytes(b"\0\5\x16\7")
    Image.new("L", (2, 2)).save(tmp_path / "bee" / "1.png")
    assert detect(str(tmp_path)) == "image-folder"
    with open_store(str(tmp_path)) as store:
        assert (store.count, store.class_names, store.read_labels(0).tolist()) == (1, ("ant", "bee"), [1])


@pytest.mark.parametrize("backend", ["csv", "arrow", "npz"])
def test_a_directory_in_place_of_a_file_is_named(backend: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}: this is a directory, expected a file."):
        open_store(str(tmp_path), backend)


def test_a_training_set_is_not_one_with_its_test_set(tmp_path: Path) -> None:
    for name in ("train-0.parquet", "train-1.parquet", "test-0.parquet"):
        FRAME.to_parquet(tmp_path / name)
    assert find_sets(str(tmp_path))[:2] == (f"{tmp_path}/train*.parquet", f"{tmp_path}/test*.parquet")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_pictures_are_turned_as_their_camera_says(tmp_path: Path, kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    values = np.arange(8 * 16 * 3, dtype=np.uint8).reshape(8, 16, 3)
    file = io.BytesIO()
    options = {"lossless": True} if kind == "WEBP" else {"tiffinfo": exif} if kind == "TIFF" else {}
    Image.fromarray(values).save(file, kind, exif=exif, **options)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / f"1.{kind.lower()}").write_bytes(file.getvalue())
    with Image.open(file) as picture:
        wanted = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    with open_store(str(tmp_path)) as store:
        found = store.read_block(0)["pixel"][0]
    np.testing.assert_array_equal(found, wanted.transpose(2, 0, 1))
