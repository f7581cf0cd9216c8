"""Nodes of a plan.

Each node describes a layer to build: a layer of the job, or a layer that the net inserts.
"""

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
    """A reference to an output of a node.

    Attributes
    ----------
    node : str
        Name of the node.
    index : int or None
        Number of the output, if the node has an output for each reader. None if the node has a single output, or if an
        output has not been chosen yet.
    """

    node: str
    index: int | None = None

    def __str__(self) -> str:
        return self.node if self.index is None else f"{self.node}->{self.index}"


@dataclass(frozen=True)
class Node:
    """A layer to build.

    Attributes
    ----------
    conf : LayerConf
        Options of the layer, with a name that is unique in the plan.
    index : int
        Index, in the job, of the layer to which the node belongs. Errors refer to this layer.
    sources : tuple of NodeOutput
        The outputs that the layer reads, in order.
    layer : str
        Name, in the job, of the layer to which the node belongs.
    first_step, n_steps : int
        The first time step that the layer computes, and the number of its time steps.
    n_outputs : int
        Number of outputs, one for each reader; 0 if there is one output that all readers share.
    feedback : tuple of NodeOutput
        Outputs whose values from an earlier pass the layer reads.
    worker : int or None
        The worker that computes the layer. None if all workers of the group compute it, each for its own records.
    partition_dim : int
        The axis along which the layer is partitioned; -1 if it is not partitioned.
    part, n_parts : int
        The index of this part of the layer, and the number of parts.
    peer : int
        For a bridge: the worker at the other end.
    channel : str
        For a bridge: a name that both ends share.
    inherits_partition : bool
        Whether the layer is partitioned in the same way as its source.
    inserted : bool
        Whether partitioning inserted the layer, because of the layer at ``index`` in the job. Errors of the inserted
        layer then refer to the ``partition_dim`` of the layer in the job.
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
        """Class of the layer. Raises `ConfigError` if the type is unknown."""
        return LAYERS.find(self.conf.type)

    @property
    def traits(self) -> Traits:
        """Traits of the layer's class."""
        return self.cls.traits

    @property
    def connection(self) -> Connection:
        """How an output feature of the layer depends on the features of its sources."""
        return self.cls.speed.feature_parallel or Connection.ONE_TO_ONE

    def reads_all_steps(self, source: int) -> bool:
        """Return whether each time step of the layer reads all time steps of its source number ``source``."""
        return self.traits.steps == "all" or (self.traits.steps == "memory" and source > 0)

    @property
    def needs_split(self) -> bool:
        """Whether a Split must follow the layer if it has several readers, to sum the readers' gradients."""
        return self.cls.backward is not Layer.backward and self.traits.role not in ("input", "unsupervised")

    def renamed(self, name: str, **changes: Any) -> Node:
        """Return a copy of the node with another name, and with other attributes as in ``changes``."""
        return replace(self, conf=self.conf.model_copy(update={"name": name}), **changes)

    @property
    def outputs(self) -> list[NodeOutput]:
        """References to all outputs of the node."""
        return [NodeOutput(self.name, k) for k in range(self.n_outputs)] or [NodeOutput(self.name)]

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of the source nodes, for messages."""
        return tuple(map(str, self.sources))

    def located(self, error: ConfigError) -> list[Problem]:
        """Return the problems of an error of this layer, with paths from the top of the job."""
        if not self.inserted:
            here = self.problem("").path
            return [replace(problem, path=(*here, *problem.path)) for problem in error.problems]
        messages = [
            f"its sources cannot be partitioned among the workers: {problem.message}" for problem in error.problems
        ]
        return [self.problem(f"{message} Set another partition_dim.", ("partition_dim",)) for message in messages]

    def problem(self, message: str, keys: Path = ()) -> Problem:
        """Return a problem at a key of the job's layer to which the node belongs."""
        return Problem(("neuralnet", "layer", self.index, *keys), message)


def _node(
    kind: str, name: str, sources: Sequence[NodeOutput], index: int, block: dict[str, Any], **attributes: Any
) -> Node:
    conf = {"name": name, "type": kind, "srclayers": [source.node for source in sources], **block}
    return Node(LayerConf.model_validate(conf), index, tuple(sources), **{"layer": name, **attributes})


def slice_node(name: str, source: NodeOutput, index: int, axis: int, n_slices: int, **attributes: Any) -> Node:
    """Return the node of a Slice layer, which divides an output into pieces along an axis.

    ``attributes`` are additional attributes of the `Node`.
    """
    block = {"slice_conf": {"slice_dim": axis, "num_slices": n_slices}}
    return _node("Slice", name, (source,), index, block, n_outputs=n_slices, **attributes)


def concate_node(name: str, sources: Sequence[NodeOutput], index: int, axis: int, **attributes: Any) -> Node:
    """Return the node of a Concate layer, which joins outputs along an axis.

    ``attributes`` are additional attributes of the `Node`.
    """
    return _node("Concate", name, sources, index, {"concate_conf": {"concate_dim": axis}}, **attributes)


def split_node(source: NodeOutput, index: int, n_splits: int, **attributes: Any) -> Node:
    """Return the node of a Split layer, which gives each of several readers its own output.

    ``attributes`` are additional attributes of the `Node`.
    """
    block = {"split_conf": {"num_splits": n_splits}}
    return _node("Split", f"split({source})", (source,), index, block, n_outputs=n_splits, **attributes)


def bridge_nodes(source: NodeOutput, index: int, worker: int, other: int, **attributes: Any) -> tuple[Node, Node]:
    """Return the nodes of both ends of a bridge, which sends an output to another worker.

    ``attributes`` are additional attributes of both nodes.
    """
    channel = f"{source}@{worker}->{other}"
    names = f"bridge_src({channel})", f"bridge_dst({channel})"
    start = _node("BridgeSrc", names[0], (source,), index, {}, worker=worker, peer=other, channel=channel, **attributes)
    end_source = (NodeOutput(names[0]),)
    end = _node("BridgeDst", names[1], end_source, index, {}, worker=other, peer=worker, channel=channel, **attributes)
    return start, end
