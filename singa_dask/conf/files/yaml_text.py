"""YAML: convert text to a tree with places, and convert values to text.

Scalars are read as in YAML 1.2: ``1e-3`` is a number; ``on``, ``off``, ``yes`` and ``no`` are strings.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import yaml

from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeEntry, TreeMap, plain
from singa_dask.errors import ConfigError, Mark, Problem
from singa_dask.redaction import SURROGATE

BREAK = re.compile("[\n\r\x85\u2028\u2029]")
# placeholder for surrogates (bytes of file names), which libyaml cannot write
BYTE = f"byte-{secrets.token_hex(8)}-"
TAG = "tag:yaml.org,2002:"
# maximum length of a mapping in one line, the same as in Python's writer
MAX_FLOW = 100
FORMS = [
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with the scalars of YAML 1.2."""


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same loader in C, if available. It is eight times as fast, but has less clear error messages."""


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes texts that YAML 1.1 or 1.2 would read as other types."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write no aliases."""
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        """Write a list of scalars in one line."""
        flat = not any(isinstance(item, (dict, list)) for item in sequence)
        node: yaml.SequenceNode = super().represent_sequence(tag, sequence, flow_style=flat)
        return node


class _BriefDumper(_Dumper):
    """Writes a short mapping in one line."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node: yaml.MappingNode = super().represent_mapping(tag, mapping, flow_style=len(repr(mapping)) <= MAX_FLOW)
        return node


def _represent(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Write a text with line breaks in double quotes, because PyYAML folds line breaks in other styles."""
    written = SURROGATE.sub(lambda found: f"{BYTE}{ord(found[0]):04x}", text)
    style = '"' if BREAK.search(text) or written != text else None
    node: yaml.ScalarNode = dumper.represent_scalar(TAG + "str", written, style=style)
    return node


_Dumper.add_representer(str, _represent)
_Loader.yaml_implicit_resolvers = {}
for _name, _form, _first in FORMS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(TAG + _name, re.compile(f"^(?:{_form})$"), [*_first])
_Loader.add_implicit_resolver(TAG + "null", re.compile("^$"), [""])
_FastLoader.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


class _Reader:
    """Converts nodes of PyYAML to a tree with aliases expanded, so that each node has one place."""

    def __init__(self, file: str, with_lines: bool) -> None:
        self.file = file
        self.with_lines = with_lines
        self.problems: list[Problem] = []

    def mark(self, mark: Any) -> Mark:
        return Mark(self.file, mark.line + 1, mark.column + 1) if self.with_lines else Mark(self.file)

    def complain(self, path: tuple[str | int, ...], message: str, mark: Any) -> None:
        self.problems.append(Problem(path, message, self.mark(mark)))

    def read(self, node: Any, path: tuple[str | int, ...] = (), above: tuple[int, ...] = ()) -> Tree:
        place = self.mark(node.start_mark)
        if id(node) in above:
            self.complain(path, "this alias is inside of the value that it refers to.", node.start_mark)
            return Scalar(place, None)
        above = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            return self.block(node, place, path, above)
        if isinstance(node, yaml.SequenceNode):
            return Items(place, [self.read(item, (*path, i), above) for i, item in enumerate(node.value)])
        return Scalar(place, self.scalar(node, path))

    def block(self, node: Any, place: Mark, path: tuple[str | int, ...], above: tuple[int, ...]) -> TreeMap:
        block = TreeMap(place, {})
        merged: list[Any] = []
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == "<<" and not key.style:
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if not isinstance(key, yaml.ScalarNode):
                self.complain(path, "expected a scalar as key, got a list or a mapping.", key.start_mark)
                continue
            inner = (*path, key.value)
            if before := block.entries.get(key.value):
                first = f" The first is at line {before.place.line}." if before.place.line else ""
                self.complain(inner, f"duplicate key.{first}", key.start_mark)
                continue
            block.entries[key.value] = TreeEntry(self.mark(key.start_mark), self.read(value, inner, above))
        for other in merged:  # add missing keys from merged mappings; the first mapping takes precedence
            if not isinstance(other, yaml.MappingNode):
                self.complain(path, "<<: expected a mapping, or a list of mappings.", other.start_mark)
                continue
            read = self.read(other, path, above)
            block.entries = (read.entries if isinstance(read, TreeMap) else {}) | block.entries
        return block

    def scalar(self, node: Any, path: tuple[str | int, ...]) -> bool | int | float | str | None:
        text: str = node.value
        kind = node.tag.removeprefix(TAG)
        try:
            return _convert(kind, text)
        except KeyError:
            self.complain(path, f"unknown YAML tag {node.tag!r}. Remove the tag.", node.start_mark)
        except ValueError:
            self.complain(path, f"{text[:40]!r} cannot be read as {kind}.", node.start_mark)
        return None


def _convert(kind: str, text: str) -> bool | int | float | str | None:
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
    if kind == "float":
        return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    raise KeyError(kind)


def parse(text: str, file: str, with_lines: bool = True) -> tuple[Tree | None, list[Problem]]:
    """Parse a YAML document.

    Parameters
    ----------
    text : str
    file : str
        Name of the text in places.
    with_lines : bool
        Whether the places of values include line and column.

    Returns
    -------
    node : Tree or None
        None for an empty text.
    problems : list of Problem
        Duplicate keys, and YAML that job files may not contain.

    Raises
    ------
    ConfigError
        The text is not YAML.
    """
    reader = _Reader(file, with_lines)
    try:
        try:
            root = _FastLoader(text).get_single_node()
        except yaml.YAMLError:
            root = _Loader(text).get_single_node()  # the Python loader has clearer error messages
        return (None if root is None else reader.read(root)), reader.problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(Problem((), _words(error, mark), reader.mark(mark) if mark else Mark(file))) from None
    except yaml.reader.ReaderError as error:
        head = text[: error.position]
        place = Mark(file, head.count("\n") + 1, len(head) - head.rfind("\n")) if with_lines else Mark(file)
        message = f"not valid YAML: character U+{error.character:04X} is not allowed."
        raise ConfigError(Problem((), message, place)) from None
    except RecursionError:
        raise ConfigError(Problem((), "nested too deeply.", Mark(file))) from None


def composed(text: str) -> yaml.Node | None:
    """Return the nodes of a YAML document with their places; None if the text is empty or not YAML."""
    try:
        root: yaml.Node | None = _FastLoader(text).get_single_node()
    except yaml.YAMLError:
        return None
    return root


def read_plain(text: str, file: str) -> Any:
    """Return the values of a YAML file.

    Raises
    ------
    ConfigError
        The file is not valid YAML.
    """
    root, problems = parse(text, file)
    if problems:
        raise ConfigError(problems)
    return None if root is None else plain(root)


def _words(error: yaml.MarkedYAMLError, mark: Any) -> str:
    if mark and mark.buffer and mark.buffer[mark.pointer : mark.pointer + 1] == "\t":
        return "not valid YAML: got a tab. Indent with spaces."
    start = error.context_mark
    if start and str(error.problem).startswith("expected <block end>"):
        kind = "list" if "collection" in str(error.context) else "mapping"
        hint = "Check its indentation, and whether a line above it is missing."
        return f"not valid YAML: this line does not fit the {kind} that starts at line {start.line + 1}. {hint}"
    where = f" ({error.context}, which starts at line {start.line + 1})" if error.context and start else ""
    return f"not valid YAML: {error.problem}{where}."


def dump(value: Any, brief: bool = False) -> str:
    """Return dicts, lists and scalars as YAML; with ``brief``, short mappings take one line."""
    dumper = _BriefDumper if brief else _Dumper
    text: str = yaml.dump(
        value, Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120
    )
    return text.replace(BYTE, r"\u")
