"""Wiring: makes the layers of a net from its nodes, and connects them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Context, Feature, Layer, LayerSite, ShardIndex
from singa_dask.layers.base import wire
from singa_dask.layers.feedback import Feedback
from singa_dask.layers.forwarding import Forwarding
from singa_dask.layers.traits import Consumed
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.shares import check_equal_parts
from singa_dask.ops.contract import Ops


class Wiring:
    """Makes and connects the layers of a net. Layers after one that failed are skipped.

    Parameters
    ----------
    nodes : sequence of Node
        Sources before readers.
    context : Context
    ops : Ops
        Kernels that compute the net.

    Attributes
    ----------
    problems : list of Problem
        What is wrong, with paths from the top of the job.
    layers, all_layers : list of Layer
        Those of this worker, and those of all workers, in the order of ``nodes``.
    by_name : dict of str to Layer
    node_of : dict of str to Node
        By the name of the layer.
    sources, readers : dict of Layer to list of Layer
        The layers of this worker that one of them reads, and those that read it.
    """

    def __init__(self, nodes: Sequence[Node], context: Context, ops: Ops) -> None:
        self.nodes = list(nodes)
        self.context = context
        self.ops = ops
        self.layers: list[Layer] = []
        self.all_layers: list[Layer] = []
        self.by_name: dict[str, Layer] = {}
        self.node_of = {node.name: node for node in self.nodes}
        self.sources: dict[Layer, list[Layer]] = {}
        self.readers: dict[Layer, list[Layer]] = {}
        self._prototypes: dict[tuple[str, int | None], Layer] = {}
        problems = [problem for node in self.nodes for problem in self._add(node)]
        problems += [problem for node in self.nodes for problem in self._bind_feedback(node)]
        # the parts of a layer have the same mistakes
        self.problems = list(dict.fromkeys(problems))

    def is_here(self, node: Node) -> bool:
        """Tell whether this worker computes a node."""
        return node.worker is None or node.worker == self.context.worker

    def _add(self, node: Node) -> list[Problem]:
        """Make the layer of a node and connect it to its sources."""
        if any(source.node not in self.by_name for source in node.sources):
            return []
        layer = self._make(node)
        try:
            wire(layer, [self._feature(source) for source in node.sources], self.ops)
            if not self.context.shares:
                check_equal_parts(node, layer)
        except ConfigError as error:
            return node.located(error)
        self._prototypes.setdefault((node.layer, node.worker), layer)
        self.all_layers.append(layer)
        self.by_name[layer.name] = layer
        if self.is_here(node):
            self.layers.append(layer)
            read = dict.fromkeys(self.by_name[source.node] for source in node.sources)
            self.sources[layer] = [other for other in read if other in self.sources]
            self.readers[layer] = []
            for other in self.sources[layer]:
                self.readers[other].append(layer)
        return []

    def _make(self, node: Node) -> Layer:
        shard, whole = ShardIndex(node.part, node.n_parts), ShardIndex()
        if node.worker is None:
            batch, features = ShardIndex(self.context.worker, self.context.n_workers), whole
        else:
            batch = shard if node.partition_dim == 0 else whole
            features = shard if node.partition_dim == 1 else whole
        site = LayerSite(
            node.name, node.layer, batch, features, node.first_step, node.n_steps,
            self._prototypes.get((node.layer, node.worker)), node.peer, node.channel,
        )  # fmt: skip
        return LAYERS.find(node.conf.type)(node.conf, self.context, site)

    def _feature(self, output: NodeOutput) -> Feature:
        return self.by_name[output.node].features[output.index or 0]

    def _bind_feedback(self, node: Node) -> Iterator[Problem]:
        layer = self.by_name.get(node.name)
        for source in node.feedback:
            if not isinstance(layer, Feedback) or source.node not in self.by_name:
                continue
            feature = self._feature(source)
            feature.consumed_as.add("data")
            try:
                layer.bind_feedback(feature)
            except ConfigError as error:
                yield from node.located(error)


def pass_on_reads(layers: Sequence[Layer]) -> None:
    """Make layers that forward their source consume what their consumers do; data if they cannot forward it."""
    for layer in reversed(layers):
        forwards = layer.forwards if isinstance(layer, Forwarding) else frozenset[Consumed]()
        # an output that nothing reads is computed, but of several pieces only those that are read
        unread: Consumed = "nothing" if forwards and any(each.consumed_as for each in layer.features) else "data"
        for feature in layer.features:
            feature.consumed_as = feature.consumed_as or {unread}
            if forwards and feature.consumed_as - forwards - {"nothing"}:
                feature.consumed_as.add("data")
            for source in layer.sources:
                source.consumed_as |= feature.consumed_as & forwards
