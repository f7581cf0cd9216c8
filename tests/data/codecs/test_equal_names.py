"""Names of categories and classes come in one order, whatever the order in which a process has found them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.codecs.equal_names import in_order


@pytest.mark.parametrize(
    "names",
    [
        ("01", "1", "1.50", "2", "10", "NaN", "nan"),
        ("-inf", "-0", "0", "00", "1e0", "9", "inf", "nan"),
        ("", "10", "9", "a", "nan"),
    ],
)
@given(data=st.data())
def test_names_have_one_order(names: tuple[str, ...], data: st.DataObject) -> None:
    assert in_order(data.draw(st.permutations(names))) == names
