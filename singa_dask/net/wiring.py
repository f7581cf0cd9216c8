"""Wiring: create the layers of a net from its nodes, and connect them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Context, Feature, Layer, LayerSite, Param, ShardIndex
from singa_dask.layers.feedback import Feedback
from singa_dask.layers.forwarding import Forwarding
from singa_dask.layers.metrics import Metrics
from singa_dask.layers.traits import Consumed, Traits
from singa_dask.net.nodes import Node, NodeOutput
from singa_dask.net.proportions import check_equal_parts
from singa_dask.ops.contract import Ops

# traits that the plan of a net reads from the class, so that an instance cannot change them
PLANNED = ("n_sources", "reads_beside", "steps", "takes_mask")


class Wiring:
    """Creates and connects the layers of a net.

    If a layer has a mistake, the layers that read it are skipped.

    Attributes
    ----------
    problems : list of Problem
        All mistakes, with paths from the top of the job.
    layers, all_layers : list of Layer
        The layers of this worker, and of all workers, in the order of ``nodes``.
    by_name : dict of str to Layer
        All layers by name.
    node_of : dict of str to Node
        Nodes by the names of their layers.
    sources, readers : dict of Layer to list of Layer
        For each layer of this worker: the layers of this worker that it reads, and the layers that read it.
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
        # all parts of a layer report the same mistakes; keep each mistake once
        self.problems = list(dict.fromkeys(problems))

    def is_here(self, node: Node) -> bool:
        """Return whether this worker computes a node."""
        return node.worker is None or node.worker == self.context.worker

    def _add(self, node: Node) -> list[Problem]:
        """Create the layer of a node, and connect it to its sources; return its mistakes."""
        if any(source.node not in self.by_name for source in node.sources):
            return []
        try:
            layer = self._make(node)
            wire(layer, [self._feature(source) for source in node.sources], self.ops)
            if not self.context.proportions:
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
            node.layer, batch, features, node.first_step, node.n_steps,
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


def wire(layer: Layer, sources: Sequence[Feature], ops: Ops) -> None:
    """Connect a layer to its sources, run `Layer.setup`, and check the numbers of sources and params.

    Raises
    ------
    ConfigError
        The layer has a mistake. Paths in the error are relative to the layer.
    """
    traits, kind = layer.traits, layer.conf.type
    least, most = traits.n_sources
    if len(sources) < least or (most is not None and len(sources) > most):
        bound = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        message = f"{kind} takes {bound} source layer{'s' * (bound != '1')}, not {len(sources)}."
        raise ConfigError(Problem(("srclayers",), message))
    if len(layer.conf.param) > len(traits.params):
        message = f"{kind} has no such param. Its params: {', '.join(traits.params) or 'none'}."
        raise ConfigError(Problem(("param", len(traits.params)), message))
    masks = [k for k, source in enumerate(sources) if source.dtype == bool]
    if masks and not traits.takes_mask:
        raise ConfigError(Problem(("srclayers", masks[0]), f"{kind} takes no PaddingMask. Leave it out."))
    layer.sources, layer.ops, layer.metrics = list(sources), ops, Metrics(ops)
    layer.setup()
    if message := _mistake(layer, traits.params):
        raise ConfigError(Problem(("type",), f"{kind}: {message}"))
    if len(layer.conf.param) > (index := len(layer.params)):
        message = f"there is no {traits.params[index]!r} to describe. Does the layer have bias_term: false?"
        raise ConfigError(Problem(("param", index), message))
    for i, source in enumerate(layer.sources if traits.role != "connection" else ()):
        source.consumed_as |= layer.traits.consumed(i)


def _mistake(layer: Layer, params: Sequence[str]) -> str:
    """Return a message about params or traits that are wrong after `Layer.setup`; empty if there are none.

    ``params`` are the names in the traits before `Layer.setup`.
    """
    message, own = "", layer.traits
    for name, value in _planned(type(layer).traits).items():
        if _planned(own)[name] != value:
            message = f"it changes the trait {name} to {getattr(own, name)!r}, but nets are planned with {value!r}, the"
            message += " trait of its class. Write a class for each."
    if own.params != params[: len(own.params)]:
        message = f"setup() changes the names of params from {params} to {own.params}. It may only leave out the last."
    for name in layer.traits.params[len(layer.params) :]:
        if getattr(layer, name, layer) is not None:
            message = f"its traits name the param {name!r}, which setup() does not add. Add it, or set it to None."
    for name, value in vars(layer).items():
        if isinstance(value, Param) and value not in layer.params:
            message = f"self.{name} is a Param that nobody updates. Create it by add_param, and name it in the traits."
    return message


def _planned(traits: Traits) -> dict[str, object]:
    """Return the traits that the plan of a net reads; it treats the roles "", "loss" and "output" alike."""
    role = "" if traits.role in ("loss", "output") else traits.role
    return {"role": role, **{name: getattr(traits, name) for name in PLANNED}}


def pass_on_reads(layers: Sequence[Layer]) -> None:
    """Make each `Forwarding` layer consume from its sources what its own readers consume.

    If a `Forwarding` layer cannot forward what a reader consumes, the layer computes ``data`` instead.
    """
    for layer in reversed(layers):
        forwards = layer.forwards if isinstance(layer, Forwarding) else frozenset[Consumed]()
        # if some outputs of a layer are read, do not compute its other outputs
        unread: Consumed = "nothing" if forwards and any(each.consumed_as for each in layer.features) else "data"
        for feature in layer.features:
            feature.consumed_as = feature.consumed_as or {unread}
            if forwards and feature.consumed_as - forwards - {"nothing"}:
                feature.consumed_as.add("data")
            for source in layer.sources:
                source.consumed_as |= feature.consumed_as & forwards
