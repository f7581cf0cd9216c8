"""The exam of layers: it finds every mistake, says what to do, and passes right layers."""

from __future__ import annotations

import pytest

from singa_dask.errors import PartError
from singa_dask.testing import check_layer
from tests.testing.mistakes import WRONG, Wrong
from tests.testing.wrong_layers import Hinge, Scale


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.cls.__name__)
def test_the_exam_finds_a_wrong_layer(wrong: Wrong) -> None:
    with pytest.raises(PartError) as caught:
        check_layer(wrong.cls, **wrong.more)
    assert wrong.says in str(caught.value)
    assert all(line.startswith(f"{wrong.cls.__name__}: ") for line in str(caught.value).splitlines())


def test_right_layers_pass() -> None:
    check_layer(Scale, shapes=[(4, 3)])
    check_layer(Hinge, shapes=[(4, 3), (4,)], labels=[0, 2, 1, 2], fixed=1)
