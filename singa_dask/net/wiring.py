"""Wiring: nodes of a plan; layers made of them and connected; their params; batches that workers share unequally."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from singa_dask.conf import LayerConf, NetConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Context, Feature, Layer, LayerSite, Param, ShardIndex, StoreInput, Traits
from singa_dask.layers.base import wire
from singa_dask.layers.connection import Slice
from singa_dask.layers.feedback import Feedback
from singa_dask.layers.input import StoreReader
from singa_dask.layers.store_conf import StoreConf
from singa_dask.ops.contract import Ops
from singa_dask.registry import suggest

# Node: one layer to be built, of the job or inserted by the net; NodeOutput: a reference to what a node computes.


Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class NodeOutput:
    """An output of a node, as a reader of it refers to it.

    Attributes
    ----------
    node : str
        Name of the node.
    index : int or None
        Which output, of a node that has one for each reader. None: the only one, or one that is not chosen yet.
    """

    node: str
    index: int | None = None

    def __str__(self) -> str:
        return self.node if self.index is None else f"{self.node}->{self.index}"


@dataclass(frozen=True)
class Node:
    """One layer to be built.

    Attributes
    ----------
    conf : LayerConf
        Its name is that of the node, unique in the plan.
    index : int
        Place in the job's list of the layer that this one comes from: where an error points.
    sources : tuple of NodeOutput
        What it reads, in order.
    layer : str
        Name in the job of the layer that this one comes from.
    first_step, n_steps : int
        Time steps that it computes.
    n_outputs : int
        Number of outputs, one for each reader; 0 if there is one that all readers share.
    feedback : tuple of NodeOutput
        What it reads of an earlier pass.
    worker : int or None
        Who computes it; None is each worker of the group, by records.
    partition_dim, part, n_parts : int
        The axis along which the layer is cut, -1 for none; and which part of how many it is.
    peer : int
        For a bridge: the worker at the other end.
    channel : str
        For a bridge: what both ends call it.
    inherits_partition : bool
        It is partitioned as what it reads is, whatever the job says.
    inserted : bool
        Partitioning has inserted it for the layer at ``index``: what is wrong with it is how that one is partitioned.
    """

    conf: LayerConf
    index: int
    sources: tuple[NodeOutput, ...]
    layer: str = ""
    first_step: int = 0
    n_steps: int = 1
    n_outputs: int = 0
    feedback: tuple[NodeOutput, ...] = ()
    worker: int | None = None
    partition_dim: int = 0
    part: int = 0
    n_parts: int = 1
    peer: int = 0
    channel: str = ""
    inherits_partition: bool = False
    inserted: bool = False

    @property
    def name(self) -> str:
        """Name of the layer, unique in the plan."""
        return self.conf.name

    @property
    def cls(self) -> type[Layer]:
        """Class of the layer; ConfigError if nobody knows its type."""
        return LAYERS.find(self.conf.type)

    @property
    def traits(self) -> Traits:
        """What the class states."""
        return self.cls.traits

    def renamed(self, name: str, **changes: Any) -> Node:
        """Return a copy with another name, and other attributes if ``changes`` has them."""
        return replace(self, conf=self.conf.model_copy(update={"name": name}), **changes)

    @property
    def outputs(self) -> list[NodeOutput]:
        """Its outputs."""
        return [NodeOutput(self.name, k) for k in range(self.n_outputs)] or [NodeOutput(self.name)]

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of what it reads, for people."""
        return tuple(map(str, self.sources))

    def located(self, error: ConfigError) -> list[Problem]:
        """Return the problems with this layer with their paths from the top of the job."""
        if not self.inserted:
            return [self.problem(problem.message, problem.path) for problem in error.problems]
        messages = [f"what it reads cannot be shared by the workers: {problem.message}" for problem in error.problems]
        return [self.problem(f"{message} Say another partition_dim.", ("partition_dim",)) for message in messages]

    def problem(self, message: str, keys: Path = ()) -> Problem:
        """Say what is wrong at a key of this layer."""
        return Problem(("neuralnet", "layer", self.index, *keys), message)


def _node(kind: str, name: str, sources: Sequence[NodeOutput], index: int, block: dict[str, Any], **facts: Any) -> Node:
    conf = {"name": name, "type": kind, "srclayers": [source.node for source in sources], **block}
    return Node(LayerConf.model_validate(conf), index, tuple(sources), **{"layer": name, **facts})


def slice_node(name: str, source: NodeOutput, index: int, axis: int, n_slices: int, **facts: Any) -> Node:
    """Return a Slice that cuts an output in pieces along an axis; ``facts`` are more attributes of the `Node`."""
    block = {"slice_conf": {"slice_dim": axis, "num_slices": n_slices}}
    return _node("Slice", name, (source,), index, block, n_outputs=n_slices, **facts)


def concate_node(name: str, sources: Sequence[NodeOutput], index: int, axis: int, **facts: Any) -> Node:
    """Return a Concate that joins outputs along an axis; ``facts`` as of `slice_node`."""
    return _node("Concate", name, sources, index, {"concate_conf": {"concate_dim": axis}}, **facts)


def split_node(source: NodeOutput, index: int, n_splits: int, **facts: Any) -> Node:
    """Return a Split that gives each of several readers an output of its own; ``facts`` as of `slice_node`."""
    block = {"split_conf": {"num_splits": n_splits}}
    return _node("Split", f"split({source})", (source,), index, block, n_outputs=n_splits, **facts)


def bridge_nodes(source: NodeOutput, index: int, worker: int, other: int, **facts: Any) -> tuple[Node, Node]:
    """Return both ends of a bridge that leads an output from one worker to another; ``facts`` as of `slice_node`."""
    channel = f"{source}@{worker}->{other}"
    names = f"bridge_src({channel})", f"bridge_dst({channel})"
    start = _node("BridgeSrc", names[0], (source,), index, {}, worker=worker, peer=other, channel=channel, **facts)
    end_source = (NodeOutput(names[0]),)
    end = _node("BridgeDst", names[1], end_source, index, {}, worker=other, peer=worker, channel=channel, **facts)
    return start, end


@dataclass
class LogicalParam:
    """What the servers keep of a param, or of a part of one, for a whole worker group.

    Attributes
    ----------
    owner : Param
        Whose values and settings it has.
    param : Param
        One that computes with it: its shape and part.
    n_gradients : int
        Gradients for it in one step of this worker, or of the whole group where the net is partitioned.
    users : set of str
        Layers that these come from.
    summed : bool
        Whether the gradients of layers that share it are summed, and not averaged.
    holder : int
        The first worker of the group that has it.
    workers : set of int
        All that have it, where the net is partitioned.
    """

    owner: Param
    param: Param
    n_gradients: int = 0
    users: set[str] = field(default_factory=set)
    summed: bool = False
    holder: int = 0
    workers: set[int] = field(default_factory=set)


def whole_params(logical: Mapping[str, LogicalParam]) -> list[Param]:
    """Return the owners of all that servers keep, each once."""
    return list({kept.owner.name: kept.owner for kept in logical.values()}.values())


class Params:
    """The params of one net, those of all workers of the group where it is partitioned.

    Parameters
    ----------
    wiring : Wiring
        The layers.

    Attributes
    ----------
    by_name : dict of str to Param
        The first of each name.
    owners : list of Param
        See `NeuralNet`.
    logical : dict of str to LogicalParam
        See `NeuralNet`.
    shared : dict of str to LogicalParam
        Those of another net whose values this one uses.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.by_name: dict[str, Param] = {}
        self.owners: list[Param] = []
        self.logical: dict[str, LogicalParam] = {}
        self.shared: dict[str, LogicalParam] = {}
        self._families: dict[str, list[tuple[Param, Node]]] = {}

    def located(self) -> list[tuple[Param, Node, int]]:
        """Return each param with its node and its index there, for errors."""
        layers = [layer for layer in self.wiring.all_layers if layer.site.prototype is None]
        nodes = self.wiring.node_of
        return [(param, nodes[layer.name], k) for layer in layers for k, param in enumerate(layer.params)]

    def index_names(self) -> list[Problem]:
        """Index the params by name; return a problem for each name that occurs twice."""
        problems = []
        layers: dict[str, str] = {}
        for param, node, k in self.located():
            if layers.setdefault(param.name, node.layer) != node.layer:
                message = f"a second param {param.name!r}. Rename one; to use its values say share_from."
                problems.append(node.problem(message, ("param", k, "name")))
            self.by_name.setdefault(param.name, param)
        return problems

    def resolve_sharing(self) -> list[Problem]:
        """Find the owner of each param by ``share_from``, in a net with params of its own."""
        problems = []
        for param, node, k in self.located():
            owner = self.owner_of(param)
            if isinstance(owner, str):
                problems.append(node.problem(owner, ("param", k, "share_from")))
            elif math.prod(owner.whole_shape) != math.prod(param.whole_shape):
                message = (
                    f"{owner.name!r} has shape {owner.whole_shape}, {param.name!r} {param.whole_shape}: other sizes."
                )
                problems.append(node.problem(message, ("param", k, "share_from")))
            else:
                self._families.setdefault(owner.name, []).append((param, node))
        return problems

    def owner_of(self, param: Param) -> Param | str:
        """Follow ``share_from`` to the param that owns the values; return a message if that fails."""
        passed = [param]
        while name := passed[-1].conf.share_from:
            # SINGA 0.3 calls params 0#w1 where job files say w1
            owner = self.by_name.get(name) or self.by_name.get(name.removeprefix("0#"))
            if owner is None:
                return f"there is no param {name!r}. {suggest(name, self.by_name)}"
            if owner in passed:
                return f"param {param.name!r} is shared from itself."
            passed.append(owner)
        return passed[-1]

    def share_with(self, other: Params) -> list[Problem]:
        """Use the values of another net's params of the same names."""
        problems = []
        theirs: dict[tuple[str, int, int | None], Param] = {}
        for param, node, _ in other.located():
            column_part = node.part if node.partition_dim == 1 else 0
            places = (node.worker, None) if other.wiring.is_here(node) else (node.worker,)
            theirs |= {(param.name, column_part, place): param for place in places}
        for param, node, k in self.located():
            column_part = node.part if node.partition_dim == 1 else 0
            places = (node.worker, None) if self.wiring.is_here(node) else (node.worker,)
            found = next((found for place in places if (found := theirs.get((param.name, column_part, place)))), None)
            if found is None:
                message = f"the training net has no param {param.name!r}. {suggest(param.name, other.by_name)}"
                if param.name in other.by_name:
                    message = f"the training net has {param.name!r} on another worker. Say the same location there."
                problems.append(node.problem(message, ("param", k, "name")))
                continue
            if found.view is not None:
                param.keep_whole()
            if found.size != param.size:
                message = f"{param.name!r} has shape {found.whole_shape} in the training net, {param.whole_shape} here."
                problems.append(node.problem(message, ("param", k)))
            param.share(found)
            owner = other.owner_of(found)
            self.shared |= {key: kept for key, kept in other.logical.items() if kept.owner is owner}
        return problems

    def assign_owners(self) -> None:
        """Decide what is kept and sent of each param: its parts, or the whole if layers need different parts of it."""
        learning = {param for layer in self.wiring.all_layers if layer.learns for param in layer.params}
        for name in [param.name for param, _, _ in self.located() if not param.conf.share_from]:
            family, owner = self._families.pop(name, []), self.by_name[name]
            parts = {(param.whole_shape, param.shard and param.shard[1:]) for param, node in family if not node.part}
            if len(parts) > 1:
                for param, _ in family:
                    param.keep_whole()
            for param, node in family:
                new = LogicalParam(owner, param, holder=node.worker or 0)
                kept = self.logical.setdefault(param.key_of(name), new)
                if node.worker is not None:
                    kept.workers.add(node.worker)
                kept.summed |= param.conf.share_gradient == "sum"
                if param in learning:
                    kept.n_gradients += 1
                    kept.users.add(node.layer)
                if self.wiring.is_here(node):
                    self._assign(param, owner)

    def _assign(self, param: Param, owner: Param) -> None:
        """Make a param of this worker use what is kept here of its owner."""
        key = param.key_of(owner.name)
        kept = next((owned for owned in self.owners if owned.key == key), None)
        if kept is None:
            kept = param if param.key == key else Param.part_of(owner, param)
            kept.cancellation = self.wiring.context.cancellation
            self.owners.append(kept)
        param.share(kept)


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
        uneven = [
            node for node, layer in inputs if isinstance(layer, StoreInput) and len(layer.store_conf.batchsize) > 1
        ]
        return [node.problem(message, ("store_conf", "batchsize")) for node in uneven[:1]]
    message = "this type gives each worker as many records, and another layer of the net does not."
    return [node.problem(message, ("type",)) for node, layer in inputs if not isinstance(layer, StoreInput)]


def check_mixing(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> Iterator[Problem]:
    """Yield a problem for each layer that takes records for what they are, in a net that mixes them of two."""
    readers = [(node, layer) for node in nodes if isinstance(layer := layers[node.name], StoreReader)]
    mixing = next((layer for _, layer in readers if any(layer.mixing)), None)
    if mixing is None:
        return
    name = mixing.conf_name
    for node, layer in readers:
        if layer.mixing != mixing.mixing:
            message = f"{name!r} mixes records, and what this layer reads would not belong to them. Give both the same "
            yield node.problem(f"{message}mixup and cutmix in augment.", ("store_conf", "augment"))
    for node in nodes:
        layer, traits = layers[node.name], layers[node.name].traits
        message = f"{name!r} mixes records, by mixup or cutmix in augment, and {layer.conf.type} "
        if traits.time_from_columns:
            yield node.problem(f"{message}reads whole numbers. Leave them out.", ("type",))
        if traits.is_loss and not traits.mixes_labels and any("labels" in each for each in traits.consumes):
            wanted = "Expected a SoftmaxLoss without ignore_index, class_weights and focal_gamma."
            yield node.problem(f"{message}reads one label of each. {wanted}", ("type",))


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
