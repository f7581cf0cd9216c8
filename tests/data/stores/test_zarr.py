"""Zarr: versions, codecs and chunks, single arrays, labels of text, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr

from singa_dask.data.stores import open_store, write_manifest
from singa_dask.errors import ConfigError, DataError
from singa_dask.testing.store_exam import check_fetched
from tests.contracts.records import assert_same, read_all

ROWS = np.random.default_rng(0).integers(0, 200, (50, 4, 3))
LABELS = np.arange(50) % 3


def written(folder: Path, version: int = 3, **arrays: Any) -> str:
    url = str(folder / "x.zarr")
    group = zarr.open_group(url, mode="w", zarr_format=version)
    for name, (values, options) in arrays.items():
        group.create_array(name, data=values, **options)
    return url


KINDS = ["u1", "f2", ">i2"]
FORMS: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (2, {"chunks": (9, 3, 2), "compressors": [numcodecs.GZip()], "order": "F"}),
    # the filter is for integers of two bytes
    (2, {"chunks": (20, 4, 3), "filters": [numcodecs.Delta(dtype="i2")], "compressors": [numcodecs.LZ4()]}),
    (3, {"chunks": (7, 4, 3), "compressors": None}),
    (3, {"chunks": (64, 4, 3), "compressors": [zarr.codecs.BloscCodec()]}),
    (3, {"chunks": (4, 4, 3), "shards": (16, 4, 3)}),
]
# one kind of each form first
FIRST = [(KINDS[i % 3], *form) for i, form in enumerate(FORMS)]
REST = [(KINDS[(i + k) % 3], *form) for i, form in enumerate(FORMS) for k in (1, 2) if "filters" not in form[1]]


@pytest.mark.parametrize(
    ("kind", "version", "options"), [*FIRST, *(pytest.param(*each, marks=pytest.mark.soak) for each in REST)]
)
def test_types_and_chunks(
    kind: str, version: int, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("singa_dask.data.stores.arrays.stored_array.BLOCK_BYTES", 300)
    values = ROWS.astype(kind)
    with open_store(written(tmp_path, version, X=(values, options), y=(LABELS, {}))) as store:
        name = "pixel" if kind == "u1" else "data"
        found = read_all(store)
        assert_same(found, {name: values.astype(found[name].dtype), "label": LABELS.astype(np.int32)})
        check_fetched(store)


@pytest.mark.parametrize("version", [2, 3])
def test_a_single_array_and_chunks_that_are_missing(version: int, tmp_path: Path) -> None:
    values = ROWS.astype(np.uint8)
    values[20:30] = 0
    url = written(tmp_path, version, x=(values, {"chunks": (10, 4, 3)}))
    with open_store(f"{url}/x") as store:
        assert_same(read_all(store), {"pixel": values})
    with pytest.raises(DataError, match=r"x\.zarr/x: there is no array called 'y'"):
        open_store(f"{url}/x", label="y")


@pytest.mark.parametrize("version", [2, 3])
def test_labels_of_text(version: int, tmp_path: Path) -> None:
    labels = np.array(["cat", "a longer name", "ö"], np.dtypes.StringDType())[LABELS]
    with open_store(written(tmp_path, version, x=(ROWS, {}), label=(labels, {"chunks": (9,)}))) as store:
        assert store.class_names == ("a longer name", "cat", "ö")
        assert [store.class_names[label] for label in store.read_labels(0)] == labels.tolist()


def test_damaged_and_harmful_files_are_named(tmp_path: Path) -> None:
    url = written(tmp_path, 2, x=(ROWS, {"chunks": (10, 4, 3)}))
    chunk, metadata = Path(url) / "x/1.0.0", Path(url) / "x/.zarray"
    whole, described = chunk.read_bytes(), json.loads(metadata.read_text())
    for data, message in (
        (b"", r"1\.0\.0: a chunk is empty"),
        (whole[:40], rf"chunk 1\.0\.0 is damaged: it has 40 bytes, expected {len(whole)} according to its header"),
        (
            whole[:4] + b"\xff\xff\xff\x7f" + whole[8:],
            r"chunk 1\.0\.0 is damaged: it decompresses to 2147483647 bytes, expected 960",
        ),
    ):
        chunk.write_bytes(data)
        with open_store(url) as store, pytest.raises(DataError, match=message):
            store.read_block(0)
    metadata.write_text(json.dumps({**described, "filters": [{"id": "pickle", "protocol": 5}]}))
    with pytest.raises(DataError, match=r"not Zarr, or a damaged one: .*pickle"):
        open_store(url)
    metadata.write_text(json.dumps({**described, "shape": [10**12, 4, 3]}))
    with pytest.raises(DataError, match="damaged"):
        open_store(url)
    metadata.write_text("{")
    with pytest.raises(DataError, match=r"x\.zarr: not Zarr, or a damaged one"):
        open_store(url)
    shutil.rmtree(url)
    Path(url).mkdir()
    with pytest.raises(DataError, match=r"x\.zarr: the directory is neither a group nor an array of Zarr"):
        open_store(url, "zarr")


def test_a_manifest_finds_a_chunk_that_is_missing(tmp_path: Path) -> None:
    url = written(tmp_path, x=(ROWS, {"chunks": (10, 4, 3)}))
    write_manifest(url)
    (Path(url) / "x/c/1/0/0").unlink()
    with open_store(url) as store, pytest.raises(DataError, match=r"x\.zarr, block 0.*damaged, or newer"):
        store.read_block(0)


def test_the_package_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = written(tmp_path, x=(ROWS, {}))
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ConfigError, match=r"x\.zarr: the package zarr cannot .*pip install 'singa-dask\[zarr\]'"):
        open_store(url)
