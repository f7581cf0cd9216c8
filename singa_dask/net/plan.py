"""From a job's list of layers to the list that is built: each step takes a list of nodes and gives one.

A step knows names and types, no shapes: those come when the layers are made. The job's own wiring (names,
sources, circles) was checked with the job.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from singa_dask.conf import LayerConf, NetConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS
from singa_dask.layers.feedback import Feedback
from singa_dask.net.node import Node
from singa_dask.net.partition import WHOLE, cut_by_features, partition
from singa_dask.net.unroll import merge, unroll
from singa_dask.registry import suggest

__all__ = ["add_splits", "check_types", "open_loops", "plan", "select", "sort"]


def plan(net: NetConf, phase: Phase, n_workers: int = 1) -> list[Node]:
    """Return the layers of one phase's net, sources before consumers; those of all workers where it is partitioned.

    Raises
    ------
    ConfigError
        There are none, some have types that nobody knows, they wait for each other, or they read time steps that
        are not there.
    """
    nodes = open_loops(check_types(select(net.layer, phase)))
    by_features = cut_by_features(nodes, net.partition_dim) if n_workers > 1 else ()
    unrolled = sort(merge(unroll(nodes, net.unroll_len), by_features))
    return sort(add_splits(partition(unrolled, n_workers, net.partition_dim)))


def select(layers: Sequence[LayerConf], phase: Phase) -> list[Node]:
    """Keep the layers that a phase's net has."""
    kept = [Node(conf, i, tuple(conf.srclayers), conf.name) for i, conf in enumerate(layers) if conf.in_phase(phase)]
    if not kept:
        name = (phase.name or str(phase)).lower()
        raise ConfigError(Problem(("neuralnet", "layer"), f"no layer is left in the {name} net."))
    return kept


def check_types(nodes: Sequence[Node]) -> list[Node]:
    """Refuse types that nobody knows, or that a job does not name, all at once."""
    problems = []
    for node in nodes:
        if LAYERS.is_hidden(node.conf.type):
            message = f"{node.conf.type} is put in where an edge leads to another worker. Say location of its readers."
            problems.append(node.problem(message, ("type",)))
        try:
            LAYERS.find(node.conf.type)
        except ConfigError as error:
            problems.append(node.problem(str(error), ("type",)))
    if problems:
        raise ConfigError(problems)
    return list(nodes)


def open_loops(nodes: Sequence[Node]) -> list[Node]:
    """Take out the edges that lead back: a layer computed later, whose output of an earlier pass is read."""
    sources = {node.name: node.sources for node in nodes}
    opened, problems = [], []
    for node in nodes:
        # of the two layers of an RBM, which read each other, the visible one has another source before
        back = [name for name in node.sources[1:] if _learns_without_loss(node) and node.name in sources.get(name, ())]
        loops = (*back, *_feedback_sources(node))
        problems += [
            node.problem(f"unknown layer {name!r}. {suggest(name, sources)}") for name in loops if name not in sources
        ]
        kept = tuple(name for name in node.sources if name not in back)
        opened.append(replace(node, sources=kept, loops=loops))
    if problems:
        raise ConfigError(problems)
    return opened


def _learns_without_loss(node: Node) -> bool:
    return LAYERS.find(node.conf.type).traits.learns_without_loss


def _feedback_sources(node: Node) -> list[str]:
    kind = LAYERS.find(node.conf.type)
    return kind.feedback_sources(node.conf) if issubclass(kind, Feedback) else []


def add_splits(nodes: Sequence[Node]) -> list[Node]:
    """Put ``split(<name>)`` after each output that several layers read and that does not serve several itself."""
    readers = Counter(source for node in nodes for source in node.sources)
    split = {name for node in nodes if _needs_split(node) for name in node.outputs if readers[name] > 1}
    planned = []
    for node in nodes:
        sources = tuple(f"split({source})" if source in split else source for source in node.sources)
        planned.append(replace(node, sources=sources))
        planned += [_split_of(node, name, readers[name]) for name in node.outputs if name in split]
    return planned


def _needs_split(node: Node) -> bool:
    traits = LAYERS.find(node.conf.type).traits
    return (traits.needs_split or bool(node.gives)) and not traits.is_input


def _split_of(node: Node, output: str, n_readers: int) -> Node:
    made = {
        "name": f"split({output})",
        "type": "Split",
        "srclayers": [output],
        "split_conf": {"num_splits": n_readers},
    }
    conf = LayerConf.model_validate(made)
    split = Node(conf, node.index, (output,), conf.name, node.first_step, node.n_steps)
    return split if node.worker is None else replace(split, worker=node.worker, dim=WHOLE)


def sort(nodes: Sequence[Node]) -> list[Node]:
    """Order layers so that sources come first, else as they are listed."""
    place = {name: i for i, node in enumerate(nodes) for name in node.outputs}
    waits = [len(set(node.sources)) for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for source in set(node.sources):
            readers[place[source]].append(i)
    ready = [i for i, count in enumerate(waits) if not count]
    ordered: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(nodes[i])
        for reader in readers[i]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    stuck = [node for node, count in zip(nodes, waits, strict=True) if count]
    if stuck:
        names = ", ".join(node.name for node in stuck)
        raise ConfigError(stuck[0].problem(f"these layers wait for each other: {names}.", ("srclayers",)))
    return ordered
