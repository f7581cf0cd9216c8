"""Long tests run where they are asked for, and have longer before they count as hanging."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterable
from typing import Any

import pytest

HANGS_AFTER_S = 600
STDERR = pytest.StashKey[int]()


def mostly_long(values: Iterable[Any], every: int) -> list[Any]:
    """Return values of a parameter, of which only every so many, from the first on, is not in a long test."""
    long: list[Any] = []
    for i, value in enumerate(values):
        marks = [pytest.mark.long] if i % every else []
        long.append(pytest.param(*value if isinstance(value, tuple) else (value,), marks=marks))
    return long


def pytest_configure(config: pytest.Config) -> None:
    """Keep stderr as it is now: while a test runs, it is captured."""
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put off pytest's ``faulthandler_timeout`` for a long test."""
    if item.get_closest_marker("long"):
        faulthandler.dump_traceback_later(HANGS_AFTER_S, file=item.config.stash[STDERR], exit=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests, unless ``-m`` names the marker or an argument names their file."""
    if "long" in config.option.markexpr:
        return
    named = {(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args}
    groups: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        groups[item.get_closest_marker("long") is None or item.path in named].append(item)
    if groups[False]:
        config.hook.pytest_deselected(items=groups[False])
        items[:] = groups[True]
