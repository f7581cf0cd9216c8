"""Blanks around the values of CSV are no part of them, unless they are quoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.files.csv_text import without_blanks
from tests.contracts.records import read_all

ADULT = """\
age, work, home,income
39, State-gov, Berlin ,<=50K
 50, ?,  , >50K
38 , Private,"Paris, France" , <=50K
 NA , "Private", "Paris, France", >50K
"""
READING: dict[str, Any] = {"features": ["age", "work", "home"], "label": "income", "encoding": "index"}
HOMES = ["", "Berlin", "Paris, France"]


def read(file: Path, **options: Any) -> tuple[np.ndarray[Any, Any], tuple[str, ...], TableFacts]:
    categories = {"work": [], "home": HOMES, **options.pop("categories", {})}
    with TableStore(str(file), **READING, **options, categories=categories) as store:
        assert store.table_facts is not None
        records = read_all(store)
        return np.column_stack([records["data"], records["label"]]), store.class_names, store.table_facts


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_have_no_blanks_around_them(tmp_path: Path, end: str) -> None:
    file = tmp_path / "adult.csv"
    file.write_bytes(ADULT.replace("\n", end).encode())
    found, classes, facts = read(file, categories={"work": ["", "Private", "State-gov"]}, missing=0.0)
    assert classes == ("<=50K", ">50K")
    np.testing.assert_array_equal(found, [[39, 2, 1, 0], [50, 0, 0, 1], [38, 1, 2, 0], [0, 1, 2, 1]])
    # what a job of an older version lists
    old, _, _ = read(file, categories={"work": [" ?", " Private", " State-gov"]}, missing=0.0)
    np.testing.assert_array_equal(old, found)
    kept, _, facts = read(file, missing="skip")
    assert facts.categories["work"] == ("Private", "State-gov")
    np.testing.assert_array_equal(kept[:, 0], [39, 38])


def test_separators_that_are_blanks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x y\n1 a\n2 b\n")
    with TableStore(str(tmp_path / "a.csv"), separator=" ", features="x", label="y") as store:
        np.testing.assert_array_equal(read_all(store)["data"][:, 0], [1, 2])


BLANKS = st.sampled_from(["", " ", "  "])
BARE = st.tuples(st.text(st.sampled_from(" ab"), max_size=5), st.just(False))
QUOTED = st.tuples(st.text(st.sampled_from(' ab"\n,'), max_size=5), st.just(True))


@given(st.lists(st.lists(st.tuples(BLANKS, BARE | QUOTED, BLANKS), min_size=2, max_size=3), min_size=1, max_size=3))
def test_quoted_blanks_stay_and_others_go(rows: list[list[tuple[str, tuple[str, bool], str]]]) -> None:
    fields = [
        [(left, _quoted(text) if quoted else text.strip(), right) for left, (text, quoted), right in row]
        for row in rows
    ]
    padded = "\n".join(",".join(map("".join, row)) for row in fields)
    # a text may be blank
    wanted = "\n".join(",".join(text or left + right for left, text, right in row) for row in fields)
    assert without_blanks(padded.encode(), b",").decode() == wanted


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
