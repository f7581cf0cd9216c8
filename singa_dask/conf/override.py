"""Changes to a job from the command line, made in its tree, so that messages keep their places."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

from singa_dask.conf import yaml_text
from singa_dask.conf.tree import Block, Entry, Items, Scalar, Tree, named
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.registry import suggest

__all__ = ["apply_set", "replace_cluster"]

KEY = r"[^.\[\]=]+(?:\[[^\]]+\])*"
SET = re.compile(rf"({KEY}(?:\.{KEY})*)=(.*)", re.DOTALL)
TOKEN = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")


class _NoPlace(Exception):
    """A path does not exist. Arguments: the part of it that exists, and the message."""


def apply_set(root: Block, text: str) -> list[Problem]:
    """Change one value: ``updater.momentum=0.9``, ``neuralnet.layer[fc1].innerproduct_conf.num_output=20``.

    An item of a list is given by name or by index; where several have the name, all are changed. Values are
    read as YAML.

    Returns
    -------
    list of Problem
        What is wrong with the change; unknown keys are left to the models.
    """
    place = Mark(f"--set {text}")
    match = SET.fullmatch(text)
    if not match:
        message = "expected KEY=VALUE, such as updater.momentum=0.9 or neuralnet.layer[fc1].share_src_blobs=true."
        return [Problem((), message, place)]
    try:
        value, problems = yaml_text.parse(match[2], place.file, with_lines=False)
        tokens = [(found[1] is None, found[1] or found[2]) for found in TOKEN.finditer(match[1])]
        _put(root, tokens, value or Scalar(place, None), "")
    except ConfigError as error:
        return [Problem((), f"{problem.message} Put the value in quotes.", place) for problem in error.problems]
    except _NoPlace as error:
        shown, message = error.args
        return [Problem((), message, place, shown)]
    return problems


def _put(node: Tree | None, tokens: Sequence[tuple[bool, str]], value: Tree, shown: str) -> Tree:
    """Return the node with the value set at the path of the tokens; missing mappings are created."""
    if not tokens:
        return copy.deepcopy(value)
    (is_item, name), rest = tokens[0], tokens[1:]
    if is_item:
        return _put_item(node, name, rest, value, shown)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        node = Block(value.place, {})
    if not isinstance(node, Block):
        what = "a list; say which item, as in [0]" if isinstance(node, Items) else "a value without keys"
        raise _NoPlace(shown, f"this is {what}.")
    inner = f"{shown}.{name}" if shown else name
    old = node.entries.get(name)
    made = _put(old.node if old else None, rest, value, inner)
    node.entries[name] = Entry(old.place if old else value.place, made)
    return node


def _put_item(node: Tree | None, name: str, rest: Sequence[tuple[bool, str]], value: Tree, shown: str) -> Tree:
    if node is None:
        raise _NoPlace(shown, f"there is no item {name!r}: the job has no such list.")
    if not isinstance(node, Items):
        node = Items(node.place, [node])
    chosen = [i for i, item in enumerate(node.items) if named(item) == name]
    if not chosen and name.isdecimal() and int(name) < len(node.items):
        chosen = [int(name)]
    if not chosen:
        names = {named(item) or str(i) for i, item in enumerate(node.items)}
        raise _NoPlace(shown, f"there is no item {name!r}. {suggest(name, names)}")
    for i in chosen:
        node.items[i] = _put(node.items[i], rest, value, f"{shown}[{name}]")
    return node


def replace_cluster(root: Block, text: str, file: str) -> list[Problem]:
    """Replace the job's cluster by that of a cluster file, with or without ``cluster:`` above it.

    Raises
    ------
    ConfigError
        The file is not YAML, or no mapping.
    """
    node, problems = yaml_text.parse(text, file)
    if not isinstance(node, Block):
        raise ConfigError(Problem((), "expected the keys of a cluster, such as nworker_groups.", Mark(file, 1, 1)))
    own = node.entries.pop("cluster", None)
    if own is None:
        problems = [Problem(("cluster", *p.path), p.message, p.mark) for p in problems]
        own = Entry(node.place, node)
    else:
        problems += [
            Problem((key,), "a cluster file holds nothing beside cluster.", entry.place)
            for key, entry in node.entries.items()
        ]
    root.entries["cluster"] = own
    return problems
