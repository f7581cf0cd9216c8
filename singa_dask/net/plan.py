"""Plan a net: turn a job's list of layers into a list of nodes to build.

Each step of planning, including `unroll` and `partition`, takes a list of nodes and returns a new list. The steps use
names and types of layers, but no shapes, which are unknown until the layers exist. Names, sources and cycles of the job
were checked before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from singa_dask.conf import LayerConf, NetConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS
from singa_dask.layers.feedback import Feedback
from singa_dask.net.nodes import Node, NodeOutput, split_node
from singa_dask.net.order import topological_order
from singa_dask.net.partition import cut_by_features, partition
from singa_dask.net.unroll import merge, unroll
from singa_dask.wording import suggest


def plan(net: NetConf, phase: Phase, n_workers: int = 1) -> list[Node]:
    """Return the nodes of the net of one phase, sources before their readers.

    If the net is partitioned, the result has the nodes of all workers.

    Raises
    ------
    ConfigError
        There are no layers, a type is unknown, layers form a cycle, or a layer reads time steps that do not exist.
    """
    nodes = cut_feedback_edges(check_types(layers_in_phase(net.layer, phase)))
    by_features = cut_by_features(nodes, net.partition_dim) if n_workers > 1 else ()
    unrolled = topological_order(merge(unroll(nodes, net.unroll_len), by_features))
    parts = partition(choose_outputs(unrolled), n_workers, net.partition_dim)
    return choose_outputs(topological_order(add_splits(parts)))


def layers_in_phase(layers: Sequence[LayerConf], phase: Phase) -> list[Node]:
    """Return a node for each layer of the job that belongs to a phase."""
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
    """Check the types of nodes, and set the number of outputs of each node.

    Raises
    ------
    ConfigError
        A type is unknown, or is only for layers that the net inserts.
    """
    problems, known = [], []
    for node in nodes:
        if LAYERS.is_hidden(node.conf.type):
            message = f"{node.conf.type} is inserted for edges to another worker. Set location of the readers instead."
            problems.append(node.problem(message, ("type",)))
        try:
            options, key = node.cls.options_class, outputs_key(node)
            n_outputs = (getattr(node.conf.block(options), key[1]) or 0) if key and options else 0
            known.append(replace(node, n_outputs=n_outputs))
        except ConfigError as error:
            problems.append(node.problem(str(error), ("type",)))
    if problems:
        raise ConfigError(problems)
    return known


def outputs_key(node: Node) -> tuple[str, ...]:
    """Return the block and key that set the number of outputs of a layer.

    The result is empty if all readers of the layer share one output.
    """
    if node.cls.outputs_key and node.cls.options_class:
        return node.cls.options_class.block_key, node.cls.outputs_key
    return ()


def cut_feedback_edges(nodes: Sequence[Node]) -> list[Node]:
    """Replace edges that close a cycle by feedback edges, which carry the output of an earlier pass."""
    sources = {node.name: [source.node for source in node.sources] for node in nodes}
    cut, problems = [], []
    for node in nodes:
        # the two layers of an RBM read each other; the first source of the visible layer is the records
        back = [
            source for source in node.sources[1:]
            if node.traits.role == "unsupervised" and node.name in sources.get(source.node, ())
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
    """Assign outputs to readers, in order, for each node that has a separate output for each reader.

    Raises
    ------
    ConfigError
        A node has more readers than outputs.
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
                    message = f"the layer has {several.n_outputs} outputs, but more layers read it."
                    problems.append(several.problem(message, outputs_key(several)))
                    continue
                sources.append(output)
            else:
                sources.append(source)
        chosen.append(replace(node, sources=tuple(sources)))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return chosen


def add_splits(nodes: Sequence[Node]) -> list[Node]:
    """Insert a Split, ``split(<name>)``, after each output whose readers need separate outputs."""
    readers = Counter(source for node in nodes for source in node.sources)
    several = [node for node in nodes if node.needs_split or node.n_outputs]
    split = {output for node in several for output in node.outputs if readers[output] > 1}
    planned = []
    for node in nodes:
        sources = tuple(NodeOutput(f"split({source})") if source in split else source for source in node.sources)
        planned.append(replace(node, sources=sources))
        attributes: dict[str, Any] = {"first_step": node.first_step, "n_steps": node.n_steps}
        if node.worker is not None:
            attributes |= {"worker": node.worker, "partition_dim": -1}
        planned += [
            split_node(output, node.index, readers[output], **attributes) for output in node.outputs if output in split
        ]
    return planned
