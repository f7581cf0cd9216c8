"""Classes as values of the type of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.data.codecs.class_types import class_values, classes_of
from singa_dask.data.codecs.plain_arrays import class_numbers
from singa_dask.errors import DataError


@pytest.mark.parametrize(
    ("names", "of_type", "expected"),
    [
        (["200", "404"], "integer", np.array([200, 404])),
        (["200.0", "404.0"], "number", np.array([200.0, 404.0])),
        (["1.50", "2"], "number", np.array([1.5, 2.0])),
        (["False", "true"], "boolean", np.array([False, True])),
        (["200", "404"], "", np.array(["200", "404"])),
        (["007", "10"], "integer", np.array(["007", "10"])),
        (["1.50", "1.5"], "number", np.array(["1.50", "1.5"])),
        (["1", "1e999"], "number", np.array(["1", "1e999"])),
        (["1", "big"], "integer", np.array(["1", "big"])),
        (["9007199254740993", "9007199254740992"], "integer", np.array([2**53 + 1, 2**53])),
        (["18446744073709551615", "1"], "integer", np.array(["18446744073709551615", "1"])),
    ],
)
def test_names_become_values_where_all_of_them_can(names: list[str], of_type: str, expected: np.ndarray) -> None:
    values = class_values(names, of_type)
    assert (values.dtype, values.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize(
    "labels", [np.array([3, 1, 2]), np.array([3.0, 1.0, 2.0]), np.array([3, 1, 2], object), np.array(["3", "1", "2"])]
)
def test_a_number_is_the_value_of_a_class_and_not_its_number(labels: Any) -> None:
    assert class_numbers(labels, ["1", "2", "3"], "y, row", "integer").tolist() == [2, 0, 1]


def test_other_values_and_numbers_of_texts_are_refused() -> None:
    with pytest.raises(DataError, match=r"y, row 1: unknown class 0\. Classes: 200, 404"):
        class_numbers(np.array([200, 0]), ["200", "404"], "y, row", "integer")
    with pytest.raises(DataError, match="the name or the number of a class"):
        class_numbers(np.array([1, 2]), ["1", "2"], "y, row")


@pytest.mark.parametrize(("of_type", "expected"), [("integer", [5, 7, 2]), ("", ["5", "7", "2"])])
def test_a_class_without_a_name_is_its_number(of_type: str, expected: list[Any]) -> None:
    assert classes_of(np.arange(3), ["5", "7"], 3, of_type).tolist() == expected
    assert classes_of(np.arange(3), [], 3, of_type).tolist() == [0, 1, 2]


def test_a_number_that_is_also_a_name_does_not_change_the_type() -> None:
    """Parquet counts the classes up to the largest predicted one, `Model.predict` all outputs of the net."""
    names = ["1", "2", "3"]
    assert {classes_of(np.arange(3), names, n, "integer").dtype for n in (3, 4)} == {np.dtype(np.int64)}
