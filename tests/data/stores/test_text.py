"""Text: blocks cut at line ends, whole blocks parsed, and the line that is wrong named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask import fs
from singa_dask.data.stores import open_store
from singa_dask.data.stores.tables.text_store import TextStore
from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.errors import DataError
from tests.contracts.records import read_all
from tests.selection import few_examples

SINGA = Path(__file__).parents[2] / "gold" / "data"


def lines(tmp_path: Path, text: str, **options: Any) -> TextStore:
    path = tmp_path / "lines.csv"
    path.write_text(text)
    return TextStore(str(path), **options)


def test_a_file_of_singa() -> None:
    with TextStore(str(SINGA / "small.csv")) as store:
        found = read_all(store)
    assert found["data"].shape == (40, 6)
    np.testing.assert_array_equal(found["label"][:3], [0, 1, 2])
    np.testing.assert_allclose(found["data"][0], [-0.9, 0.4, -0.2, -0.8, 0.5, -0.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("1,2,3\n4,5,6\n", ","),
        ("1 2;3\n4;5 6", " ;"),
        ("1\t2\t3\r\n4\t5\t6\r\n\r\n\n", "\t"),
        (" 1, 2, 3 \n4,5,6", ","),
        ("1,2,3\n\n\r\n4,5,6\n\n", ","),
    ],
)
def test_separators_and_ends(text: str, separator: str, tmp_path: Path) -> None:
    with lines(tmp_path, text, separator=separator) as store:
        assert store.count == 2
        assert read_all(store)["data"].tolist() == [[2, 3], [5, 6]]
        assert read_all(store)["label"].tolist() == [1, 4]


def test_shape_and_no_label(tmp_path: Path) -> None:
    with lines(tmp_path, "1,2,3,4\n5,6,7,8", has_label=False, shape=(2, 2)) as store:
        assert list(store.schema) == ["data"]
        assert read_all(store)["data"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("3,4", "line 3: 2 fields, expected 3: a label and 2 numbers"),
        ("3,4,5,6", "line 3: 4 fields, expected 3"),
        (" ", "line 3: 1 fields, expected 3"),
        ("3,x,5", "line 3, column '2': 'x' is not a number"),
        ("3,4-5,5", "line 3, column '2': '4-5' is not a number"),
        ("3.5,4,5", "line 3, column '1': the label 3.5 is not an integer"),
    ],
)
@pytest.mark.parametrize("block_bytes", [1 << 20, 7])
def test_the_wrong_line_is_named(bad: str, message: str, block_bytes: int, tmp_path: Path) -> None:
    with lines(tmp_path, f"0,1,2\n1,2,3\n{bad}\n2,2,2\n", block_bytes=block_bytes) as store:
        with pytest.raises(DataError, match=rf"lines\.csv, {message}"):
            read_all(store)


def test_half_a_line_at_the_end(tmp_path: Path) -> None:
    with lines(tmp_path, "0,1,2\n1,2") as store:
        with pytest.raises(DataError, match="line 2: 2 fields"):
            read_all(store)


@few_examples(25)
@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.integers(1, 40), st.sampled_from(["", "\n", "\n\n"])
)
def test_blocks_of_any_size_hold_the_same_lines(numbers: list[int], block_bytes: int, end: str) -> None:
    text = "\n".join(f"{i},{number}" for i, number in enumerate(numbers)) + end
    fs.write_atomic("memory://lines.csv", text.encode())
    with TextStore("memory://lines.csv", block_bytes=block_bytes) as store:
        assert store.count == len(numbers)
        assert read_all(store)["data"][:, 0].tolist() == numbers


def test_files_with_the_same_columns_in_another_order_are_not_one(tmp_path: Path) -> None:
    (tmp_path / "x-0.csv").write_text("label,a,b\n1,2,3\n")
    (tmp_path / "x-1.csv").write_text("label,b,a\n1,2,3\n")
    with pytest.raises(DataError, match=r"x-1.csv: values of b, a, but a, b in .*x-0.csv"):
        open_store(str(tmp_path / "x-*.csv"))


def test_columns_in_another_order_than_in_training_are_an_error(tmp_path: Path) -> None:
    names = TrainingKnowledge()
    with lines(tmp_path, "label,a,b\n1,2,3\n") as store:
        assert [(each.name, each.field, each.index) for each in store.table_columns] == [
            ("label", "label", 0),
            ("a", "data", 0),
            ("b", "data", 1),
        ]
        names.match_table("data", store, learns=True)
    with lines(tmp_path, "a,b\n2,3\n", has_label=False) as store:
        names.match_table("data", store, learns=False)
    with lines(tmp_path, "label,b,a\n1,2,3\n") as store:
        with pytest.raises(DataError, match=r"lines.csv: values of b, a, but a, b in training"):
            names.match_table("data", store, learns=False)
    # without names nothing is known to be wrong
    with lines(tmp_path, "1,2,3\n") as store:
        names.match_table("data", store, learns=False)
