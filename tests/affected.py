"""Print which rooms of the package a change touches, and which soak tests examine these rooms.

``python -m tests.affected [REV]`` compares the working tree with a commit, with ``HEAD`` by default.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tests.test_layering import FILES, LEVELS, ROOT, imports, own_room, room_of

__all__ = ["EXAMINED", "rooms_above", "rooms_of", "soak_tests"]

ALL = frozenset(LEVELS)
# What marks soak tests in the source of a test.
WORDS = ("mark.soak", "mostly_soak", "circles(", "mark.pairs", '"pairs"')
# Tests with soak tests, and the rooms that these examine beside the room that their folder is named after.
EXAMINED: dict[str, frozenset[str]] = {
    "tests/contracts": frozenset({"ops", "data"}),
    "tests/docs": ALL,
    "tests/examples": ALL,
    "tests/faults": frozenset({"runtime", "comm", "cancellation"}),
    "tests/first_hour": ALL,
    "tests/fuzz": frozenset({"data", "fs"}),
    "tests/gpu": frozenset({"ops", "layers", "inputs", "net"}),
    "tests/hdfs": frozenset({"fs", "data"}),
    "tests/oracles": frozenset({"ops", "layers", "inputs", "net", "training", "exports"}),
    "tests/test_interpreters.py": ALL,
    "tests/test_wheel.py": ALL,
}


def rooms_of(paths: Iterable[str]) -> set[str]:
    """Return the rooms that files belong to, tests too.

    Parameters
    ----------
    paths : iterable of str
        Paths relative to the root of the repository. Files outside of the package and its tests have no room.

    Returns
    -------
    set of str
        Keys of `LEVELS`.
    """
    rooms: set[str] = set()
    for name in paths:
        match PurePosixPath(name).parts:
            case ("singa_dask", *rest) if rest:
                rooms.add(room_of(ROOT / name))
            case ("tests", folder, _, *_):
                rooms |= {folder} & ALL | EXAMINED.get(f"tests/{folder}", frozenset())
    return rooms & ALL


def rooms_above(rooms: set[str]) -> set[str]:
    """Return the other rooms that import from rooms directly."""
    return {room_of(path) for path in FILES for _, name in imports(path) if own_room(name) in rooms} - rooms


def soak_tests(rooms: set[str]) -> list[str]:
    """Return the folders and files of soak tests that examine rooms."""
    places = {path.relative_to(ROOT).as_posix() for path in has_soak_tests()}
    own = {f"tests/{room}" for room in rooms}
    return sorted(place for place in places if place in own or EXAMINED.get(place, frozenset()) & rooms)


def has_soak_tests() -> set[Path]:
    """Return the folders below ``tests``, and the files in it, whose source marks tests as soak."""
    tests = ROOT / "tests"
    marked = [path for path in tests.rglob("*.py") if any(word in path.read_text() for word in WORDS)]
    return {tests / path.relative_to(tests).parts[0] for path in marked} - {
        tests / "selection.py",
        tests / "test_selection.py",
        Path(__file__),
    }


def changed_paths(commit: str) -> list[str]:
    """Return the files that differ from a commit, new ones too."""
    asked = (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"])
    return [
        line
        for words in asked
        for line in subprocess.run(
            ["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()
    ]


def main(commit: str = "HEAD") -> None:
    """Print the rooms and the soak tests of what has changed since a commit."""
    rooms = rooms_of(changed_paths(commit))
    if not rooms:
        print(f"No room of the package has changed since {commit}.")
        return
    print(f"Changed since {commit}: {', '.join(sorted(rooms))}")
    print(f"Import from them: {', '.join(sorted(rooms_above(rooms))) or 'none'}")
    print(f"Soak tests that examine them: pytest -m soak -n 2 --dist loadfile {' '.join(soak_tests(rooms))}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
