"""Which tests a command line of pytest runs: the long ones only where they are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT

NO_TESTS = 5
TESTS = """\
import pytest

def test_short(): pass

@pytest.mark.long
def test_long(): pass
"""


def run(directory: Path, *arguments: str) -> tuple[int, list[str]]:
    """Return the exit code of pytest in a directory, and the tests that it would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    return done.returncode, [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    hook = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.selection import *\n"
    (tmp_path / "conftest.py").write_text(hook)
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], ["test_short"]),
        (["."], ["test_short"]),
        (["-k", "test"], ["test_short"]),
        (["-m", "long"], ["test_long"]),
        (["test_some.py"], ["test_short", "test_long"]),
        (["test_some.py::test_long"], ["test_long"]),
    ],
    ids=" ".join,
)
def test_long_tests_run_where_they_are_asked_for(directory: Path, arguments: list[str], chosen: list[str]) -> None:
    assert run(directory, *arguments) == (0, chosen)


def test_that_there_are_no_long_tests_is_an_error(directory: Path) -> None:
    (directory / "test_some.py").write_text("def test_short(): pass\n")
    assert run(directory, "-m", "long")[0] == NO_TESTS


PROPERTY = """\
from hypothesis import given, strategies as st
from tests.selection import few_examples

@few_examples(3)
@given(st.integers())
def test_property(n):
    print("example")
"""


@pytest.mark.parametrize(("arguments", "n_examples"), [([], 3), (["-m", "long"], 30)], ids=["plain", "long"])
def test_a_slow_property_test_has_more_examples_where_long_tests_are_asked_for(
    directory: Path, arguments: list[str], n_examples: int
) -> None:
    (directory / "test_some.py").write_text(PROPERTY)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("example\n")) == (0, n_examples), done.stdout
