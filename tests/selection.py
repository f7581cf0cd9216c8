"""Which circle of tests runs: the plain ones, the long ones or the soak; and which tests are in which circle.

``pytest`` runs the plain tests, ``pytest -m long`` and ``pytest -m soak`` the others. The path of a file on the command
line runs the plain and long tests of that file.
"""

from __future__ import annotations

import faulthandler
import functools
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import hypothesis
import pytest

LONG_TIMEOUT_S = 600
MORE = 4
CIRCLES = ("long", "soak")
Test = TypeVar("Test", bound=Callable[..., None])
STDERR = pytest.StashKey[int]()

# The same examples each run.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", hypothesis.settings.get_profile("house"))


def mostly(marker: pytest.MarkDecorator, values: Iterable[Any], every: int) -> list[Any]:
    """Mark the values of a parameter, except the first of each ``every`` values."""
    return [marked(value, [marker] if i % every else []) for i, value in enumerate(values)]


def marked(value: Any, marks: Sequence[pytest.MarkDecorator]) -> Any:
    """Return a value of a parameter with markers; a tuple is the values of several parameters."""
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=marks)


mostly_long = functools.partial(mostly, pytest.mark.long)
mostly_soak = functools.partial(mostly, pytest.mark.soak)


def circles(values: Iterable[Any], plain: int = 1, long: int = 0) -> list[Any]:
    """Mark the values of a parameter: the first ``plain`` values not at all, the next ones long, the rest soak."""
    marks = ((), (pytest.mark.long,), (pytest.mark.soak,))
    return [marked(value, marks[(i >= plain) + (i >= plain + long)]) for i, value in enumerate(values)]


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


def covering(rows: Sequence[tuple[Any, ...]]) -> set[int]:
    """Return the numbers of a few rows in which each pair of values of two columns occurs that occurs in any row."""
    pairs = [{(i, j, row[i], row[j]) for i, j in itertools.combinations(range(len(row)), 2)} for row in rows]
    missing = set().union(*pairs) if pairs else set()
    chosen: set[int] = set()
    while missing:
        best = max(range(len(rows)), key=lambda k: len(pairs[k] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


def mark_all_but_pairs(items: Iterable[pytest.Item]) -> None:
    """Move to the soak what each test marked ``pairs`` does beyond all pairs of values of its parameters.

    Tests whose markers have another ``within`` have pairs of their own.
    """
    variants: dict[tuple[Any, ...], list[pytest.Function]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("pairs")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and marker is not None:
            names = tuple(sorted(item.callspec.params))
            variants[names, item.path, item.originalname, marker.kwargs.get("within")].append(item)
    for (names, *_), tests in variants.items():
        if len(names) > 2:
            chosen = covering([tuple(id(test.callspec.params[name]) for name in names) for test in tests])
            for k, test in enumerate(tests):
                if k not in chosen:
                    test.add_marker("soak")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests and the soak, unless ``-m`` names their marker; a path of a file runs its long tests."""
    mark_all_but_pairs(items)
    timeout = max(LONG_TIMEOUT_S, float(config.getini("timeout") or 0))
    for item in items:
        if circle_of(item):
            item.add_marker(pytest.mark.timeout(timeout))
    asked = {"", *(circle for circle in CIRCLES if circle in config.option.markexpr)}
    named = {(config.invocation_params.dir / argument.split("::")[0]).resolve() for argument in config.args}
    groups: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        circle = circle_of(item)
        groups[circle in asked or (circle == "long" and len(asked) == 1 and item.path in named)].append(item)
    if groups[False]:
        config.hook.pytest_deselected(items=groups[False])
        items[:] = groups[True]


def circle_of(item: pytest.Item) -> str:
    """Return ``""``, ``"long"`` or ``"soak"``."""
    return next((circle for circle in reversed(CIRCLES) if item.get_closest_marker(circle)), "")
