"""Blocks of layers: lists of layers in a job file, which the net can use any number of times.

Blocks are expanded in the tree of the file, so that the models see plain layers, and messages name lines of the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from singa_dask.conf.files.tree import Items, Scalar, Tree, TreeEntry, TreeMap, child, items, named, text
from singa_dask.errors import ConfigError, Problem
from singa_dask.wording import suggest

SCHEMA: dict[str, Any] = {
    "Block": {
        "type": "object",
        "description": "A named list of layers.",
        "required": ["layer"],
        "additionalProperties": False,
        "properties": {
            "inputs": {
                "description": "Names of the inputs, used as `$NAME` in srclayers. By default one, in.",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            },
            "values": {
                "description": "Default values by name, used as `$NAME`; null if each use must set one.",
                "type": "object",
            },
            "output": {
                "description": "The layer that readers of the block read; by default the last.",
                "type": "string",
            },
            "layer": {"description": "The layers.", "type": "array", "items": {"type": "object"}},
        },
    },
    "BlockUse": {
        "type": "object",
        "description": "A use of a block, in a list of layers.",
        "required": ["name", "block"],
        "additionalProperties": False,
        "properties": {
            "name": {"description": "Prefix, with a dot, of the names of the layers.", "type": "string"},
            "block": {"description": "Name of the block.", "type": "string"},
            "srclayers": {
                "description": "Layers for the inputs of the block, in order.",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            },
            "values": {"description": "Values that replace defaults of the block.", "type": "object"},
            "repeat": {
                "description": "Number of copies in a chain; the first input of each is the one before.",
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}],
            },
        },
    },
}
"""JSON schemas of a block and of its use."""
_DEFINITION = tuple(SCHEMA["Block"]["properties"])
_USE = tuple(SCHEMA["BlockUse"]["properties"])
_PLACEHOLDER = re.compile(r"\$(\w+)")
_MAX_LAYERS = 10_000


class _Block(NamedTuple):
    """The definition of a block; its fields are described in `SCHEMA`."""

    name: str
    inputs: list[str]
    values: dict[str, Tree]
    output: str
    layers: list[TreeMap]


def expand(root: TreeMap) -> list[Problem]:
    """Replace each use of a block by its layers; remove ``blocks``, and keys that begin with ``x-``.

    Returns the first mistake, if there is one.
    """
    for key in [key for key in root.entries if key.startswith("x-")]:
        del root.entries[key]
    net = child(root, "neuralnet")
    layers = net.entries.get("layer") if isinstance(net, TreeMap) else None
    definitions = root.entries.pop("blocks", None)
    if layers is None or (definitions is None and not any(map(_is_use, items(layers.node)))):
        return []
    try:
        expansion = _Expansion(_definitions(definitions))
        expanded = list(expansion.layers(items(layers.node)))
        expansion.connect(expanded)
    except ConfigError as error:
        return list(error.problems)
    layers.node = Items(layers.node.place, list(expanded))
    return []


def _refuse(node: Tree, message: str) -> NoReturn:
    raise ConfigError(Problem((), message, node.place))


def _is_use(node: Tree) -> bool:
    return isinstance(node, TreeMap) and "block" in node.entries


def _check_keys(node: TreeMap, known: tuple[str, ...], what: str) -> None:
    for key, entry in node.entries.items():
        if key not in known:
            raise ConfigError(Problem((), f"{what} has no key {key!r}. Known: {', '.join(known)}.", entry.place))


def _definitions(entry: TreeEntry | None) -> dict[str, _Block]:
    if entry is None:
        return {}
    if not isinstance(entry.node, TreeMap):
        _refuse(entry.node, "blocks: expected names of blocks, and for each its layers: {NAME: {layer: [...]}}.")
    return {name: _definition(name, each.node) for name, each in entry.node.entries.items()}


def _definition(name: str, node: Tree) -> _Block:
    if not isinstance(node, TreeMap):
        _refuse(node, f"block {name!r}: expected {{layer: [...]}}, and optionally inputs, values and output.")
    _check_keys(node, _DEFINITION, f"block {name!r}")
    layers = items(child(node, "layer"))
    maps = [each for each in layers if isinstance(each, TreeMap)]
    if not maps or len(maps) < len(layers):
        _refuse(node, f"block {name!r}: expected a list of layers under layer, each with a name and a type.")
    if nameless := [each for each in maps if not named(each)]:
        _refuse(nameless[0], f"block {name!r}: expected a name for each of its layers.")
    values = child(node, "values") or TreeMap(node.place, {})
    if not isinstance(values, TreeMap):
        _refuse(values, f"block {name!r}: expected values by name, with null for those that each use must set.")
    inputs = [text(each) for each in items(child(node, "inputs"))] or ["in"]
    if not all(inputs) or len({*inputs, *values.entries}) < len(inputs) + len(values.entries):
        _refuse(node, f"block {name!r}: expected different names for its inputs and values.")
    output = text(child(node, "output")) or named(maps[-1])
    if output not in map(named, maps):
        known = suggest(output, set(map(named, maps)))
        _refuse(child(node, "output") or node, f"block {name!r} has no layer {output!r}. {known}")
    return _Block(name, inputs, {key: each.node for key, each in values.entries.items()}, output, maps)


@dataclass
class _Expansion:
    """Replaces uses of ``blocks`` by layers; ``outputs``: name of a use -> name of its output layer."""

    blocks: dict[str, _Block]
    outputs: dict[str, str] = field(default_factory=dict)

    n_layers: int = 0

    def layers(self, nodes: list[Tree], within: tuple[str, ...] = ()) -> Iterator[Tree]:
        """Yield layers, with uses of blocks replaced by the layers of the blocks."""
        for node in nodes:
            if isinstance(node, TreeMap) and _is_use(node):
                yield from self._use(node, within)
                continue
            self.n_layers += 1
            if self.n_layers > _MAX_LAYERS:
                _refuse(node, f"blocks expand to more than {_MAX_LAYERS:,} layers. Is a repeat too large?")
            yield node

    def _use(self, node: TreeMap, within: tuple[str, ...]) -> Iterator[Tree]:
        wanted, name = text(child(node, "block")), named(node)
        if not name:
            _refuse(node, "expected a name, the prefix of the names of the block's layers.")
        what = f"{name!r}, a use of block {wanted!r},"
        _check_keys(node, _USE, what)
        block = self.blocks.get(wanted)
        if block is None:
            _refuse(node.entries["block"].node, f"unknown block {wanted!r}. {suggest(wanted, set(self.blocks))}")
        if wanted in within:
            _refuse(node, f"block {wanted!r} contains itself: {' > '.join([*within, wanted])}.")
        sources = items(child(node, "srclayers"))
        if len(sources) != len(block.inputs):
            names = ", ".join(block.inputs)
            _refuse(node, f"{what} reads {len(sources)} layers, expected {len(block.inputs)} in srclayers: {names}.")
        values = block.values | self._values(node, block, what)
        for key, value in values.items():
            if isinstance(value, Scalar) and value.value is None:
                _refuse(node, f"{what} needs a value for {key!r}. Set values: {{{key}: ...}}.")
        times = child(node, "repeat")
        count = 1 if times is None else times.value if isinstance(times, Scalar) else None
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            _refuse(times or node, f"{what} has repeat {count!r}. Expected a whole number of at least 1.")
        for turn in range(1, count + 1):
            prefix = f"{name}." if times is None else f"{name}.{turn}."
            bound = dict(zip(block.inputs, sources, strict=True)) | values
            yield from self.layers([_bound(each, block, prefix, bound) for each in block.layers], (*within, wanted))
            # the next copy of the block reads the output of this copy
            sources = [Scalar(node.place, prefix + block.output), *sources[1:]]
        self.outputs[name] = text(sources[0])

    def _values(self, node: TreeMap, block: _Block, what: str) -> dict[str, Tree]:
        """Return the values that a use sets."""
        values = child(node, "values") or TreeMap(node.place, {})
        if not isinstance(values, TreeMap):
            _refuse(values, f"{what} has no values by name. Set values: {{NAME: VALUE}}.")
        for key, entry in values.entries.items():
            if key not in block.values:
                message = f"block {block.name!r} has no value {key!r}. {suggest(key, set(block.values))}"
                raise ConfigError(Problem((), message, entry.place))
        return {key: entry.node for key, entry in values.entries.items()}

    def connect(self, layers: list[Tree]) -> None:
        """Replace the name of a use in ``srclayers`` by the name of its output layer."""
        for layer in layers:
            if named(layer) in self.outputs:
                _refuse(layer, f"a use of a block is called {named(layer)!r}, too. Rename one of the two.")
            for source in items(child(layer, "srclayers")):
                while isinstance(source, Scalar) and (output := self.outputs.get(text(source))):
                    source.value = output


def _bound(layer: TreeMap, block: _Block, prefix: str, bound: Mapping[str, Tree]) -> TreeMap:
    """Return a copy of a layer of a block, with placeholders filled and names of the block prefixed."""
    layers = {named(each) for each in block.layers}
    params = {named(param) for each in block.layers for param in items(child(each, "param"))} - {""}

    def copied(node: Tree, own: set[str], keys: Collection[str] = ()) -> Tree:
        """Copy a node, and prefix ``own`` names; in a mapping, only values of ``keys``."""
        if isinstance(node, TreeMap):
            entries = node.entries.items()
            return TreeMap(
                node.place, {k: TreeEntry(e.place, copied(e.node, own if k in keys else set())) for k, e in entries}
            )
        if isinstance(node, Items):
            copies = [(item, copied(item, own, keys)) for item in node.items]
            # a list in place of an item is spliced into the outer list, as in srclayers: [$in, conv1]
            return Items(node.place, [part for item, copy in copies for part in _parts(item, copy)])
        if not isinstance(node.value, str):
            return Scalar(node.place, node.value)
        match = _PLACEHOLDER.fullmatch(node.value)
        if match is None:
            return Scalar(node.place, prefix + node.value if node.value in own else node.value)
        if match[1] not in bound:
            known = suggest(match[1], set(bound))
            _refuse(node, f"block {block.name!r} has no input and no value {match[1]!r}. {known}")
        return deepcopy(bound[match[1]])

    filled = copied(layer, layers, ("name", "srclayers"))
    assert isinstance(filled, TreeMap)
    if "param" in layer.entries:
        filled.entries["param"].node = copied(layer.entries["param"].node, params, ("name", "share_from"))
    return filled


def _parts(item: Tree, copy: Tree) -> list[Tree]:
    return copy.items if isinstance(copy, Items) and isinstance(item, Scalar) else [copy]
