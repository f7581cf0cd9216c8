"""Long tests run where they are asked for."""

from __future__ import annotations

import pytest


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
