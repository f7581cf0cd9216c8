"""The content of a job file as a tree. Each node has its place in the file, for messages about the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from singa_dask.errors import Mark

Path: TypeAlias = Sequence[str | int]


@dataclass
class Scalar:
    """One value."""

    place: Mark
    value: bool | int | float | str | None


@dataclass
class Items:
    """A list."""

    place: Mark
    items: list[Tree]


@dataclass
class TreeEntry:
    """A value with the place of its key."""

    place: Mark
    node: Tree


@dataclass
class TreeMap:
    """A mapping."""

    place: Mark
    entries: dict[str, TreeEntry]


Tree: TypeAlias = Scalar | Items | TreeMap


def plain(node: Tree) -> Any:
    """Return the values as dicts, lists and scalars, without their places in the file."""
    if isinstance(node, TreeMap):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return node.value


def child(node: Tree | None, *keys: str) -> Tree | None:
    """Return the node under a path of keys, or None."""
    for key in keys:
        entry = node.entries.get(key) if isinstance(node, TreeMap) else None
        node = entry.node if entry else None
    return node


def items(node: Tree | None) -> list[Tree]:
    """Return the items of a list; another value counts as a list of one, as in `Many`."""
    return node.items if isinstance(node, Items) else [] if node is None else [node]


def text(node: Tree | None) -> str:
    """Return the value of a text node; empty for any other node."""
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def named(node: Tree | None) -> str:
    """Return the ``name`` of a mapping; empty if there is none."""
    return text(child(node, "name"))


def inner(block: TreeMap, key: str) -> TreeMap:
    """Return the mapping under a key, creating an empty one if necessary."""
    node = block.entries.setdefault(key, TreeEntry(block.place, TreeMap(block.place, {}))).node
    return node if isinstance(node, TreeMap) else TreeMap(block.place, {})


def set_default(
    block: TreeMap, key: str, value: bool | int | float | str | list[int], place: Mark | None = None
) -> None:
    """Set a key, unless it is set."""
    at = place or block.place
    node = Items(at, [Scalar(at, each) for each in value]) if isinstance(value, list) else Scalar(at, value)
    block.entries.setdefault(key, TreeEntry(at, node))


def drop(block: Tree | None, *keys: str) -> None:
    """Remove keys of a mapping, if it has them."""
    if isinstance(block, TreeMap):
        for key in keys:
            block.entries.pop(key, None)


def step(node: Tree | None, key: str | int) -> Tree | None:
    """Return the child under a key. If a node is not a list, its item 0 is the node itself, as in `Many`."""
    if isinstance(node, TreeMap) and isinstance(key, str):
        return child(node, key)
    if isinstance(node, Items) and isinstance(key, int):
        return node.items[key] if 0 <= key < len(node.items) else None
    return node if key == 0 and not isinstance(node, Items) else None


def locate(root: Tree, path: Path, at_key: bool = False) -> Mark:
    """Return the place of a value or its key; if the path does not exist, of the last node that exists.

    Parameters
    ----------
    path : sequence of str or int
        Keys and indices from the top.
    at_key : bool
        Whether to return the place of the last key instead of its value.
    """
    node = root
    place = node.place
    for key in path:
        entry = node.entries.get(key) if isinstance(node, TreeMap) and isinstance(key, str) else None
        after = step(node, key)
        if after is None:
            return node.place
        node = after
        place = entry.place if entry and at_key else node.place
    return place


def show(root: Tree, path: Path) -> str:
    """Format a path for messages, with names of items: ``neuralnet.layer[fc1].type``."""
    shown = ""
    node: Tree | None = root
    for key in path:
        after = step(node, key)
        if isinstance(key, str):
            shown += f".{key}" if shown else key
        elif after is None or after is not node:
            shown += f"[{(after and named(after)) or key}]"
        node = after
    return shown
