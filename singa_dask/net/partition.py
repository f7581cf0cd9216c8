"""Partition a net among the workers of a group, after SINGA's NeuralNet::AddPartitionConnectionLayers.

A layer is partitioned by records (``partition_dim`` 0), by features (1), or not at all (-1). A layer that is not
partitioned is computed by worker 0, or by the worker that its ``location`` names. If a reader is partitioned
differently from its source, the net inserts a Slice and a Concate between the two layers. If the two are on different
workers, the net also inserts a bridge, which is a pair of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from singa_dask.errors import ConfigError
from singa_dask.layers import Connection
from singa_dask.layers.connection import ConcateConf, SliceConf
from singa_dask.net.nodes import Node, NodeOutput, bridge_nodes, concate_node, slice_node

ONE, ALL = Connection.ONE_TO_ONE, Connection.ONE_TO_ALL
WHOLE = -1


class Resharding(NamedTuple):
    """Describes how the parts of a source are sent to the parts of a reader.

    Attributes
    ----------
    slice_dim : int or None
        Axis along which each part of the source is sliced, into one piece for each part of the reader. None if the part
        is sent whole.
    concate_dim : int or None
        Axis along which each part of the reader joins the pieces that it receives. None if it receives one piece.
    """

    slice_dim: int | None
    concate_dim: int | None


DIRECT = Resharding(None, None)

# Keys are (partition_dim of the source, partition_dim of the reader, connection of the reader to the source). In
# entries where SINGA inserts a Split, each part is sent whole to several readers.
TABLE = {
    (0, 0, ONE): DIRECT,
    (1, 1, ONE): DIRECT,
    (0, 0, ALL): DIRECT,
    (1, 0, ONE): Resharding(0, 1),
    (0, 1, ONE): Resharding(1, 0),
    (1, 0, ALL): Resharding(0, 1),
    (0, 1, ALL): Resharding(None, 0),
    (1, 1, ALL): Resharding(None, 1),
    # layers that are not partitioned, as SINGA's documentation describes them
    (WHOLE, WHOLE, ONE): DIRECT,
    (WHOLE, WHOLE, ALL): DIRECT,
    (WHOLE, 0, ONE): Resharding(0, None),
    (WHOLE, 0, ALL): Resharding(0, None),
    (WHOLE, 1, ONE): Resharding(1, None),
    (WHOLE, 1, ALL): DIRECT,
    (0, WHOLE, ONE): Resharding(None, 0),
    (0, WHOLE, ALL): Resharding(None, 0),
    (1, WHOLE, ONE): Resharding(None, 1),
    (1, WHOLE, ALL): Resharding(None, 1),
}


def cut_by_features(nodes: Sequence[Node], partition_dim: int = 0) -> set[str]:
    """Return the names of the layers that `partition` would partition by features."""
    return {node.name for node in nodes if _Plan.of(node, partition_dim).dim == 1}


def partition(nodes: Sequence[Node], n_workers: int, partition_dim: int = 0) -> list[Node]:
    """Return the nodes of all workers of a group, sources before their readers.

    If all layers are partitioned by records, the nodes are returned unchanged.

    Parameters
    ----------
    nodes : sequence of Node
        The nodes of the net, sources before their readers.
    n_workers : int
        Number of workers in the group.
    partition_dim : int
        Used for layers that do not set ``partition_dim`` themselves.

    Raises
    ------
    ConfigError
        The ``location`` of a layer is not a worker of the group.
    """
    if n_workers == 1:
        return list(nodes)
    plans: dict[str, _Plan] = {}
    for node in nodes:
        follows = node.inherits_partition
        plans[node.name] = plans[node.sources[0].node] if follows else _Plan.of(node, partition_dim)
    problems = [
        node.problem(f"expected a worker of the group, 0 to {n_workers - 1}, got {node.conf.location}.", ("location",))
        for node in nodes
        if (node.conf.location or 0) >= n_workers
    ]
    if problems:
        raise ConfigError(problems)
    if all(plan.dim == 0 for plan in plans.values()):
        return list(nodes)
    return _Partitioner(plans, n_workers).nodes(nodes)


class _Plan(NamedTuple):
    """Describes how a layer is partitioned.

    Attributes
    ----------
    dim : int
        The ``partition_dim`` of the layer.
    location : int
        The worker that computes a layer that is not partitioned.
    copied : bool
        Whether every worker computes the whole layer. This is the case for layers that read records, or integers in
        records, if ``partition_dim`` is 1: such layers cannot be partitioned by features.
    """

    dim: int
    location: int = 0
    copied: bool = False

    @classmethod
    def of(cls, node: Node, default: int) -> _Plan:
        """Return the plan of a node; ``default`` is the ``partition_dim`` of nodes that do not set it."""
        kind, parallel, conf = node.traits, node.cls.speed.feature_parallel, node.conf
        dim = default if conf.partition_dim is None else conf.partition_dim
        if conf.location is not None or dim == WHOLE:
            return cls(WHOLE, conf.location or 0)
        if dim == 1 and (kind.role == "input" or (kind.steps == "columns" and not parallel)):
            return cls(WHOLE, copied=True)
        sliced, joined = conf.given_block(SliceConf), conf.given_block(ConcateConf)
        axis = sliced.slice_dim if sliced else joined.concate_dim if joined else None
        return cls(dim if parallel or axis == 0 else 0)


class _Partitioner:
    """Creates the nodes of all workers.

    Slices, Concates and bridges are inserted when they are first needed.
    """

    def __init__(self, plans: dict[str, _Plan], n_workers: int) -> None:
        self.plans = plans
        self.n_workers = n_workers
        self.originals: dict[str, Node] = {}
        self.placed: dict[str, Node] = {}
        # (output, worker) if the worker assembles the whole output, because one of its layers needs it
        self.materialised: set[tuple[NodeOutput, int]] = set()

    def nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes of all workers, sources before readers."""
        self.originals = {node.name: node for node in nodes}
        before_losses: set[NodeOutput] = set()
        for node in reversed(nodes):
            # assemble whole outputs only before losses: where there are no gradients, sending pieces costs less
            if node.traits.role == "loss" or not before_losses.isdisjoint(node.outputs):
                before_losses.update(node.sources)
                taken = self._taken_whole(node)
                self.materialised.update((output, worker) for output in taken for worker in self._workers(node))
        for node in nodes:
            for part, worker in enumerate(self._workers(node)):
                self._add(self._part(node, part, worker))
        return list(self.placed.values())

    def _workers(self, node: Node) -> Sequence[int]:
        plan = self.plans[node.name]
        return [plan.location] if plan.dim == WHOLE and not plan.copied else range(self.n_workers)

    def _taken_whole(self, node: Node) -> list[NodeOutput]:
        """Return the sources that every part of a layer reads whole."""
        connection, ours = node.connection, self.plans[node.name].dim
        taken = []
        for k, output in enumerate(node.sources):
            theirs = self.plans[output.node].dim
            own = ours == theirs != WHOLE and TABLE[theirs, ours, connection] == DIRECT
            cut = TABLE[theirs, ours, connection].slice_dim is not None
            if not own and not cut and node.traits.consumed(k) != {"labels"}:
                taken.append(output)
        return taken

    def _part(self, node: Node, part: int, worker: int) -> Node:
        plan = self.plans[node.name]
        n_parts = 1 if plan.dim == WHOLE else self.n_workers
        part = 0 if plan.dim == WHOLE else part
        sources = tuple(self._localise(source, node, part, worker) for source in node.sources)
        return node.renamed(
            self._at(NodeOutput(node.name), worker).node,
            sources=sources,
            feedback=tuple(self._at(output, worker) for output in node.feedback),
            worker=worker,
            partition_dim=plan.dim,
            part=part,
            n_parts=n_parts,
        )

    def _at(self, output: NodeOutput, worker: int) -> NodeOutput:
        """Return the output of the layer's part that is on ``worker``."""
        plan = self.plans[output.node]
        return output if plan.dim == WHOLE and not plan.copied else replace(output, node=f"{output.node}@{worker}")

    # -- edges ---------------------------------------------------------------------------------------

    def _localise(self, output: NodeOutput, reader: Node, part: int, worker: int) -> NodeOutput:
        """Return an output that is on ``worker`` and has the values that part ``part`` of a reader needs."""
        ours, theirs = self.plans[reader.name], self.plans[output.node]
        connection = reader.connection
        way = TABLE[theirs.dim, ours.dim, connection]
        if theirs.copied:
            return self._cut(output, self._at(output, worker), way.slice_dim, reader, worker, part)
        if ours.dim == theirs.dim and way == DIRECT and not ours.copied:
            at = worker if theirs.dim != WHOLE else theirs.location
            return self._bridge(output, self._at(output, at), at, worker, reader)
        if way.slice_dim is not None and (output, worker) in self.materialised:
            whole = self._collect(output, TABLE[theirs.dim, WHOLE, connection], reader, part, worker)
            return self._cut(output, whole, way.slice_dim, reader, worker, part)
        return self._collect(output, way, reader, part, worker)

    def _collect(self, output: NodeOutput, way: Resharding, reader: Node, part: int, worker: int) -> NodeOutput:
        """Return the output that joins all pieces for part ``part`` of a reader, which is on ``worker``."""
        pieces = []
        for at in self._workers(self.originals[output.node]):
            piece = self._cut(output, self._at(output, at), way.slice_dim, reader, at, part)
            pieces.append(self._bridge(output, piece, at, worker, reader))
        if way.concate_dim is None:
            return pieces[0]
        what = str(output) if way.slice_dim is None else f"slice({output},{way.slice_dim})->{part}"
        name = f"concate({what})@{worker}"
        if name not in self.placed:
            attributes = self._attributes(output) | {"worker": worker}
            self._add(concate_node(name, pieces, reader.index, way.concate_dim, **attributes))
        return NodeOutput(name)

    def _cut(
        self, of: NodeOutput, output: NodeOutput, axis: int | None, reader: Node, worker: int, part: int
    ) -> NodeOutput:
        """Return the piece of an output, sliced along ``axis``, that part ``part`` of its readers needs.

        If ``axis`` is None, return the whole output.
        """
        if axis is None:
            return output
        name = f"slice({output},{axis})"
        if name not in self.placed:
            attributes = self._attributes(of) | {"worker": worker}
            self._add(slice_node(name, output, reader.index, axis, self.n_workers, **attributes))
        return NodeOutput(name, part)

    def _bridge(self, of: NodeOutput, output: NodeOutput, worker: int, other: int, reader: Node) -> NodeOutput:
        """Return an output for the worker ``other``. If the output is on another worker, insert a bridge."""
        if worker == other:
            return output
        start, end = bridge_nodes(output, reader.index, worker, other, **self._attributes(of))
        if start.name not in self.placed:
            self._add(start)
            self._add(end)
        return NodeOutput(end.name)

    def _attributes(self, of: NodeOutput) -> dict[str, Any]:
        """Return the attributes that all nodes inserted after an output have."""
        source = self.originals[of.node]
        steps = {"first_step": source.first_step, "n_steps": source.n_steps}
        return {**steps, "partition_dim": WHOLE, "inserted": True}

    def _add(self, node: Node) -> None:
        self.placed[node.name] = node
