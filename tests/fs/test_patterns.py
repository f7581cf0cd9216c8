"""What files a pattern means: those that the shell would name; and what exists is never a pattern."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.patterns import is_pattern, matches
from singa_dask.fs.range_reader import RangeReader

NAMES = [
    *("a.csv", "b.csv", "train1.csv", "train[1].csv", "what?.csv", ".hidden.csv", "report[2].csv"),
    *("d/a.csv", "d/e/b.csv", "d/.h/c.csv", "x=1/a.csv", "x=2/a.csv"),
]
PATTERNS = [
    *("*.csv", "?.csv", "train?.csv", "[ab].csv", "[!a].csv", "report[[]2].csv", "*/a.csv", "**/*.csv", "d/**"),
    *(".*.csv", "{a,b,nothing}.csv", "{d,x=*}/a.csv", "x={1,2}/*.csv", "{a,{b,train1}}.csv", "d/*", "./*.csv", "no*"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(pattern: str) -> list[str]:
    """Return the files and directories that bash makes of a pattern."""
    said = subprocess.run(
        ["bash", "-O", "globstar", "-O", "nullglob", "-c", f"for f in {pattern}; do printf '%s\\n' \"$f\"; done"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return sorted(each for each in set(said.stdout.splitlines()) if os.path.exists(each))


@pytest.mark.skipif(shutil.which("bash") is None, reason="compares with bash")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_what_it_means_to_the_shell(folder: Path, pattern: str) -> None:
    found = matches(pattern)
    wanted = [each for each in shell(pattern) if pattern != "d/**" or os.path.isfile(each)]
    assert [each for each in found if pattern != "d/**" or os.path.isfile(each)] == wanted
    inside = [os.path.relpath(each, folder) for each in matches(str(folder / pattern))]
    assert sorted(map(os.path.normpath, found)) == sorted(inside)


@pytest.mark.parametrize("name", [*NAMES, "*.csv", "{a,b}.csv", "d[1]/a.csv"])
def test_what_exists_is_no_pattern(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    assert not is_pattern(name)
    assert not is_pattern(str(folder / name))
    shutil.rmtree(folder / "d")
    (folder / name).unlink(missing_ok=True)
    assert is_pattern(name) == any(sign in name for sign in "*?[{")


@pytest.mark.parametrize("url", ["https://h/a.csv?sig=x%2Fy*", "http://h/a?b=[1]", "a.csv", "s3://b/c.csv", "{a}.csv"])
def test_these_are_no_patterns(url: str) -> None:
    assert not is_pattern(url)


def test_patterns_on_other_file_systems(tmp_path: Path) -> None:
    root = f"memory://{tmp_path.name}-patterns"
    for name in ("x=1/a.csv", "x=2/a.csv", "x=2/b[1].csv", "x=2/b1.csv"):
        fs.write_atomic(f"{root}/{name}", b"1")
    assert matches(f"{root}/*/a.csv") == [f"{root}/x=1/a.csv", f"{root}/x=2/a.csv"]
    assert matches(f"{root}/**/b*.csv") == [f"{root}/x=2/b1.csv", f"{root}/x=2/b[1].csv"]
    assert matches(f"{root}/nothing/*.csv") == []
    assert not is_pattern(f"{root}/x=2/b[1].csv")


ANY = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=60)
@given(st.sets(ANY, max_size=6))
def test_each_file_of_any_name_is_itself(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    folder = tmp_path_factory.mktemp("names")
    names -= {".", ".."}
    for name in names:
        (folder / name).write_text(name)
    shown = sorted(str(folder / name) for name in names if not name.startswith("."))
    assert sorted(matches(f"{folder}/*")) == ([f"{folder}/*"] if "*" in names else shown)
    assert not any(map(is_pattern, shown))


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_is_named(folder: Path, kind: str) -> None:
    odd = folder / "d" / "odd"
    for each in (odd, folder / "d" / ".lock"):
        each.symlink_to("nothing") if kind == "link" else os.mkfifo(each)
    said = "a link to nothing, which does not exist" if kind == "link" else "a pipe, a socket or a device, not a file"
    with pytest.raises(DataError, match=f"d/odd: this is {said}"):
        fs.entries(str(folder / "d"))
    if kind == "pipe":  # nobody waits for a writer
        for read in (fs.read_bytes, RangeReader):
            with pytest.raises(DataError, match=f"d/odd: this is {said}"):
                read(str(odd))
    odd.unlink()
    assert [name for name, _, _ in fs.entries(str(folder / "d"))] == [".h", ".lock", "a.csv", "e"]


def test_a_name_with_brackets_is_deleted_alone(tmp_path: Path) -> None:
    root = f"memory://{tmp_path.name}-brackets"
    for name in ("run[1]/a.csv", "run[1]/b/c.csv", "run1/a.csv", "x[1].csv", "x1.csv"):
        fs.write_atomic(f"{root}/{name}", b"1")
    fs.remove_tree(f"{root}/run[1]")
    fs.remove_tree(f"{root}/x[1].csv")
    assert matches(f"{root}/**/*.csv") == [f"{root}/run1/a.csv", f"{root}/x1.csv"]
    assert not fs.exists(f"{root}/run[1]")
