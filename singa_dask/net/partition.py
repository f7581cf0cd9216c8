"""One net on the workers of a group: which of them computes which part of a layer, and how the parts are connected.

After SINGA's NeuralNet::AddPartitionConnectionLayers. A layer is cut by records (``partition_dim`` 0), by features
(1), or not at all (-1, on worker 0 or at its ``location``). Where a reader needs something else than what its source
has, Slice and Concate are put between, and where the two are on different workers a pair of bridges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from singa_dask.conf import LayerConf
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Connection
from singa_dask.layers.connection import ConcateConf, Slice, SliceConf, Split, SplitConf
from singa_dask.net.node import Node

__all__ = ["TABLE", "WHOLE", "Way", "cut_by_features", "partition"]

ONE, ALL = Connection.ONE_TO_ONE, Connection.ONE_TO_ALL
WHOLE = -1


class Way(NamedTuple):
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


DIRECT = Way(None, None)

# (partition_dim of the source, of the reader, how the reader depends on its source); whole parts that go to several
# readers are SINGA's Split
TABLE = {
    (0, 0, ONE): DIRECT,
    (1, 1, ONE): DIRECT,
    (0, 0, ALL): DIRECT,
    (1, 0, ONE): Way(0, 1),
    (0, 1, ONE): Way(1, 0),
    (1, 0, ALL): Way(0, 1),
    (0, 1, ALL): Way(None, 0),
    (1, 1, ALL): Way(None, 1),
    # what SINGA's documents promise: layers that are not partitioned
    (WHOLE, WHOLE, ONE): DIRECT,
    (WHOLE, WHOLE, ALL): DIRECT,
    (WHOLE, 0, ONE): Way(0, None),
    (WHOLE, 0, ALL): Way(0, None),
    (WHOLE, 1, ONE): Way(1, None),
    (WHOLE, 1, ALL): DIRECT,
    (0, WHOLE, ONE): Way(None, 0),
    (0, WHOLE, ALL): Way(None, 0),
    (1, WHOLE, ONE): Way(None, 1),
    (1, WHOLE, ALL): Way(None, 1),
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
        plans[node.name] = plans[node.sources[0]] if node.follows else _Plan.of(node, partition_dim)
    problems = [
        node.problem(f"expected a worker of the group, 0 to {n_workers - 1}, got {node.conf.location}.", ("location",))
        for node in nodes
        if (node.conf.location or 0) >= n_workers
    ]
    if problems:
        raise ConfigError(problems)
    if all(plan.dim == 0 for plan in plans.values()):
        return list(nodes)
    return _Partitioner(plans, n_workers).nodes(_name_pieces(nodes))


def _name_pieces(nodes: Sequence[Node]) -> list[Node]:
    """Give the pieces of a job's own Slices and Splits names, so that each reader has its own wherever it is."""
    pieces = {node.name: iter(range(count)) for node in nodes if (count := _n_pieces(node))}
    named, problems = [], []
    for node in nodes:
        gives = tuple(f"{node.name}->{k}" for k in range(_n_pieces(node)))
        sources = []
        for source in node.sources:
            k = next(pieces[source], None) if source in pieces else -1
            if k is None:
                problems.append(node.problem(f"{source!r} has no piece left for it.", ("srclayers",)))
            sources.append(source if k == -1 else f"{source}->{k}")
        named.append(replace(node, sources=tuple(sources), gives=gives or node.gives))
    if problems:
        raise ConfigError(problems)
    return named


def _n_pieces(node: Node) -> int:
    """Return how many pieces a layer of the job gives its readers, 0 where it gives all the same."""
    if node.gives or not issubclass(LAYERS.find(node.conf.type), Slice | Split):
        return 0
    sliced = node.conf.given_block(SliceConf)
    return sliced.num_slices if sliced else node.conf.block(SplitConf).num_splits


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
        kind, conf = LAYERS.find(node.conf.type).traits, node.conf
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
        self.outputs: dict[str, Node] = {}
        self.made: dict[str, Node] = {}
        # outputs whose data a worker has as a whole, as one of its layers needs that
        self.wholes: set[tuple[str, int]] = set()

    def nodes(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes of all workers, sources before readers."""
        for node in nodes:
            for name in node.outputs:
                self.outputs[name] = node
        before_losses: set[str] = set()
        for node in reversed(nodes):
            # where no gradient goes back, that of a piece is less than that of the whole
            if LAYERS.find(node.conf.type).traits.is_loss or not before_losses.isdisjoint(node.outputs):
                before_losses.update(node.sources)
                taken = self._taken_whole(node)
                self.wholes.update((name, worker) for name in taken for worker in self._workers(node))
        for node in nodes:
            for part, worker in enumerate(self._workers(node)):
                self._add(self._part(node, part, worker))
        return list(self.made.values())

    def _workers(self, node: Node) -> Sequence[int]:
        plan = self.plans[node.name]
        return [plan.location] if plan.dim == WHOLE and not plan.copied else range(self.n_workers)

    def _taken_whole(self, node: Node) -> list[str]:
        """Return the sources whose data each part of a layer needs as a whole."""
        kind, ours = LAYERS.find(node.conf.type).traits, self.plans[node.name].dim
        taken = []
        for k, name in enumerate(node.sources):
            theirs = self.plans[self.outputs[name].name].dim
            own = ours == theirs != WHOLE and TABLE[theirs, ours, kind.connection] == DIRECT
            cut = TABLE[theirs, ours, kind.connection].slice_dim is not None
            if not own and not cut and kind.consumed(k) != {"labels"}:
                taken.append(name)
        return taken

    def _part(self, node: Node, part: int, worker: int) -> Node:
        plan = self.plans[node.name]
        n_parts = 1 if plan.dim == WHOLE else self.n_workers
        part = 0 if plan.dim == WHOLE else part
        sources = tuple(self._fetch(source, node, part, worker) for source in node.sources)
        return replace(
            node,
            conf=node.conf.model_copy(update={"name": self._at(node.name, node, worker)}),
            sources=sources,
            gives=tuple(self._at(name, node, worker) for name in node.gives),
            loops=tuple(self._at(name, self.outputs[name], worker) for name in node.loops),
            worker=worker,
            dim=plan.dim,
            part=part,
            n_parts=n_parts,
        )

    def _at(self, name: str, node: Node, worker: int) -> str:
        """Return the name of what a worker has of an output."""
        plan = self.plans[node.name]
        return name if plan.dim == WHOLE and not plan.copied else f"{name}@{worker}"

    # -- edges ---------------------------------------------------------------------------------------

    def _fetch(self, name: str, reader: Node, part: int, worker: int) -> str:
        """Return the name of what a part of a reader reads, on its worker."""
        source = self.outputs[name]
        ours, theirs = self.plans[reader.name], self.plans[source.name]
        connection = LAYERS.find(reader.conf.type).traits.connection
        # a copy of the whole layer needs all of its source, wherever it is
        way = TABLE[theirs.dim, ours.dim, connection]
        if theirs.copied:
            return self._cut(self._at(name, source, worker), way.slice_dim, source, reader, worker, part)
        if ours.dim == theirs.dim and way == DIRECT and not ours.copied:
            at = worker if theirs.dim != WHOLE else theirs.location
            return self._bridge(self._at(name, source, at), at, worker, source, reader)
        if way.slice_dim is not None and (name, worker) in self.wholes:
            whole = self._collect(name, TABLE[theirs.dim, WHOLE, connection], reader, part, worker)
            return self._cut(whole, way.slice_dim, source, reader, worker, part)
        return self._collect(name, way, reader, part, worker)

    def _collect(self, name: str, way: Way, reader: Node, part: int, worker: int) -> str:
        """Return what a worker has once the pieces for a part of a reader are there."""
        source, pieces = self.outputs[name], []
        for at in self._workers(source):
            piece = self._cut(self._at(name, source, at), way.slice_dim, source, reader, at, part)
            pieces.append(self._bridge(piece, at, worker, source, reader))
        return pieces[0] if way.concate_dim is None else self._join(pieces, way, source, reader, worker, part, name)

    def _cut(self, output: str, axis: int | None, source: Node, reader: Node, worker: int, part: int) -> str:
        """Return a piece of an output, cut along an axis for the parts of its readers."""
        if axis is None:
            return output
        made = f"slice({output},{axis})"
        if made not in self.made:
            block = {"slice_dim": axis, "num_slices": self.n_workers}
            conf = {"name": made, "type": "Slice", "srclayers": [output], "slice_conf": block}
            gives = tuple(f"{made}->{k}" for k in range(self.n_workers))
            self._connect(conf, source, reader, (output,), worker, gives)
        return self.made[made].gives[part]

    def _join(
        self, pieces: Sequence[str], way: Way, source: Node, reader: Node, worker: int, part: int, name: str
    ) -> str:
        """Return pieces of all parts of a source, joined along an axis on a worker."""
        what = name if way.slice_dim is None else f"slice({name},{way.slice_dim})->{part}"
        made = f"concate({what})@{worker}"
        if made not in self.made:
            block = {"concate_dim": way.concate_dim, "num_concates": 1}
            conf = {"name": made, "type": "Concate", "srclayers": list(pieces), "concate_conf": block}
            self._connect(conf, source, reader, tuple(pieces), worker)
        return made

    def _bridge(self, output: str, worker: int, other: int, source: Node, reader: Node) -> str:
        """Return an output on another worker."""
        if worker == other:
            return output
        pair = f"{output}@{worker}->{other}"
        names = f"bridge_src({pair})", f"bridge_dst({pair})"
        if names[0] not in self.made:
            for kind, name, read, at, peer in (
                ("BridgeSrc", names[0], output, worker, other),
                ("BridgeDst", names[1], names[0], other, worker),
            ):
                self._connect({"name": name, "type": kind, "srclayers": [read]}, source, reader, (read,), at, peer=peer)
        return names[1]

    def _connect(
        self,
        conf: Mapping[str, object],
        source: Node,
        reader: Node,
        sources: tuple[str, ...],
        worker: int,
        gives: tuple[str, ...] = (),
        peer: int = 0,
    ) -> None:
        made = LayerConf.model_validate(conf)
        node = Node(made, reader.index, sources, made.name, source.first_step, source.n_steps, gives)
        self._add(replace(node, worker=worker, dim=WHOLE, peer=peer, put_in=True))

    def _add(self, node: Node) -> None:
        self.made[node.name] = node
