"""Nodes of a plan: a node is one layer to be built, of the job or inserted by the net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from singa_dask.conf import LayerConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Connection, Layer, Traits

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

    @property
    def connection(self) -> Connection:
        """How the layer depends on its sources, where that makes a difference."""
        return self.cls.speed.feature_parallel or Connection.ONE_TO_ONE

    def reads_all_steps(self, source: int) -> bool:
        """Tell whether a time step reads all time steps of a source."""
        return self.traits.steps == "all" or (self.traits.steps == "memory" and source > 0)

    @property
    def needs_split(self) -> bool:
        """Whether several readers need a Split, which sums their gradients."""
        return self.cls.backward is not Layer.backward and self.traits.role not in ("input", "unsupervised")

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
