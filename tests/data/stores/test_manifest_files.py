"""Manifests of stores of several files: each counts, and which there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.stores import open_store, write_manifest
from singa_dask.data.stores.manifest import manifest_url
from singa_dask.errors import DataError
from tests.contracts.foreign import png
from tests.contracts.records import assert_same, pixels, read_all
from tests.data.stores.test_manifest import opened_quietly


def pictures(folder: Path) -> str:
    for i in range(6):
        place = folder / "pictures" / f"class-{i % 2}" / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(png(pixels(6, (3, 8, 8))["pixel"][i]))
    return str(folder / "pictures")


def test_every_picture_of_a_folder_has_a_checksum(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = pictures(tmp_path)
    with open_store(url) as store:
        records = read_all(store)
    assert write_manifest(url) == [manifest_url(url)]
    with opened_quietly(url, caplog) as store:
        assert None not in [block.crc for block in store.blocks]
        assert_same(read_all(store), records)
    path = tmp_path / "pictures" / "class-1" / "5.png"
    path.write_bytes(png(255 - pixels(6, (3, 8, 8))["pixel"][5]))
    with open_store(url) as store, open_store(url, resize=(4, 4)) as small:
        for each in (store, small):
            each.read_rows(0, np.array([0, 1]))
            with pytest.raises(
                DataError, match=r"class-1/5\.png, block 0: .* crc32c .*, expected .*. The data is damaged, or newer"
            ):
                each.read_rows(0, np.array([1, 5]))


def test_pictures_that_come_and_go_are_named(tmp_path: Path) -> None:
    url = pictures(tmp_path)
    write_manifest(url)
    folder = tmp_path / "pictures" / "class-0"
    (folder / "2.png").rename(folder / "7.png")
    with pytest.raises(
        DataError,
        match=r"pictures, block 0: the files differ from the 6 in its manifest, missing: \S*/2\.png; "
        r"new: \S*/7\.png\. The data is damaged, or newer",
    ):
        open_store(url)
    (folder / "7.png").rename(folder / "2.png")
    with open_store(url) as store:
        assert store.count == 6
    (folder / "9.png").write_bytes((folder / "2.png").read_bytes())
    with pytest.raises(
        DataError,
        match=r"pictures, block 0: the files differ from the 6 in its manifest, new: pictures/class-0/9\.png\. ",
    ):
        open_store(url)


def test_a_list_of_pictures_counts_too(tmp_path: Path) -> None:
    pictures(tmp_path)
    listed = tmp_path / "list.txt"
    # one of them twice
    listed.write_text("".join(f"pictures/class-{i % 2}/{i % 6}.png {i % 2}\n" for i in range(8)))
    write_manifest(str(listed), "image-list")
    with open_store(str(listed), "image-list") as store:
        assert store.count == 8
        assert store.blocks[0].crc is not None
    listed.write_text(listed.read_text().replace("0.png 0", "0.png 1"))
    with pytest.raises(
        DataError, match=r"list\.txt: .* crc32c .*, expected .*. The data is damaged, or newer than its manifest"
    ):
        open_store(str(listed), "image-list")


def table_folder(folder: Path) -> str:
    for i in range(3):
        place = folder / "table" / f"year={2020 + i}" / "part-0.csv"
        place.parent.mkdir(parents=True)
        place.write_text("a,b,kind\n" + "".join(f"{i},{j}.5,k{j % 2}\n" for j in range(20)))
    return str(folder / "table")


def test_each_file_of_a_table_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, options = table_folder(tmp_path), {"label": "kind"}
    assert write_manifest(url, "table", **options) == [manifest_url(url)]
    with opened_quietly(url, caplog, "table", **options) as store:
        assert [block.crc is None for block in store.blocks] == [False] * 3
        records, facts = read_all(store), store.table_facts
    assert facts is not None
    # as a trained net reads it
    with opened_quietly(url, caplog, "table", facts=facts.to_dict(), **options) as store:
        assert store.blocks[0].crc is not None
        assert_same(read_all(store), records)
    path = tmp_path / "table" / "year=2021" / "part-0.csv"
    whole = path.read_text()
    for wrong, said in (
        (
            whole.replace("7.5", "8.5"),
            r"year=2021/part-0\.csv, block 1 \(.*\): the crc32c is .*, expected .*. The data is damaged, or newer",
        ),
        (whole.replace("b", "c", 1), r"year=202\d/part-0\.csv: there is no column"),
        (
            whole.replace("7.5", "71.5"),
            r"year=2021/part-0\.csv, block 1: the block has 20 records, 192 bytes from 9 on, expected 20 ",
        ),
    ):
        path.write_text(wrong)
        with pytest.raises(DataError, match=said), open_store(url, "table", **options) as store:
            read_all(store)
    path.rename(path.with_name("part-1.csv"))
    with pytest.raises(
        DataError,
        match=r"table: the files differ from the 3 in its manifest, missing: table/year=2021/part-0\.csv; "
        r"new: table/year=2021/part",
    ):
        open_store(url, "table", **options)


def test_other_columns_of_a_table_do_without_its_manifest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = table_folder(tmp_path)
    write_manifest(url, "table", label="kind")
    with opened_quietly(url, caplog, "table", features=["a"], label="kind") as store:
        assert [block.crc for block in store.blocks] == [None] * 3
