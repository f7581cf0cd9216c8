"""From a job's list of layers to the list that is built: each step takes a list of nodes and gives one.

A step knows names and types, no shapes: those come when the layers are made. The job's own wiring (names,
sources, circles) was checked with the job.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from singa_dask.conf import LayerConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS

__all__ = ["Node", "add_splits", "check_types", "plan", "select", "sort"]

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Node:
    """One layer to be built.

    Attributes
    ----------
    conf : LayerConf
    index : int
        Place in the job's list of the layer that this one comes from: where an error points.
    sources : tuple of str
        Names of the layers it reads, in order.
    """

    conf: LayerConf
    index: int
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the layer, unique in the plan."""
        return self.conf.name

    def problem(self, message: str, keys: Path = ()) -> Problem:
        """Say what is wrong at a key of this layer."""
        return Problem(("neuralnet", "layer", self.index, *keys), message)


def plan(layers: Sequence[LayerConf], phase: Phase) -> list[Node]:
    """Return the layers of one phase's net, sources before consumers.

    Raises
    ------
    ConfigError
        There are none, some have types that nobody knows, or they wait for each other.
    """
    return sort(add_splits(check_types(select(layers, phase))))


def select(layers: Sequence[LayerConf], phase: Phase) -> list[Node]:
    """Keep the layers that a phase's net has."""
    kept = [Node(conf, i, tuple(conf.srclayers)) for i, conf in enumerate(layers) if conf.in_phase(phase)]
    if not kept:
        name = (phase.name or str(phase)).lower()
        raise ConfigError(Problem(("neuralnet", "layer"), f"no layer is left in the {name} net."))
    return kept


def check_types(nodes: Sequence[Node]) -> list[Node]:
    """Refuse types that nobody knows, all at once."""
    problems = []
    for node in nodes:
        try:
            LAYERS.find(node.conf.type)
        except ConfigError as error:
            problems.append(node.problem(str(error), ("type",)))
    if problems:
        raise ConfigError(problems)
    return list(nodes)


def add_splits(nodes: Sequence[Node]) -> list[Node]:
    """Put ``split(<name>)`` after each layer that several others read and that does not serve several itself."""
    readers = Counter(source for node in nodes for source in node.sources)
    split = {node.name for node in nodes if readers[node.name] > 1 and _needs_split(node)}
    planned = []
    for node in nodes:
        sources = tuple(f"split({source})" if source in split else source for source in node.sources)
        planned.append(replace(node, sources=sources))
        if node.name in split:
            planned.append(_split_of(node, readers[node.name]))
    return planned


def _needs_split(node: Node) -> bool:
    layer = LAYERS.find(node.conf.type)
    return layer.splits and not layer.is_input


def _split_of(node: Node, n_readers: int) -> Node:
    made = {
        "name": f"split({node.name})",
        "type": "Split",
        "srclayers": [node.name],
        "split_conf": {"num_splits": n_readers},
    }
    return Node(LayerConf.model_validate(made), node.index, (node.name,))


def sort(nodes: Sequence[Node]) -> list[Node]:
    """Order layers so that sources come first, else as they are listed."""
    place = {node.name: i for i, node in enumerate(nodes)}
    waits = [len(set(node.sources)) for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for source in set(node.sources):
            readers[place[source]].append(i)
    ready = [i for i, count in enumerate(waits) if not count]
    ordered: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(nodes[i])
        for reader in readers[i]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    stuck = [node for node, count in zip(nodes, waits, strict=True) if count]
    if stuck:
        names = ", ".join(node.name for node in stuck)
        raise ConfigError(stuck[0].problem(f"these layers wait for each other: {names}.", ("srclayers",)))
    return ordered
