"""Reader of jobs in SINGA's text format, versions 0.2 and 0.3, which converts them to equivalent trees.

Models accept SINGA's names of keys and our names, so a file may mix both. The models define which keys may be repeated;
the
user's extensions become ``user_conf``. User-defined C++ types are reported once, with advice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from singa_dask.conf.base import Conf
from singa_dask.conf.files.singa_inputs import DEPRECATED, MnistConf
from singa_dask.conf.files.singa_rules import apply_rules
from singa_dask.conf.files.singa_text import Word, parse
from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeEntry, TreeMap, items, show, step
from singa_dask.conf.job import JobConf
from singa_dask.conf.kinds import PLACEHOLDERS, RegisteredName
from singa_dask.conf.layer import LayerConf, ParamConf
from singa_dask.conf.parts import PartConf, options_classes
from singa_dask.errors import Problem
from singa_dask.registry import Registry

Path = tuple[str | int, ...]


@dataclass
class OwnType(Scalar):
    """The value of a ``user_type``."""


def merge_own_types(root: Tree, problems: Sequence[Problem]) -> list[Problem]:
    """Merge all problems with an unknown ``user_type`` into one."""
    problems = [_named(root, problem) for problem in problems]
    own = dict(_own_types(root, ()))
    paths = {problem.path for problem in problems} & {path for path, name in own.items() if "." not in name}
    if not paths:
        return problems
    if isinstance(root, TreeMap) and "modules" in root.entries:
        names = [name for path, name in own.items() if path in paths]
        message = f'{_listed(names)} cannot be found. Name the module of each: user_type: "module.Class".'
    else:
        message = (
            f"{_listed(list(own.values()))}: your own types are C++ classes in SINGA, and Python classes here. Write "
            'them, and name their file, modules: "mine.py", and each class, user_type: "mine.Class", in the job. '
            "See docs/parts.md, and examples/rnnlm for SINGA's language model."
        )
    first = next(path for path in own if path in paths)
    return [Problem(first, message), *(problem for problem in problems if problem.path not in paths)]


def _named(root: Tree, problem: Problem) -> Problem:
    """Ask for the name of a user-defined type if the job has only SINGA's placeholder."""
    node: Tree | None = root
    for key in problem.path:
        node = step(node, key)
    if isinstance(node, Scalar) and node.value in PLACEHOLDERS:
        message = f'{node.value} means a type of your own, and the job does not name it. Add user_type: "module.Class".'
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


# keys of SINGA that are internal or unused
INTERNAL: dict[type[Conf], set[str]] = {
    MnistConf: {"kernel", "sigma", "alpha", "beta", "gamma", "resize", "elastic_freq"},
    JobConf: {"id"},
    LayerConf: {"unroll_index", "partition_id", "num_partitions"},
    ParamConf: {"id", "owner", "partition_dim", "shape"},
}
TRUTH = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}


def read_job(text: str, file: str, registries: Mapping[str, Registry[Any]]) -> tuple[TreeMap, list[Problem]]:
    """Read a job in SINGA's text format.

    Parameters
    ----------
    text : str
    file : str
        Name of the text in places.
    registries : mapping of str to Registry
        As in `load`, with the blocks of registered classes.

    Returns
    -------
    root : TreeMap
    problems : list of Problem
        Mistakes that the models cannot find.

    Raises
    ------
    ConfigError
        The text is not in this format.
    """
    mapper = _Mapper(registries)
    root = mapper.block(parse(text, file), JobConf, ())
    problems = [Problem(p.path, p.message, p.mark, show(root, p.path)) for p in mapper.problems]
    return root, problems + apply_rules(root)


class _Kind(NamedTuple):
    """The type of a key of a model."""

    base: Any
    repeated: bool
    named: bool


def _kind(info: FieldInfo) -> _Kind:
    base, metadata, repeated = info.annotation, [*info.metadata], False
    while (origin := get_origin(base)) is not None:
        if origin is Annotated:
            metadata += base.__metadata__  # type: ignore[union-attr]
        elif origin is list:
            repeated = True
        elif origin not in (Union, UnionType):
            break
        base = next(arg for arg in get_args(base) if arg is not type(None))
    named = origin is Literal or any(isinstance(each, RegisteredName) for each in metadata)
    return _Kind(str if origin is Literal else dict if origin is dict else base, repeated, named)


class _Mapper:
    """Converts messages of lists to blocks, with the models that check them later."""

    def __init__(self, registries: Mapping[str, Registry[Any]]) -> None:
        self.registries = registries
        self.problems: list[Problem] = []

    def block(self, message: TreeMap, model: type[Conf], path: Path) -> TreeMap:
        block = TreeMap(message.place, {})
        kinds = self.kinds(model)
        # a user_type replaces the type, and an extension is merged into user_conf
        for key in sorted(message.entries, key=lambda key: key in model.aliases or key.startswith("[")):
            place, values = message.entries[key].place, items(message.entries[key].node)
            if not values or key in INTERNAL.get(model, ()):
                continue
            name = model.aliases.get(key, key)
            kind = kinds.get(name)
            if kind is not None:
                node = self.known(values, kind, (*path, name))
                if name in block.entries and not key.startswith("user_"):
                    twice = f"{name} and {key} are two names of the same key. Remove one of them."
                    self.problems.append(Problem((*path, name), twice, place))
                if key == "user_type" and isinstance(node, Scalar):
                    node = OwnType(node.place, node.value)
                block.entries[name] = TreeEntry(place, node)
            elif key.startswith("[") and "user_conf" in model.model_fields:
                self.extend(block, key, values, path)
            else:
                block.entries[name] = TreeEntry(place, _free(values))
        return block

    def kinds(self, model: type[Conf]) -> dict[str, _Kind]:
        """Return the types of a model's keys, including the blocks of registered classes."""
        kinds = {name: _kind(info) for name, info in model.model_fields.items()}
        if issubclass(model, PartConf) and model.kind in self.registries:
            known = options_classes(self.registries[model.kind])
            known = {**DEPRECATED, **known} if model is LayerConf else known
            kinds |= {name: _Kind(block, False, False) for name, block in known.items()}
        return kinds

    def known(self, values: list[Tree], kind: _Kind, path: Path) -> Tree:
        """Return the values of a known key."""
        if kind.repeated:
            return Items(values[0].place, [self.value(each, kind, (*path, i)) for i, each in enumerate(values)])
        self.refuse_second(values, path)
        return self.value(values[0], kind, path)

    def refuse_second(self, values: list[Tree], path: Path) -> None:
        """Report a second value of a key that may not be repeated."""
        if len(values) > 1:
            message = f"duplicate key. The first is at line {values[0].place.line}."
            self.problems.append(Problem(path, message, values[1].place))

    def value(self, value: Tree, kind: _Kind, path: Path) -> Tree:
        if not isinstance(value, Scalar):
            is_model = isinstance(kind.base, type) and issubclass(kind.base, Conf)
            return self.block(value, kind.base, path) if is_model and isinstance(value, TreeMap) else _free_value(value)
        item = value.value
        if kind.base is bool:
            item = TRUTH.get(item, item) if isinstance(item, Word) else bool(item) if item in (0, 1) else item
        elif kind.base is float and isinstance(item, Word) and item.lower() in ("inf", "infinity", "nan"):
            item = float(item)
        elif kind.named:
            item = str(item)
        elif kind.base is str and isinstance(item, Word):
            message = f"expected text, got the word {item}. Put it in quotes."
            self.problems.append(Problem(path, message, value.place))
        return Scalar(value.place, str(item) if isinstance(item, Word) else item)

    def extend(self, block: TreeMap, key: str, values: list[Tree], path: Path) -> None:
        """Put the fields of an extension, or its one value, into ``user_conf``."""
        place = values[0].place
        entry = block.entries.setdefault("user_conf", TreeEntry(place, TreeMap(place, {})))
        by_name: dict[str, list[Tree]] = {}
        for each in values:
            name = key.strip("[]").rpartition(".")[2]
            inner = each.entries if isinstance(each, TreeMap) else {name: TreeEntry(place, each)}
            for name, field in inner.items():
                by_name.setdefault(name, []).extend(items(field.node))
        if not isinstance(entry.node, TreeMap):
            return  # validation by the model reports this mistake
        for name, found in by_name.items():
            if before := entry.node.entries.get(name):
                self.refuse_second([before.node, *found], (*path, "user_conf", name))
            elif found:
                entry.node.entries[name] = TreeEntry(found[0].place, _free(found))


def _free(values: list[Tree]) -> Tree:
    """Return a free-form value; several values are returned as a list."""
    nodes = [_free_value(each) for each in values]
    return nodes[0] if len(nodes) == 1 else Items(values[0].place, nodes)


def _free_value(value: Tree) -> Tree:
    if isinstance(value, TreeMap):
        fields = {key: each for key, each in value.entries.items() if items(each.node)}
        return TreeMap(
            value.place, {key: TreeEntry(each.place, _free(items(each.node))) for key, each in fields.items()}
        )
    assert isinstance(value, Scalar)
    word = value.value
    return Scalar(value.place, TRUTH.get(word, str(word)) if isinstance(word, Word) else word)
