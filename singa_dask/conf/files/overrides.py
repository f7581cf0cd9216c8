"""Changes of a job by the option ``--set KEY=VALUE``."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import NoReturn

from singa_dask.conf.files import yaml_text
from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeEntry, TreeMap, named
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.wording import suggest

KEY = r"[^.\[\]=]+(?:\[[^\]]+\])*"
SET = re.compile(rf"({KEY}(?:\.{KEY})*)=(.*)", re.DOTALL)
# key that is set -> key that is then removed
INSTEAD = {"train_steps": "epochs", "epochs": "train_steps", "threads": "num_openblas_threads"}
TOKEN = re.compile(r"([^.\[\]]+)|\[([^\]]+)\]")


def apply_set(root: TreeMap, text: str, option: str = "--set") -> list[Problem]:
    """Change one value: ``updater.momentum=0.9``, ``neuralnet.layer[fc1].innerproduct_conf.num_output=20``.

    Items of lists are selected by name or by index. If several items have the name, all are changed. Values are YAML.
    Returns the problems, whose messages name the ``option``. Unknown keys are reported later, by the models.
    """
    place = Mark(f"{option} {text}")
    match = SET.fullmatch(text)
    if not match:
        message = "expected KEY=VALUE, such as updater.momentum=0.9 or neuralnet.layer[fc1].share_src_blobs=true."
        return [Problem((), message, place)]
    try:
        value, problems = yaml_text.parse(match[2], place.file, with_lines=False)
    except ConfigError as error:
        return [Problem((), f"{problem.message} Put the value in quotes.", place) for problem in error.problems]
    tokens = [(token[1] is None, token[1] or token[2]) for token in TOKEN.finditer(match[1])]
    root.entries.pop(INSTEAD.get(match[1], ""), None)
    try:
        _put(root, tokens, value or Scalar(place, None), "")
    except ConfigError as error:
        return list(error.problems)
    return problems


def _refuse(value: Tree, shown: str, message: str) -> NoReturn:
    """Raise an error for a value whose path exists only up to ``shown``."""
    raise ConfigError(Problem((), message, value.place, shown))


def _put(node: Tree | None, tokens: Sequence[tuple[bool, str]], value: Tree, shown: str) -> Tree:
    """Return the node with the value set at the path of the tokens, creating missing mappings."""
    if not tokens:
        return copy.deepcopy(value)
    (is_item, name), rest = tokens[0], tokens[1:]
    if is_item:
        return _put_item(node, name, rest, value, shown)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        node = TreeMap(value.place, {})
    if not isinstance(node, TreeMap):
        what = "a list; expected an item, such as [0]" if isinstance(node, Items) else "a value without keys"
        _refuse(value, shown, f"this is {what}.")
    inner = f"{shown}.{name}" if shown else name
    old = node.entries.get(name)
    inner_node = _put(old.node if old else None, rest, value, inner)
    node.entries[name] = TreeEntry(old.place if old else value.place, inner_node)
    return node


def _put_item(node: Tree | None, name: str, rest: Sequence[tuple[bool, str]], value: Tree, shown: str) -> Tree:
    if node is None:
        _refuse(value, shown, f"there is no item {name!r}: the job has no such list.")
    if not isinstance(node, Items):
        node = Items(node.place, [node])
    chosen = [i for i, item in enumerate(node.items) if named(item) == name]
    if not chosen and name.isdecimal() and int(name) < len(node.items):
        chosen = [int(name)]
    if not chosen:
        names = {named(item) or str(i) for i, item in enumerate(node.items)}
        _refuse(value, shown, f"there is no item {name!r}. {suggest(name, names)}")
    for i in chosen:
        node.items[i] = _put(node.items[i], rest, value, f"{shown}[{name}]")
    return node
