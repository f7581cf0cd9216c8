"""User-defined C++ types of jobs in SINGA's format: reported once, with what to do about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from singa_dask.conf.tree import Items, Scalar, Tree, TreeMap, step
from singa_dask.errors import Problem

Path = tuple[str | int, ...]

UNNAMED = ("kUserLayer", "kUserAlg", "kUserUpdater", "kUserChange", "kUserInit")


@dataclass
class OwnType(Scalar):
    """The value of a ``user_type``."""


def merge_own_types(root: Tree, problems: Sequence[Problem]) -> list[Problem]:
    """Merge all problems with an unknown ``user_type`` into one."""
    problems = [_named(root, problem) for problem in problems]
    found = dict(_own_types(root, ()))
    paths = {problem.path for problem in problems} & {path for path, name in found.items() if "." not in name}
    if not paths:
        return problems
    if isinstance(root, TreeMap) and "modules" in root.entries:
        names = [name for path, name in found.items() if path in paths]
        message = f'{_listed(names)} cannot be found. Say in which of the modules each is: user_type: "module.Class".'
    else:
        message = (
            f"{_listed(list(found.values()))}: SINGA has types of your own in C++, here they are classes in Python. "
            'Write them, name their file in the job, modules: "mine.py", and each of them, user_type: "mine.Class". '
            "See Parts of your own in README, and examples/rnnlm for SINGA's language model."
        )
    first = next(path for path in found if path in paths)
    return [Problem(first, message), *(problem for problem in problems if problem.path not in paths)]


def _named(root: Tree, problem: Problem) -> Problem:
    """Ask for the name of a user-defined type where a job gives SINGA's placeholder only."""
    node: Tree | None = root
    for key in problem.path:
        node = step(node, key)
    if isinstance(node, Scalar) and node.value in UNNAMED:
        message = f'{node.value} is a type of your own, and the job does not say which. Add user_type: "module.Class".'
        return replace(problem, message=message)
    return problem


def _listed(names: Sequence[str]) -> str:
    *others, last = dict.fromkeys(map(repr, names))
    return f"{', '.join(others)} and {last}" if others else last


def _own_types(node: Tree, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(node, OwnType):
        yield path, str(node.value)
    elif isinstance(node, TreeMap):
        for key, entry in node.entries.items():
            yield from _own_types(entry.node, (*path, key))
    elif isinstance(node, Items):
        for index, item in enumerate(node.items):
            yield from _own_types(item, (*path, index))


def list_known_once(problems: Sequence[Problem]) -> list[Problem]:
    """Shorten the list of known names in a message if an earlier message has the same list."""
    seen: set[str] = set()
    shown = []
    for problem in problems:
        head, words, names = problem.message.partition(" Known: ")
        shown.append(replace(problem, message=f"{head} Known: see above.") if names in seen else problem)
        seen |= {names} if words else set()
    return shown
