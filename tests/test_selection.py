"""Which tests a command line of pytest runs: long ones and the soak only where they are asked for."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ROOT
from tests.selection import covering

NO_TESTS = 5
TESTS = """\
import pytest
from hypothesis import given, strategies as st
from tests.selection import circles, few_examples, mostly_soak

def test_short(): pass

@pytest.mark.long
def test_long(): pass

@pytest.mark.soak
def test_soak(): pass

@pytest.mark.long
@pytest.mark.soak
def test_both(): pass

@pytest.mark.parametrize("n", mostly_soak(range(3), 2))
def test_mostly(n): pass

@pytest.mark.parametrize("n", circles(range(3), long=1))
def test_three(n): pass

@few_examples(3)
@given(st.integers())
def test_property(n):
    print("example")
"""
PAIRS = """\
import pytest

@pytest.mark.pairs
@pytest.mark.parametrize("a", range(2))
@pytest.mark.parametrize("b", range(2))
@pytest.mark.parametrize("c", range(2))
def test_pairs(a, b, c): pass
"""
SHORT = ["test_short", "test_mostly[0]", "test_mostly[2]", "test_three[0]"]
SOAK = ["test_soak", "test_both", "test_mostly[1]", "test_three[2]"]

# Runs pytest with one list of arguments after the other. Prints for each: exit code, tests, examples of properties.
MANY = """\
import contextlib, io, json, pytest, sys
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main(["-v", "-s", "-p", "no:cacheprovider", *arguments])
    for name in ("conftest", "test_some", "test_other"):
        sys.modules.pop(name, None)
    lines = said.getvalue().splitlines()
    tests = [line.split(" ")[0].rpartition("::")[2] for line in lines if "::" in line.split(" ")[0]]
    print(json.dumps([code, tests, said.getvalue().count("example\\n")]))
"""


def run(directory: Path, *cases: list[str]) -> list[list[Any]]:
    """Return for each list of arguments the exit code of pytest, its tests, and the examples of properties."""
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n    long\n    soak\n    pairs\n")
    hook = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.selection import *\n"
    (directory / "conftest.py").write_text(hook)
    command = [sys.executable, "-c", MANY, json.dumps(cases)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_circle_runs_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    (tmp_path / "test_pairs.py").write_text(PAIRS)
    commands = [
        "-k test_some",
        "-m long",
        "-m long test_other.py",
        "test_some.py",
        "-m soak test_some.py",
        "",
        "-m soak",
    ]
    *found, all_plain, all_soak = run(tmp_path, *(command.split() for command in commands))
    assert found == [
        [0, [*SHORT, "test_property"], 3],
        [0, ["test_long", "test_three[1]", "test_property"], 12],
        [NO_TESTS, [], 0],
        [0, [*SHORT[:1], "test_long", *SHORT[1:], "test_three[1]", "test_property"], 3],
        [0, SOAK, 0],
    ]
    plain, soak = ([name for name in tests if name.startswith("test_pairs")] for _, tests, _ in (all_plain, all_soak))
    assert len(plain) == len(soak) == 4
    assert len({*plain, *soak}) == 8
    assert set(all_plain[1]) == {"test_other", *SHORT, "test_property", *plain}


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 3, 4), (1, 5, 1), (2, 6)])
def test_a_cover_has_each_pair_of_values_and_few_rows(sizes: tuple[int, ...]) -> None:
    rows = list(itertools.product(*map(range, sizes)))
    chosen = [rows[k] for k in covering(rows)]
    for i, j in itertools.combinations(range(len(sizes)), 2):
        assert {(row[i], row[j]) for row in chosen} == set(itertools.product(range(sizes[i]), range(sizes[j])))
    largest, second = sorted(sizes)[:-3:-1]
    assert len(chosen) <= 1.5 * largest * second
