"""Parquet files of encoded images, as Hugging Face's datasets write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.stores import open_store
from singa_dask.errors import DataError
from tests.contracts.foreign import png
from tests.contracts.records import assert_same, pixels, read_all

PIXELS = pixels(7, (3, 5, 6))["pixel"]
LABELS = np.arange(7, dtype=np.int32) % 3
NAMES = ["cat", "dog", "fox"]


def write(path: Path, images: list[Any], kind: pa.DataType | None = None) -> str:
    kind = kind or pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
    columns = {"note": ["x"] * 7, "image": pa.array(images, kind), "label": pa.array(LABELS.astype(np.int64))}
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=3)
    return str(path)


def encoded() -> list[Any]:
    return [{"bytes": png(image), "path": f"{i}.png"} for i, image in enumerate(PIXELS)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_images_labels_and_class_names(kind: pa.DataType, tmp_path: Path) -> None:
    url = write(tmp_path / "x.parquet", encoded(), pa.struct([("bytes", kind), ("path", pa.string())]))
    for backend in (None, "image-parquet"):
        with open_store(url, backend) as store:
            assert [block.n for block in store.blocks] == [3, 3, 1]
            assert store.class_names == tuple(NAMES)
            assert_same(read_all(store), {"pixel": PIXELS, "label": LABELS})
    with open_store(url, "image-parquet", resize=[4, 2], channels=1) as store:
        assert read_all(store)["pixel"].shape == (7, 1, 4, 2)


def test_images_that_cannot_be_read(tmp_path: Path) -> None:
    url, images = str(tmp_path / "x.parquet"), encoded()
    for wrong, message in (
        (
            {"bytes": None, "path": "a.png"},
            "x.parquet, block 1, record 4: the record has at most the path of an image, not its bytes. Store",
        ),
        ({"bytes": b"what", "path": None}, "x.parquet, block 1, record 4: not an image, or a damaged one"),
        (
            {"bytes": png(PIXELS[0][:, :4]), "path": None},
            "record 4: the image has shape (3, 4, 6), but the first has (3, 5, 6)",
        ),
    ):
        write(Path(url), [*images[:4], wrong, *images[5:]])
        with open_store(url) as store:
            with pytest.raises(DataError) as caught:
                read_all(store)
            assert message in str(caught.value)
            arrays, bad = store.salvage(1)
            assert list(bad) == [1]
            np.testing.assert_array_equal(arrays["pixel"][[0, 2]], PIXELS[[3, 5]])
            np.testing.assert_array_equal(arrays["label"][[0, 2]], LABELS[[3, 5]])
    pq.write_table(pa.table({"x": [[1.0]]}), url)
    with pytest.raises(
        DataError, match=r"x\.parquet: there is no column of encoded images \(structs of bytes and path\)\."
    ):
        open_store(url, "image-parquet")
