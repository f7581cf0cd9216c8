"""What pytest-xdist deals together: folders that wait for clusters begin, and each of them is in one process."""

from __future__ import annotations

from itertools import groupby
from types import SimpleNamespace
from typing import Any

from tests import dealing
from tests.cli.conftest import ROOT


def test_folders_that_wait_for_clusters_are_whole_and_first() -> None:
    paths = [
        "tests/cli/test_run.py",
        "tests/hdfs/test_a.py",
        "tests/hdfs/test_b.py",
        "tests/runtime/units/test_ends.py",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=f"{path}::test_{n}") for path in paths for n in "xy"]
    dealing.pytest_collection_modifyitems(items)
    units = [unit for unit, _ in groupby(dealing.unit_of(item.nodeid) for item in items)]
    assert units == ["tests/hdfs", "tests/cli/test_run.py", "tests/runtime/units/test_ends.py"]


def test_these_folders_are_there() -> None:
    assert all((ROOT / folder / "__init__.py").is_file() for folder in dealing.WHOLE)
