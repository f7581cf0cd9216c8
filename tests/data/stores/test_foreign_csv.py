"""CSV as other programs write it: what would be read as something else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError

TEXTS: dict[str, Any] = {"features": ["said"], "texts": {"said": {"length": 4}}, "label": "kind"}


def opened(file: Path, **options: Any) -> TableStore:
    store = TableStore(str(file), **options)
    for block in store.blocks:
        store.read_block(block.id)
    return store


@pytest.mark.parametrize("separator", [",", "\t"])
def test_quotes_that_are_escaped_by_a_backslash_are_refused(tmp_path: Path, separator: str) -> None:
    file = tmp_path / "spark.csv"
    frame = pd.DataFrame({"said": ["yes", 'He said "no"', "well"], "kind": ["a", "b", "a"]})
    frame.to_csv(file, index=False, sep=separator, quoting=1, doublequote=False, escapechar="\\")
    with pytest.raises(DataError, match=r"spark.csv, line 3: a quote is escaped by a backslash, as Spark"):
        opened(file, separator=separator, **TEXTS)
    frame.to_csv(file, index=False, sep=separator, quoting=1)
    opened(file, separator=separator, **TEXTS).close()


def test_a_field_that_ends_in_a_backslash_is_one(tmp_path: Path) -> None:
    file = tmp_path / "paths.csv"
    frame = pd.DataFrame({"said": ["C:\\", "D:\\", 'a\\"b'], "kind": ["x\\", "y", "x\\"]})
    frame.to_csv(file, index=False, quoting=1)
    with opened(file, features=["said"], label="kind", categories={"said": []}) as store:
        assert store.table_facts is not None
        assert store.table_facts.categories["said"] == tuple(sorted(frame.said))
        assert store.table_facts.classes == ("x\\", "y")


def test_a_header_in_mid_file_is_refused(tmp_path: Path) -> None:
    file, table = tmp_path / "joined.csv", "said,kind\na,x\nb,y\n"
    file.write_text(2 * table)
    with pytest.raises(
        DataError, match=r"joined.csv, line 4: this line repeats the header. Delete it if files were joined"
    ):
        opened(file, features=["said"], label="kind", categories={"said": []})
    # a value may be called like a column
    file.write_text(f"{table}said,y\nb,kind\n")
    opened(file, features=["said"], label="kind", categories={"said": []}).close()
    opened(file, label="kind", features=["said"], categories={"said": ["a", "b", "said"]}).close()
    file.write_text("a,b\n1,2\nb,a\n")
    opened(file, label="2", features=["1"], categories={"1": []}, header=False).close()
