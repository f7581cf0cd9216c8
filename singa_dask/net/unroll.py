"""Unroll a net over its time steps, after SINGA's NeuralNet::Unrolling.

`unroll` creates a copy of each layer for each time step, named ``<step>#<name>``, and connects the copies. `merge`
joins the copies of a layer again if one call of the layer can compute all time steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import Connection
from singa_dask.net.nodes import Node, NodeOutput, concate_node, slice_node


class _Edge(NamedTuple):
    """Describes how the time steps of a layer are connected to the time steps of one of its sources.

    Attributes
    ----------
    source : str
        Name of the source.
    kind : str
        ``unroll_conn_type``: OneToOne, OneToAll, FirstToLast or Customized.
    shift : int
        For OneToOne: time step t reads time step t - ``shift`` of the source.
    steps : sequence of sequence of int
        For Customized: the time steps of the source that each time step reads.
    """

    source: str
    kind: str
    shift: int
    steps: Sequence[Sequence[int]]


def unroll(nodes: Sequence[Node], unroll_len: int = 1) -> list[Node]:
    """Return a copy of each layer for each of its time steps, named ``<step>#<layer>``.

    Parameters
    ----------
    nodes : sequence of Node
        The layers.
    unroll_len : int
        Number of time steps of layers that do not set it themselves. Layers that read records always have one time
        step.

    Raises
    ------
    ConfigError
        A layer reads time steps that its source does not have, or a layer that reads records has several time steps.
    """
    lengths = {node.name: _length(node, unroll_len) for node in nodes}
    if set(lengths.values()) == {1}:
        return list(nodes)
    copies: list[Node] = []
    problems: list[Problem] = []
    for node in nodes:
        if lengths[node.name] > 1 and _reads_records(node):
            message = (
                "records are read once, for all steps. Set unroll_len: 1, and OneToAll in the layers that read it."
            )
            problems.append(node.problem(message, ("unroll_len",)))
            continue
        try:
            edges = _edges(node, lengths)
            copies += [_copy(node, edges, lengths, step) for step in range(lengths[node.name])]
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return copies


def _length(node: Node, unroll_len: int) -> int:
    if node.conf.unroll_len is None:
        return 1 if _reads_records(node) else unroll_len
    return node.conf.unroll_len


def _reads_records(node: Node) -> bool:
    return node.traits.role == "input" and not node.sources


def _edges(node: Node, lengths: Mapping[str, int]) -> list[_Edge]:
    """Return how a layer is connected to each of its sources."""
    conf, edges = node.conf, []
    custom = iter(conf.unroll_steps)
    for k, source in enumerate(output.node for output in node.sources):
        shift = conf.shift[k] if k < len(conf.shift) else 0
        whole = not shift and (node.reads_all_steps(k) or (lengths[source] == 1 and lengths[node.name] > 1))
        kind = conf.unroll_conn_type[k] if k < len(conf.unroll_conn_type) else "OneToAll" if whole else "OneToOne"
        edges.append(_Edge(source, kind, shift, next(custom, ()) if kind == "Customized" else ()))
    return edges


def _copy(node: Node, edges: Sequence[_Edge], lengths: Mapping[str, int], step: int) -> Node:
    """Return the copy of a layer for one time step."""
    sources: list[NodeOutput] = []
    for k, edge in enumerate(edges):
        for other in _steps_read(node, k, edge, lengths, step):
            if not 0 <= other < lengths[edge.source]:
                message = (
                    f"step {step} would read step {other} of {edge.source!r}, which has {lengths[edge.source]}. "
                    "Set unroll_conn_type: OneToAll to read all of them."
                )
                raise ConfigError(node.problem(message, ("srclayers", k)))
            sources.append(_copy_of(edge.source, other))
    if step and node.traits.steps == "recurrent":
        sources.append(_copy_of(node.name, step - 1))
    return node.renamed(
        f"{step}#{node.name}",
        sources=tuple(sources),
        first_step=step,
        feedback=tuple(_copy_of(source.node, min(step, lengths[source.node] - 1)) for source in node.feedback),
    )


def _copy_of(layer: str, step: int) -> NodeOutput:
    return NodeOutput(f"{step}#{layer}")


def _steps_read(node: Node, k: int, edge: _Edge, lengths: Mapping[str, int], step: int) -> Sequence[int]:
    """Return the time steps of source number ``k`` that one time step of the layer reads."""
    last = lengths[edge.source] - 1
    if edge.kind == "OneToAll":
        return range(last + 1)
    if edge.kind == "FirstToLast":
        return [] if step else [last]
    if edge.kind == "OneToOne":
        return [step - edge.shift] if step >= edge.shift else []
    if len(edge.steps) != lengths[node.name]:
        message = f"source {edge.source!r} is Customized: expected a list of steps for each of the "
        message += f"{lengths[node.name]} steps, got {len(edge.steps)}."
        raise ConfigError(node.problem(message, ("unroll_steps",)))
    return edge.steps[step]


def merge(copies: Sequence[Node], by_features: Collection[str] = ()) -> list[Node]:
    """Merge the copies of each layer for which one call can compute all time steps.

    Copies are merged under three conditions: the layer class is `Speed.time_foldable`; each time step reads the same
    time step of its sources; and no time step depends on another one through other layers. A merged layer has its name
    in the job. In its arrays, the rows of the first time step come first. Slice and Concate layers are inserted between
    copies and merged layers.

    Parameters
    ----------
    copies : sequence of Node
        Result of `unroll`.
    by_features : collection of str
        Names of layers that are partitioned by features. Recurrent layers among them are not merged, because each time
        step needs the outputs of all workers for the previous time step.
    """
    groups: dict[str, list[Node]] = {}
    for copy in copies:
        groups.setdefault(copy.layer, []).append(copy)
    return _Merger(groups, by_features).nodes() if len(groups) < len(copies) else list(copies)


class _Merger:
    """Merges the copies of layers, and inserts Slice and Concate layers between copies and merged layers."""

    def __init__(self, groups: Mapping[str, Sequence[Node]], by_features: Collection[str]) -> None:
        self.groups = groups
        self.copies = {copy.name: copy for group in groups.values() for copy in group}
        self.by_features = by_features
        self.lengths = {name: len(group) for name, group in groups.items()}
        self.edges = {name: self._edges_of(name) for name in groups}
        self.merged = {name for name in groups if self._can_merge(name)}
        self.slices: dict[str, Node] = {}
        self.concates: dict[str, Node] = {}

    def _edges_of(self, name: str) -> list[_Edge]:
        first = self.groups[name][0]
        feedback = {self.copies[source.node].layer for source in first.feedback}
        sources = tuple(NodeOutput(source) for source in first.conf.srclayers if source not in feedback)
        return _edges(first.renamed(name, sources=sources), self.lengths)

    def _can_merge(self, name: str) -> bool:
        node = self.groups[name][0]
        kind = node.traits
        if self.lengths[name] == 1 and kind.steps not in ("all", "memory"):
            return False
        if name in self.by_features and kind.steps == "recurrent" and node.connection is Connection.ONE_TO_ALL:
            return False
        return (
            node.cls.speed.time_foldable
            and not self._waits_for_itself(name)
            and all(self._is_stepwise(name, k, edge) for k, edge in enumerate(self.edges[name]))
        )

    def _is_stepwise(self, name: str, k: int, edge: _Edge) -> bool:
        """Return whether one call of a layer can read its source number ``k`` for all time steps."""
        node, n_steps = self.groups[name][0], self.lengths[edge.source]
        if edge.kind == "OneToOne":
            return not edge.shift and n_steps == self.lengths[name]
        if edge.kind == "OneToAll":
            return node.reads_all_steps(k) or (n_steps == 1 and node.traits.steps == "columns")
        return edge.kind == "FirstToLast" and node.traits.steps == "recurrent" and k > 0

    def _waits_for_itself(self, name: str) -> bool:
        """Return whether a layer depends on itself through other layers, at any time steps."""
        seen: set[str] = set()
        waiting = [edge.source for edge in self.edges[name]]
        while waiting:
            source = waiting.pop()
            if source == name:
                return True
            if source not in seen:
                seen.add(source)
                waiting += [edge.source for edge in self.edges[source]]
        return False

    def nodes(self) -> list[Node]:
        """Return the nodes after merging, with the inserted layers."""
        nodes: list[Node] = []
        for name, group in self.groups.items():
            before = set(self.concates)
            own = [self._merge(name)] if name in self.merged else [self._keep(copy) for copy in group]
            nodes += [self.concates[new] for new in self.concates if new not in before]
            nodes += own
        return [each for node in nodes for each in (node, self.slices.get(node.name)) if each is not None]

    def _merge(self, name: str) -> Node:
        first, n_steps = self.groups[name][0], self.lengths[name]
        sources = [
            self._step(_copy_of(edge.source, self.lengths[edge.source] - 1))
            if edge.kind == "FirstToLast" or self.lengths[edge.source] == 1
            else self._rows(edge.source)
            for edge in self.edges[name]
        ]
        return first.renamed(name, sources=tuple(sources), n_steps=n_steps)

    def _keep(self, copy: Node) -> Node:
        name = copy.layer if self.lengths[copy.layer] == 1 else copy.name
        sources, feedback = (tuple(map(self._step, outputs)) for outputs in (copy.sources, copy.feedback))
        return copy.renamed(name, sources=sources, feedback=feedback)

    def _rows(self, name: str) -> NodeOutput:
        """Return the output with the rows of all time steps of a layer."""
        if name in self.merged:
            return NodeOutput(name)
        copies = self.groups[name]
        if name not in self.concates:
            sources = [NodeOutput(copy.name) for copy in copies]
            self.concates[name] = concate_node(
                f"concate({name})", sources, copies[0].index, axis=0, n_steps=len(copies), inherits_partition=True
            )
        return NodeOutput(self.concates[name].name)

    def _step(self, output: NodeOutput) -> NodeOutput:
        """Return the output with the rows of one time step of a layer."""
        copy = self.copies[output.node]
        name, n_steps = copy.layer, self.lengths[copy.layer]
        if n_steps == 1:
            return NodeOutput(name)
        if name not in self.merged:
            return output
        if name not in self.slices:
            self.slices[name] = slice_node(
                f"slice({name})", NodeOutput(name), copy.index, axis=0, n_slices=n_steps, inherits_partition=True
            )
        return NodeOutput(self.slices[name].name, copy.first_step)
