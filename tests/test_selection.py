"""Which tests a command line of pytest runs: the long ones only where they are asked for."""

from __future__ import annotations

import json
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


# Runs pytest with one list of arguments after the other, and prints a line of exit code and tests for each.
MANY = """\
import contextlib, io, json, pytest, sys
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *arguments])
    print(json.dumps([code, [line.rpartition("::")[2] for line in said.getvalue().splitlines() if "::" in line]]))
"""


def run(directory: Path, *cases: list[str]) -> list[tuple[int, list[str]]]:
    """Return for each list of arguments the exit code of pytest in a directory, and the tests that it would run."""
    command = [sys.executable, "-c", MANY, json.dumps(cases)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    hook = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.selection import *\n"
    (tmp_path / "conftest.py").write_text(hook)
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def test_long_tests_run_where_they_are_asked_for(directory: Path) -> None:
    found = run(directory, [], ["."], ["-k", "test"], ["-m", "long"], ["test_some.py"], ["test_some.py::test_long"])
    short, long = ["test_short"], ["test_long"]
    assert found == [(0, tests) for tests in (short, short, short, long, short + long, long)]


def test_that_there_are_no_long_tests_is_an_error(directory: Path) -> None:
    (directory / "test_some.py").write_text("def test_short(): pass\n")
    assert run(directory, ["-m", "long"]) == [(NO_TESTS, [])]


PROPERTY = """\
from hypothesis import given, strategies as st
from tests.selection import few_examples

@few_examples(3)
@given(st.integers())
def test_property(n):
    print("example")
"""


@pytest.mark.parametrize(("arguments", "n_examples"), [([], 3), (["-m", "long"], 12)], ids=["plain", "long"])
def test_a_slow_property_test_has_more_examples_where_long_tests_are_asked_for(
    directory: Path, arguments: list[str], n_examples: int
) -> None:
    (directory / "test_some.py").write_text(PROPERTY)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("example\n")) == (0, n_examples), done.stdout
