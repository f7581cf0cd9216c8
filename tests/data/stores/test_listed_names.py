"""Names of categories and classes that are called like missing values, such as the country NA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError

FRAME = pd.DataFrame(
    {
        "country": ["DE", "NA", "US", "NA", "None"],
        "x": [1.0, 2.0, 3.0, 4.0, 5.0],
        "kind": ["null", "a", "null", "a", "a"],
    }
)
GIVEN: dict[str, Any] = {"features": ["country", "x"], "label": "kind"}
LISTED = {"country": ["DE", "NA", "None", "US"], "kind": ["a", "null"]}
FORMATS = {
    "csv": lambda frame, file: frame.to_csv(file, index=False),
    "parquet": lambda frame, file: frame.to_parquet(file),
    "jsonl": lambda frame, file: frame.to_json(file, orient="records", lines=True),
}


def records(url: Path, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    with TableStore(str(url), **GIVEN, **options) as store:
        blocks = [store.read_block(block.id) for block in store.blocks]
        one = store.read_records(0, [1, 3]) if hasattr(store, "read_records") else None
        assert one is None or len(one["data"]) == 2
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("missing", ["error", "skip"])
def test_a_name_that_is_listed_is_not_missing(tmp_path: Path, form: str, missing: str) -> None:
    file = tmp_path / f"table.{form}"
    FORMATS[form](FRAME, file)
    found = records(file, categories=LISTED, missing=missing)
    wanted = pd.get_dummies(pd.Categorical(FRAME.country, LISTED["country"])).to_numpy(np.float32)
    np.testing.assert_array_equal(found["data"], np.hstack([wanted, FRAME[["x"]].to_numpy(np.float32)]))
    np.testing.assert_array_equal(found["label"], pd.Categorical(FRAME.kind, LISTED["kind"]).codes)


def test_a_name_that_is_not_listed_is_missing_in_csv(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    FRAME.to_csv(file, index=False)
    with pytest.raises(DataError, match="column 'country'"):
        records(file, categories={"country": ["DE", "US"], "kind": []}, missing="error")
    found = records(file, categories={"country": [], "kind": LISTED["kind"]}, missing="skip")
    np.testing.assert_array_equal(found["data"][:, -1], [1, 3])


def test_names_of_the_training_data_are_listed_for_others(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "train.parquet")
    FRAME.to_csv(tmp_path / "new.csv", index=False)
    with TableStore(str(tmp_path / "train.parquet"), **GIVEN, categories={"country": []}) as store:
        facts = store.table_facts.to_dict() if store.table_facts else {}
    assert facts["categories"]["country"] == ["DE", "NA", "None", "US"]
    train = records(tmp_path / "train.parquet", categories={"country": []})
    new = records(tmp_path / "new.csv", categories={"country": []}, facts=facts)
    for name, values in train.items():
        np.testing.assert_array_equal(new[name], values)


def test_numbers_that_are_names_beside_one(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("country,x,kind\n1,1,a\nNA,2,b\n2,3,a\n,4,b\n")
    options: dict[str, Any] = {"categories": {"country": ["1", "2", "NA"]}, "missing": "skip"}
    np.testing.assert_array_equal(records(tmp_path / "table.csv", **options)["data"][:, -1], [1, 2, 3])
