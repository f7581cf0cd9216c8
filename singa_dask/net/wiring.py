"""Wiring: the layers of a net, made of nodes and connected; batches that workers share in unequal parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from singa_dask.conf import NetConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Context, Feature, Layer, Shard, Site, StoreInput
from singa_dask.layers.connection import Feedback, Slice
from singa_dask.layers.records import StoreConf
from singa_dask.net.node import Node, Output
from singa_dask.ops.contract import Ops


def find_shares(net: NetConf, phase: Phase, n_workers: int) -> tuple[int, ...]:
    """Return the proportions in which the workers of a group share a batch; empty if the parts are equal."""
    for layer in net.layer:
        store = layer.given_block(StoreConf)
        sizes = store.batchsize if store and layer.in_phase(phase) else []
        if len(sizes) == n_workers and len(set(sizes)) > 1:
            return tuple(size // math.gcd(*sizes) for size in sizes)
    return ()


def check_shares(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> list[Problem]:
    """Refuse unequal parts if layers are not partitioned by records, or an input layer reads no store."""
    inputs = [(node, layers[node.name]) for node in nodes if node.name in layers and not node.sources]
    if nodes[0].worker is not None:
        message = "a number for each worker needs partition_dim: 0 in all layers. Give one number, for the whole group."
        found = [
            node for node, layer in inputs if isinstance(layer, StoreInput) and len(layer.store_conf.batchsize) > 1
        ]
        return [node.problem(message, ("store_conf", "batchsize")) for node in found[:1]]
    message = "this type gives each worker as many records, and another layer of the net does not."
    return [node.problem(message, ("type",)) for node, layer in inputs if not isinstance(layer, StoreInput)]


def check_equal_parts(node: Node, layer: Layer) -> None:
    """Refuse unequal parts of a batch on the workers of a group, whose means would differ from that of the batch."""
    if node.inserted and isinstance(layer, Slice) and not layer.axis:
        sizes = [feature.shape[0] for feature in layer.features]
        if len(set(sizes)) > 1:
            message = f"expected a batch that {len(sizes)} workers can share equally, got {sum(sizes)}."
            raise ConfigError(Problem((), message))


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
            layer.wire([self._feature(source) for source in node.sources], self.ops)
            if not self.context.shares:
                check_equal_parts(node, layer)
        except ConfigError as error:
            return [_located(node, found) for found in error.problems]
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
        shard, whole = Shard(node.part, node.n_parts), Shard()
        if node.worker is None:
            batch, features = Shard(self.context.worker, self.context.n_workers), whole
        else:
            batch = shard if node.partition_dim == 0 else whole
            features = shard if node.partition_dim == 1 else whole
        site = Site(
            node.name, node.layer, batch, features, node.first_step, node.n_steps,
            self._prototypes.get((node.layer, node.worker)), node.peer, node.channel,
        )  # fmt: skip
        return LAYERS.find(node.conf.type)(node.conf, self.context, site)

    def _feature(self, output: Output) -> Feature:
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
                yield from (node.problem(found.message, found.path) for found in error.problems)


def _located(node: Node, found: Problem) -> Problem:
    """Return a problem with a layer with its path from the top of the job."""
    if not node.inserted:
        return node.problem(found.message, found.path)
    message = f"what it reads cannot be shared by the workers: {found.message} Say another partition_dim."
    return node.problem(message, ("partition_dim",))
