"""Arrays in memory: labels that name classes, or number them."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.data.codecs.plain_arrays import class_numbers
from singa_dask.errors import DataError


@pytest.mark.parametrize("names", [[], ["cat", "dog"], ["0", "1"], ["00", "01"]])
def test_integers_are_numbers_of_classes(names: list[str]) -> None:
    assert class_numbers(np.array([1, 0]), names, "y, record").tolist() == [1, 0]


@pytest.mark.parametrize("names", [["3", "5"], ["1", "0"], ["-1", "cat"]])
def test_they_are_refused_where_they_could_be_names_of_others(names: list[str]) -> None:
    with pytest.raises(DataError, match=rf"y, record 0: 1, the name or the number .* named {', '.join(names)}. Expect"):
        class_numbers(np.array([1, 0]), names, "y, record")
    assert class_numbers(np.array(names), names, "y, record").tolist() == [0, 1]
