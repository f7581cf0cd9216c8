"""Texts that Impala, Hive and older Spark write to Parquet as bytes without a type: read where they are UTF-8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.frames import as_table
from singa_dask.errors import DataError
from singa_dask.inference.memory_records import MemoryReading
from singa_dask.inputs.store_conf import StoreConf
from tests.contracts.foreign import png
from tests.contracts.records import read_all

PLACES = [b"caf\xc3\xa9", None, b"bar", b"bar"]
READING: dict[str, Any] = {"label": "kind", "categories": {"place": []}, "missing": "skip"}


def written(file: Path, kind: pa.DataType, **more: pa.Array) -> str:
    kinds = pa.array([b"a", b"b", b"b", b"a"], kind)
    pq.write_table(pa.table({"place": pa.array(PLACES, kind), "x": [1, 2, 3, 4], "kind": kinds, **more}), file)
    return str(file)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_texts_where_they_are_utf_8(kind: pa.DataType, tmp_path: Path) -> None:
    pictures = pa.array([png(np.full((3, 4, 4), i, np.uint8)) for i in range(4)])
    url = written(tmp_path / "a.parquet", kind, picture=pictures)
    pq.write_table(pa.table({"place": ["bar"], "x": [5], "kind": ["b"]}), tmp_path / "b.parquet")
    with TableStore(f"{tmp_path}/*.parquet", features=["place", "x"], **READING) as store:
        assert store.class_names == ("a", "b")
        found = read_all(store)
        np.testing.assert_array_equal(found["data"], [[0, 1, 1], [1, 0, 3], [1, 0, 4], [1, 0, 5]])
        np.testing.assert_array_equal(found["label"], [0, 1, 0, 1])
    with TableStore(url, features="x", label="kind", texts={}, missing="skip") as store:
        assert {each.name: each.kind for each in store.table_columns}["picture"] == str(pictures.type)
    with pytest.raises(DataError, match=r"column 'picture' holds values of type .*binary.*expected numbers or strings"):
        TableStore(url, features=["picture", "x"], label="kind", categories={"picture": []})
    with pytest.raises(DataError, match=r"column 'place' .*binary, expected numbers\. .*categories or texts"):
        TableStore(url, features=["place", "x"], label="kind")


@pytest.mark.parametrize("as_frame", [pd.DataFrame, pa.table])
def test_bytes_in_frames_are_texts(as_frame: Any) -> None:
    frame = as_frame({"place": [b"caf\xc3\xa9", b"bar"], "picture": [b"\xff\xd8", b"\x89PNG"]})
    facts = TableFacts(("place",), categories={"place": ("bar", "caf\u00e9")})
    conf = StoreConf.model_validate({"path": "x", "batchsize": [1], "shape": [2], "categories": {"place": []}})
    np.testing.assert_array_equal(MemoryReading(conf, facts).records(frame).read(0, 2)["data"], [[0, 1], [1, 0]])
    assert as_table(frame, "x").schema.field("picture").type == pa.binary()


def test_bytes_that_are_no_texts_further_on(tmp_path: Path) -> None:
    kinds = pa.array([*[b"a", b"b"] * 50, b"\xff"])
    pq.write_table(pa.table({"x": range(101), "kind": kinds}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet, column 'kind': the column has bytes that are not UTF-8"):
        TableStore(str(tmp_path / "a.parquet"), label="kind")
