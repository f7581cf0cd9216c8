"""Which steps a job profiles."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from singa_dask.conf.profile import Profile, ProfileConf


def read(value: Any) -> ProfileConf | None:
    found: ProfileConf | None = TypeAdapter(Profile).validate_python(value)
    return found


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ProfileConf()),
        (False, None),
        (None, None),
        ({"steps": 3}, ProfileConf(steps=3)),
        ({"first_step": 0, "steps": 1}, ProfileConf(first_step=0, steps=1)),
    ],
)
def test_it_is_on_or_off_or_names_its_steps(value: Any, expected: ProfileConf | None) -> None:
    assert read(value) == expected


@pytest.mark.parametrize("value", [3, "yes", {"step": 3}, {"steps": 0}])
def test_anything_else_is_a_mistake(value: Any) -> None:
    with pytest.raises(ValidationError):
        read(value)


@pytest.mark.parametrize(
    ("first", "train_steps", "steps"),
    [
        (0, 100, range(20, 25)),
        (50, 100, range(70, 75)),
        (0, 25, range(20, 25)),
        (0, 10, range(5, 10)),  # too short: its last steps
        (98, 100, range(98, 100)),
        (100, 100, range(100, 100)),
    ],
)
def test_steps_are_counted_from_where_a_run_begins(first: int, train_steps: int, steps: range) -> None:
    assert ProfileConf().window(first, train_steps) == steps
