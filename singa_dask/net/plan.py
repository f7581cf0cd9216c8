"""From a job's list of layers to the list that is built: each step takes a list of nodes and returns one.

A step knows names and types, no shapes: those come when the layers are made. The job's own wiring (names,
sources, cycles) was checked with the job.

Unrolling, after SINGA's NeuralNet::Unrolling: `unroll` gives a copy of each layer for each time step,
``<step>#<name>``, and their edges; `merge` puts the copies of a layer together again where all steps can be computed
at once, which costs one call in place of many.

Partition, after SINGA's NeuralNet::AddPartitionConnectionLayers: a layer is cut by records (``partition_dim`` 0), by
features (1), or not at all (-1, on worker 0 or at its ``location``). Where a reader needs something else than what its
source has, Slice and Concate are put between, and where the two are on different workers a pair of bridges.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from singa_dask.conf import LayerConf, NetConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Connection
from singa_dask.layers.connection import ConcateConf, SliceConf
from singa_dask.layers.feedback import Feedback
from singa_dask.net.nodes import Node, NodeOutput, bridge_nodes, concate_node, slice_node, split_node
from singa_dask.registry import suggest

T = TypeVar("T", bound=Hashable)


def topological_order(nodes: Sequence[Node]) -> list[Node]:
    """Order nodes so that sources come first, else as they are listed.

    Raises
    ------
    ConfigError
        Some wait for each other.
    """
    by_name = {node.name: node for node in nodes}
    before = {node.name: [source.node for source in node.sources] for node in nodes}
    ordered = list(ready_order(list(by_name), before, lambda name: True, lambda condition, waiting: None))
    if len(ordered) < len(nodes):
        done = set(ordered)
        stuck = [node for node in nodes if node.name not in done]
        names = ", ".join(node.name for node in stuck)
        raise ConfigError(stuck[0].problem(f"these layers wait for each other: {names}.", ("srclayers",)))
    return [by_name[name] for name in ordered]


def ready_order(
    items: Sequence[T],
    before: Mapping[T, Sequence[T]],
    is_ready: Callable[[T], bool],
    wait: Callable[[Callable[[], bool], Sequence[T]], None],
) -> Iterator[T]:
    """Yield each item after those before it; one that is not ready gives way to others.

    Of those that can come next the first of the list comes. So the workers of a group never wait for each other in a
    cycle: what comes first in the whole net waits for nobody. Items in a cycle, and those after them, do not come.

    Parameters
    ----------
    items : sequence
        Each is done before the next one is asked for.
    before : mapping of item to sequence of items
    is_ready : callable
        (item) -> whether what it waits for, beside the items before it, is there.
    wait : callable
        (condition, items that are not ready) returns once the condition holds, which only another thread can change.
    """
    place = {item: i for i, item in enumerate(items)}
    open_edges = {item: {place[other] for other in before[item] if other in place} for item in items}
    counts = [len(open_edges[item]) for item in items]
    after: list[list[int]] = [[] for _ in items]
    for item, others in open_edges.items():
        for other in others:
            after[other].append(place[item])
    ready = [i for i, count in enumerate(counts) if not count]
    waiting: list[int] = []
    while ready or waiting:
        i = _next(items, ready, waiting, is_ready, wait)
        yield items[i]
        for reader in after[i]:
            counts[reader] -= 1
            if not counts[reader]:
                heapq.heappush(ready, reader)


def _next(
    items: Sequence[T],
    ready: list[int],
    waiting: list[int],
    is_ready: Callable[[T], bool],
    wait: Callable[[Callable[[], bool], Sequence[T]], None],
) -> int:
    """Take the first item that is ready off the lists."""
    while True:
        for i in [i for i in waiting if is_ready(items[i])]:
            waiting.remove(i)
            heapq.heappush(ready, i)
        while ready:
            i = heapq.heappop(ready)
            if is_ready(items[i]):
                return i
            waiting.append(i)
        wait(lambda: any(is_ready(items[i]) for i in waiting), [items[i] for i in waiting])


class _Edge(NamedTuple):
    """How the time steps of a source are connected to those of a layer."""

    source: str
    kind: str
    shift: int
    steps: Sequence[Sequence[int]]


def unroll(nodes: Sequence[Node], unroll_len: int = 1) -> list[Node]:
    """Return a copy of each layer for each of its time steps, next to each other, named ``<step>#<layer>``.

    Parameters
    ----------
    nodes : sequence of Node
    unroll_len : int
        Of layers that do not say; layers that read records have one step unless they say otherwise.

    Raises
    ------
    ConfigError
        A layer reads steps that its source does not have; or records are to be read more than once.
    """
    lengths = {node.name: _length(node, unroll_len) for node in nodes}
    if set(lengths.values()) == {1}:
        return list(nodes)
    copies: list[Node] = []
    problems: list[Problem] = []
    for node in nodes:
        if lengths[node.name] > 1 and _reads_records(node):
            message = (
                "records are read once, for all steps. Say unroll_len: 1, and OneToAll in the layers that read it."
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
    return node.traits.is_input and not node.sources


def _edges(node: Node, lengths: Mapping[str, int]) -> list[_Edge]:
    """Read how each source of a layer is connected."""
    conf, edges = node.conf, []
    custom = iter(conf.unroll_steps)
    for k, source in enumerate(output.node for output in node.sources):
        shift = conf.shift[k] if k < len(conf.shift) else 0
        whole = not shift and (node.traits.reads_all_steps(k) or (lengths[source] == 1 and lengths[node.name] > 1))
        kind = conf.unroll_conn_type[k] if k < len(conf.unroll_conn_type) else "OneToAll" if whole else "OneToOne"
        edges.append(_Edge(source, kind, shift, next(custom, ()) if kind == "Customized" else ()))
    return edges


def _copy(node: Node, edges: Sequence[_Edge], lengths: Mapping[str, int], step: int) -> Node:
    """Return the copy of a layer for one step."""
    sources: list[NodeOutput] = []
    for k, edge in enumerate(edges):
        for other in _steps_read(node, k, edge, lengths, step):
            if not 0 <= other < lengths[edge.source]:
                message = (
                    f"step {step} would read step {other} of {edge.source!r}, which has {lengths[edge.source]}. "
                    "Say unroll_conn_type: OneToAll to read all of them."
                )
                raise ConfigError(node.problem(message, ("srclayers", k)))
            sources.append(_copy_of(edge.source, other))
    if step and node.traits.recurrent:
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
    """Return the steps of a source that a step of the layer reads."""
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
    """Merge the copies of a layer if one call can compute all steps; merged layers have the name of the layer.

    That is so where the type says so (`Traits.time_foldable`), no step waits for a layer that waits for another step
    of it, and every step reads the same step of its sources. Rows of merged layers are those of the first step, then
    those of the next; Concate and Slice lead from copies to rows and back.

    Parameters
    ----------
    copies : sequence of Node
    by_features : collection of str
        Layers of which each worker computes some features: a step of a recurrent one needs what all workers have
        computed in the step before.
    """
    groups: dict[str, list[Node]] = {}
    for copy in copies:
        groups.setdefault(copy.layer, []).append(copy)
    return _Merger(groups, by_features).nodes() if len(groups) < len(copies) else list(copies)


class _Merger:
    """Merges copies, and keeps the Slices and Concates that this needs."""

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
        kind = self.groups[name][0].traits
        if (self.lengths[name] == 1 and kind.all_steps_from is None) or (
            name in self.by_features and kind.recurrent and kind.connection is Connection.ONE_TO_ALL
        ):
            return False
        return (
            kind.time_foldable
            and not self._waits_for_itself(name)
            and all(self._is_stepwise(name, k, edge) for k, edge in enumerate(self.edges[name]))
        )

    def _is_stepwise(self, name: str, k: int, edge: _Edge) -> bool:
        """Tell whether all steps can read this source at once."""
        kind, n_steps = self.groups[name][0].traits, self.lengths[edge.source]
        if edge.kind == "OneToOne":
            return not edge.shift and n_steps == self.lengths[name]
        if edge.kind == "OneToAll":
            return kind.reads_all_steps(k) or (n_steps == 1 and kind.time_from_columns)
        return edge.kind == "FirstToLast" and kind.recurrent and k > 0

    def _waits_for_itself(self, name: str) -> bool:
        """Tell whether a layer is in a cycle through other layers, at any step."""
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
        """Return the merged list."""
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
        """Return the output with the rows of all steps of a layer."""
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
        """Return the output with the rows of one step of a layer."""
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


ONE, ALL = Connection.ONE_TO_ONE, Connection.ONE_TO_ALL
WHOLE = -1


class Resharding(NamedTuple):
    """How the parts of a source reach the parts of a reader.

    Attributes
    ----------
    slice_dim : int or None
        Axis along which each part of the source is cut, a piece for each part of the reader; None sends it whole.
    concate_dim : int or None
        Axis along which a part of the reader joins what comes from the parts of the source; None where one comes.
    """

    slice_dim: int | None
    concate_dim: int | None


DIRECT = Resharding(None, None)

# (partition_dim of the source, of the reader, how the reader depends on its source); whole parts that go to several
# readers are SINGA's Split
TABLE = {
    (0, 0, ONE): DIRECT,
    (1, 1, ONE): DIRECT,
    (0, 0, ALL): DIRECT,
    (1, 0, ONE): Resharding(0, 1),
    (0, 1, ONE): Resharding(1, 0),
    (1, 0, ALL): Resharding(0, 1),
    (0, 1, ALL): Resharding(None, 0),
    (1, 1, ALL): Resharding(None, 1),
    # layers that are not partitioned, as SINGA's documents describe them
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
    """Return the names of the layers of which each worker of a group has some features; see `partition`."""
    return {node.name for node in nodes if _Plan.of(node, partition_dim).dim == 1}


def partition(nodes: Sequence[Node], n_workers: int, partition_dim: int = 0) -> list[Node]:
    """Return the nodes of all workers of a group, or the same nodes where each worker has all layers by records.

    Parameters
    ----------
    nodes : sequence of Node
        Sources before readers.
    n_workers : int
    partition_dim : int
        Of layers that do not say.

    Raises
    ------
    ConfigError
        A location is not that of a worker.
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
    """How a layer is cut.

    Attributes
    ----------
    dim : int
    location : int
        The worker of a layer that is not cut.
    copied : bool
        Every worker has the whole layer: one that reads records, or numbers in them, where these would be cut by
        features.
    """

    dim: int
    location: int = 0
    copied: bool = False

    @classmethod
    def of(cls, node: Node, default: int) -> _Plan:
        """Read a node."""
        kind, conf = node.traits, node.conf
        dim = default if conf.partition_dim is None else conf.partition_dim
        if conf.location is not None or dim == WHOLE:
            return cls(WHOLE, conf.location or 0)
        if dim == 1 and (kind.is_input or (kind.time_from_columns and not kind.feature_parallel)):
            return cls(WHOLE, copied=True)
        sliced, joined = conf.given_block(SliceConf), conf.given_block(ConcateConf)
        axis = sliced.slice_dim if sliced else joined.concate_dim if joined else None
        return cls(dim if kind.feature_parallel or axis == 0 else 0)


class _Partitioner:
    """Makes the nodes of all workers, connections where they are first needed."""

    def __init__(self, plans: dict[str, _Plan], n_workers: int) -> None:
        self.plans = plans
        self.n_workers = n_workers
        self.originals: dict[str, Node] = {}
        self.placed: dict[str, Node] = {}
        # outputs whose whole data a worker has, because one of its layers needs it
        self.materialised: set[tuple[NodeOutput, int]] = set()

    def nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes of all workers, sources before readers."""
        self.originals = {node.name: node for node in nodes}
        before_losses: set[NodeOutput] = set()
        for node in reversed(nodes):
            # without a gradient it costs less to send a piece than the whole
            if node.traits.is_loss or not before_losses.isdisjoint(node.outputs):
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
        """Return the sources whose data each part of a layer needs as a whole."""
        kind, ours = node.traits, self.plans[node.name].dim
        taken = []
        for k, output in enumerate(node.sources):
            theirs = self.plans[output.node].dim
            own = ours == theirs != WHOLE and TABLE[theirs, ours, kind.connection] == DIRECT
            cut = TABLE[theirs, ours, kind.connection].slice_dim is not None
            if not own and not cut and kind.consumed(k) != {"labels"}:
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
        """Return the output of the part that a worker computes."""
        plan = self.plans[output.node]
        return output if plan.dim == WHOLE and not plan.copied else replace(output, node=f"{output.node}@{worker}")

    # -- edges ---------------------------------------------------------------------------------------

    def _localise(self, output: NodeOutput, reader: Node, part: int, worker: int) -> NodeOutput:
        """Return what a part of a reader reads, on its worker."""
        ours, theirs = self.plans[reader.name], self.plans[output.node]
        connection = reader.traits.connection
        # a whole layer on each worker needs all of its source
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
        """Return the output in which a worker joins the pieces that a part of a reader needs."""
        pieces = []
        for at in self._workers(self.originals[output.node]):
            piece = self._cut(output, self._at(output, at), way.slice_dim, reader, at, part)
            pieces.append(self._bridge(output, piece, at, worker, reader))
        if way.concate_dim is None:
            return pieces[0]
        what = str(output) if way.slice_dim is None else f"slice({output},{way.slice_dim})->{part}"
        name = f"concate({what})@{worker}"
        if name not in self.placed:
            facts = self._facts(output) | {"worker": worker}
            self._add(concate_node(name, pieces, reader.index, way.concate_dim, **facts))
        return NodeOutput(name)

    def _cut(
        self, of: NodeOutput, output: NodeOutput, axis: int | None, reader: Node, worker: int, part: int
    ) -> NodeOutput:
        """Return a piece of an output, cut along an axis for the parts of its readers."""
        if axis is None:
            return output
        name = f"slice({output},{axis})"
        if name not in self.placed:
            facts = self._facts(of) | {"worker": worker}
            self._add(slice_node(name, output, reader.index, axis, self.n_workers, **facts))
        return NodeOutput(name, part)

    def _bridge(self, of: NodeOutput, output: NodeOutput, worker: int, other: int, reader: Node) -> NodeOutput:
        """Return an output on another worker."""
        if worker == other:
            return output
        start, end = bridge_nodes(output, reader.index, worker, other, **self._facts(of))
        if start.name not in self.placed:
            self._add(start)
            self._add(end)
        return NodeOutput(end.name)

    def _facts(self, of: NodeOutput) -> dict[str, Any]:
        """Return the attributes of all nodes that are inserted after an output."""
        source = self.originals[of.node]
        steps = {"first_step": source.first_step, "n_steps": source.n_steps}
        return {**steps, "partition_dim": WHOLE, "inserted": True}

    def _add(self, node: Node) -> None:
        self.placed[node.name] = node


def plan(net: NetConf, phase: Phase, n_workers: int = 1) -> list[Node]:
    """Return the layers of one phase's net, sources before consumers; those of all workers where it is partitioned.

    Raises
    ------
    ConfigError
        There are none, some have types that nobody knows, they wait for each other, or they read time steps that
        are not there.
    """
    nodes = cut_feedback_edges(check_types(layers_in_phase(net.layer, phase)))
    by_features = cut_by_features(nodes, net.partition_dim) if n_workers > 1 else ()
    unrolled = topological_order(merge(unroll(nodes, net.unroll_len), by_features))
    parts = partition(choose_outputs(unrolled), n_workers, net.partition_dim)
    return choose_outputs(topological_order(add_splits(parts)))


def layers_in_phase(layers: Sequence[LayerConf], phase: Phase) -> list[Node]:
    """Return a node for each layer that a phase's net has."""
    kept = [
        Node(conf, i, tuple(map(NodeOutput, conf.srclayers)), conf.name)
        for i, conf in enumerate(layers)
        if conf.in_phase(phase)
    ]
    if not kept:
        name = (phase.name or str(phase)).lower()
        raise ConfigError(Problem(("neuralnet", "layer"), f"no layer is left in the {name} net."))
    return kept


def check_types(nodes: Sequence[Node]) -> list[Node]:
    """Refuse types that nobody knows, or that a job does not name, all at once; find out how many outputs each has."""
    problems, known = [], []
    for node in nodes:
        if LAYERS.is_hidden(node.conf.type):
            message = (
                f"{node.conf.type} is inserted where an edge leads to another worker. Say location of its readers."
            )
            problems.append(node.problem(message, ("type",)))
        try:
            key, block = node.traits.outputs_key, node.cls.block
            n_outputs = getattr(node.conf.block(block), key[1]) if key and block else 0
            known.append(replace(node, n_outputs=n_outputs))
        except ConfigError as error:
            problems.append(node.problem(str(error), ("type",)))
    if problems:
        raise ConfigError(problems)
    return known


def cut_feedback_edges(nodes: Sequence[Node]) -> list[Node]:
    """Take out the edges that lead back: a layer computed later, whose output of an earlier pass is read."""
    sources = {node.name: [source.node for source in node.sources] for node in nodes}
    cut, problems = [], []
    for node in nodes:
        # the two layers of an RBM read each other; the visible one has another source before
        back = [
            source for source in node.sources[1:]
            if node.traits.learns_without_loss and node.name in sources.get(source.node, ())
        ]  # fmt: skip
        more = node.cls.feedback_sources(node.conf) if issubclass(node.cls, Feedback) else []
        feedback = (*back, *map(NodeOutput, more))
        problems += [
            node.problem(f"unknown layer {source.node!r}. {suggest(source.node, sources)}")
            for source in feedback
            if source.node not in sources
        ]
        kept = tuple(source for source in node.sources if source not in back)
        cut.append(replace(node, sources=kept, feedback=feedback))
    if problems:
        raise ConfigError(problems)
    return cut


def choose_outputs(nodes: Sequence[Node]) -> list[Node]:
    """Give each reader of a node with an output for each its own, in their order.

    Raises
    ------
    ConfigError
        There are more readers than outputs.
    """
    by_name = {node.name: node for node in nodes}
    free = {node.name: iter(node.outputs) for node in nodes if node.n_outputs}
    chosen, problems = [], []
    for node in nodes:
        sources = []
        for source in node.sources:
            if source.index is None and source.node in free:
                output = next(free[source.node], None)
                if output is None:
                    several = by_name[source.node]
                    key = several.traits.outputs_key or ()
                    message = f"is {several.n_outputs}, but the layer has more consumers."
                    problems.append(several.problem(message, key))
                    continue
                sources.append(output)
            else:
                sources.append(source)
        chosen.append(replace(node, sources=tuple(sources)))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return chosen


def add_splits(nodes: Sequence[Node]) -> list[Node]:
    """Put ``split(<name>)`` after each output that several layers read and that does not serve several itself."""
    readers = Counter(source for node in nodes for source in node.sources)
    split = {
        output
        for node in nodes
        if (node.traits.needs_split or node.n_outputs) and not node.traits.is_input
        for output in node.outputs
        if readers[output] > 1
    }
    planned = []
    for node in nodes:
        sources = tuple(NodeOutput(f"split({source})") if source in split else source for source in node.sources)
        planned.append(replace(node, sources=sources))
        facts: dict[str, Any] = {"first_step": node.first_step, "n_steps": node.n_steps}
        if node.worker is not None:
            facts |= {"worker": node.worker, "partition_dim": -1}
        planned += [
            split_node(output, node.index, readers[output], **facts) for output in node.outputs if output in split
        ]
    return planned
