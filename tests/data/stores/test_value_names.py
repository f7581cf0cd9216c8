"""One name of a value, whatever the format that it was read from: numbers, booleans, ids, codes, accents, blanks."""

from __future__ import annotations

import decimal
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.errors import DataError
from singa_dask.inference.memory_records import MemoryReading
from singa_dask.inputs.store_conf import StoreConf
from tests.contracts.records import read_all

BIG = 2**53 + 1
ACCENT = "caf\u00e9"
# the values of a column as the formats have them: integers, floats, texts
COLUMNS: dict[str, list[list[Any]]] = {
    "number": [[7, 8, 7], [7.0, 8.0, 7.0], ["7", "8.0", "7.0"]],
    "large": [[BIG, BIG + 1, BIG], [str(BIG), str(BIG + 1), str(BIG)]],
    "power": [[10**17, 0, 10**17], [1e17, -0.0, 1e17]],
    "price": [[decimal.Decimal("7.00"), decimal.Decimal("7.50"), decimal.Decimal("7.00")], [7.0, 7.5, 7.0]],
    "flag": [[True, False, True], ["True", "FALSE", "true"]],
    "zip": [["01234", "1234", "01234"]],
    "accent": [[ACCENT, "the", unicodedata.normalize("NFD", ACCENT)]],
    "blanks": [["Private", "?x", " Private "]],
}


def written_csv(columns: dict[str, list[Any]], file: Path) -> None:
    pd.DataFrame({name: map(str, values) for name, values in columns.items()}).to_csv(file, index=False)


def written_excel(columns: dict[str, list[Any]], file: Path) -> None:
    pd.DataFrame(columns).to_excel(file, index=False)


WRITERS: dict[str, Callable[[dict[str, list[Any]], Path], Any]] = {
    "csv": written_csv,
    "parquet": lambda columns, file: pq.write_table(pa.table(columns), file),
    "jsonl": lambda columns, file: pd.DataFrame(columns).to_json(file, orient="records", lines=True),
    "json": lambda columns, file: file.write_text(
        json.dumps([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    ),
    "xlsx": written_excel,
}


def cases() -> list[Any]:
    """Return each column with each way to write its values, by each format that has them exactly."""
    found = []
    for name, ways in COLUMNS.items():
        for i, values in enumerate(ways):
            for form in WRITERS:
                # Excel has no integers beyond 2**53; other texts of decimals and of powers of ten may be codes
                is_exact = not (form == "xlsx" and isinstance(values[0], int) and values[0] > 2**53)
                if is_exact and not (name in ("power", "price") and form != "parquet"):
                    found.append(pytest.param(name, values, form, id=f"{name}-{i}-{form}"))
    return found


def table(columns: dict[str, list[Any]], form: str, folder: Path) -> Path:
    file = folder / f"table.{form}"
    WRITERS[form]({**columns, "x": [1, 2, 3]}, file)
    return file


@pytest.mark.parametrize(("name", "values", "form"), cases())
def test_a_value_is_one_category_and_class_in_all_formats(
    name: str, values: list[Any], form: str, tmp_path: Path
) -> None:
    file = table({name: values, "y": values}, form, tmp_path)
    given: dict[str, Any] = {"features": [name, "x"], "label": "y"}
    with TableStore(str(file), **given, categories={name: [], "y": []}) as store:
        assert len(store.class_names) == 2
        codes = read_all(store)["label"]
        facts = store.table_facts
    assert codes[0] == codes[2] != codes[1]
    assert facts is not None
    # what was learned from one format reads all others
    for other in COLUMNS[name]:
        frame = pd.DataFrame({name: other, "x": [1.0, 2.0, 3.0]})
        conf = StoreConf.model_validate(
            {"path": "x", "batchsize": [1], "shape": [3], **given, "categories": {name: []}}
        )
        found = MemoryReading(conf, facts).records(frame).read(0, 3)["data"]
        np.testing.assert_array_equal(found[:, :2].argmax(axis=1), codes)
        np.testing.assert_array_equal(found[:, 2], [1, 2, 3])


def test_a_directory_of_both_forms_has_one_category(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("size,flag,y\n7,True,1\n8,False,0\n")
    (tmp_path / "b.csv").write_text("size,flag,y\n7.0,true,1\n8.0,false,0\n")
    with TableStore(
        f"{tmp_path}/*.csv", features=["size", "flag"], label="y", categories={"size": [], "flag": []}
    ) as store:
        assert store.table_facts is not None
        assert store.table_facts.categories == {"size": ("7", "8"), "flag": ("false", "true")}
        np.testing.assert_array_equal(read_all(store)["data"], [[1, 0, 0, 1], [0, 1, 1, 0]] * 2)
    # as partitions of Dask, some of which have missing values
    pq.write_table(pa.table({"size": [7, 8], "y": [1, 0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"size": [7.0, None], "y": [1, 0]}), tmp_path / "b.parquet")
    reading = {"label": "y", "features": ["size"], "categories": {"size": []}, "missing": "skip"}
    with TableStore(f"{tmp_path}/*.parquet", **reading) as store:
        np.testing.assert_array_equal(read_all(store)["data"], [[1, 0], [0, 1], [1, 0]])


def test_names_that_an_older_version_told_apart_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("size,x\n7,1\n7.0,1\nTrue,1\n8,1\n Private,1\n")
    facts = TableFacts(("size", "x"), categories={"size": ("7", "7.0", "8.0", "True", " Private")}, encoding="index")
    with TableStore(
        str(tmp_path / "a.csv"),
        features=["size", "x"],
        categories={"size": []},
        encoding="index",
        facts=facts.to_dict(),
    ) as store:
        np.testing.assert_array_equal(read_all(store)["data"][:, 0], [0, 1, 3, 2, 4])


def test_what_only_looks_like_a_number_keeps_its_name(tmp_path: Path) -> None:
    texts = ["1.10", "1.1", "007", "7", "1e2", "100", "0x7", "+7", "7.50"]
    (tmp_path / "a.csv").write_text("code,x\n" + "".join(f"{text},1\n" for text in texts))
    with TableStore(str(tmp_path / "a.csv"), features=["code", "x"], categories={"code": []}) as store:
        assert store.table_facts is not None
        assert set(store.table_facts.categories["code"]) == set(texts)


def test_a_frame_without_leading_zeros_is_refused(tmp_path: Path) -> None:
    facts = TableFacts(("zip",), categories={"zip": ("01234", "99999")})
    conf = StoreConf.model_validate({"path": "x", "batchsize": [1], "shape": [2], "categories": {"zip": []}})
    with pytest.raises(DataError, match="unknown category '1234'"):
        MemoryReading(conf, facts).records(pd.DataFrame({"zip": [1234]})).read(0, 1)
