"""Long tests run where they are asked for, and have longer before they count as hanging."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import hypothesis
import pytest

LONG_TIMEOUT_S = 600
MORE = 4
Test = TypeVar("Test", bound=Callable[..., None])
STDERR = pytest.StashKey[int]()

# The same examples each run.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", hypothesis.settings.get_profile("house"))


def mostly_long(values: Iterable[Any], every: int) -> list[Any]:
    """Return values of a parameter, of which only every so many, from the first on, is not in a long test."""
    long: list[Any] = []
    for i, value in enumerate(values):
        marks = [pytest.mark.long] if i % every else []
        long.append(pytest.param(*value if isinstance(value, tuple) else (value,), marks=marks))
    return long


def few_examples(n: int) -> Callable[[Test], Test]:
    """Return a decorator of a property test of whose examples even a few take seconds.

    Plain ``pytest`` runs ``n`` of them, ``pytest -m long`` four times as many.
    """
    if hypothesis.settings.get_current_profile_name() != "long":
        return hypothesis.settings(max_examples=n)
    more = hypothesis.settings(max_examples=MORE * n)
    return lambda test: pytest.mark.long(more(test))


def pytest_configure(config: pytest.Config) -> None:
    """Keep stderr as it is now: while a test runs, it is captured. Choose how many examples a property test has."""
    config.stash[STDERR] = os.dup(2)
    hypothesis.settings.load_profile("long" if config.option.markexpr == "long" else "house")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Watch the end of a test that failed too: pytest and pytest-timeout stop watching at the first exception."""
    faulthandler.dump_traceback_later(LONG_TIMEOUT_S, file=item.config.stash[STDERR], exit=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests, unless ``-m`` names the marker or an argument names their file."""
    timeout = max(LONG_TIMEOUT_S, float(config.getini("timeout") or 0))
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(timeout))
    if "long" in config.option.markexpr:
        return
    named = {(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args}
    groups: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        groups[item.get_closest_marker("long") is None or item.path in named].append(item)
    if groups[False]:
        config.hook.pytest_deselected(items=groups[False])
        items[:] = groups[True]
