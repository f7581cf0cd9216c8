"""The proportions in which the workers of a group divide a batch, if their parts are unequal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import Layer
from singa_dask.layers.connection import Slice
from singa_dask.layers.feature import Span
from singa_dask.net.nodes import Node


def find_proportions(nodes: Sequence[Node], n_workers: int) -> tuple[int, ...]:
    """Return the proportions in which the workers of a group divide a batch; empty if all parts are equal.

    A job may set a batch size for each worker. Otherwise a batch that cannot be divided equally is divided into nearly
    equal parts, if all input layers read stores, all layers are partitioned by records, and no part is empty.
    """
    inputs = [node for node in nodes if not node.sources]
    # use names of layers as keys, because a partitioned input layer has several nodes
    sizes_of = {node.layer: store.batchsize for node in nodes if (store := node.conf.given_block(StoreConf))}
    for sizes in sizes_of.values():
        if len(sizes) == n_workers and len(set(sizes)) > 1:
            return _reduced(sizes)
    totals = {sum(sizes_of.get(node.layer, ())) for node in inputs if issubclass(node.cls, StoreInput)}
    size = totals.pop() if len(totals) == 1 else 0
    if nodes[0].worker is not None or size <= n_workers or size % n_workers == 0:
        return ()
    if not all(issubclass(node.cls, StoreInput) and len(sizes_of[node.layer]) == 1 for node in inputs):
        return ()
    return _reduced([Span.of(size, i, n_workers).size for i in range(n_workers)])


def _reduced(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size // math.gcd(*sizes) for size in sizes)


def check_proportions(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> list[Problem]:
    """Return a problem for each layer that cannot work with unequal parts of a batch.

    In a partitioned net, input layers with a batch size for each worker cannot. In another net, input layers that
    read no store cannot.
    """
    inputs = [(node, layers[node.name]) for node in nodes if node.name in layers and not node.sources]
    if nodes[0].worker is not None:
        message = (
            "a batchsize for each worker needs partition_dim: 0 in all layers. Set one number for the whole group."
        )
        uneven = [
            node for node, layer in inputs if isinstance(layer, StoreInput) and len(layer.store_conf.batchsize) > 1
        ]
        return [node.problem(message, ("store_conf", "batchsize")) for node in uneven[:1]]
    message = "this type gives all workers equal numbers of records, but another layer of the net does not."
    return [node.problem(message, ("type",)) for node, layer in inputs if not isinstance(layer, StoreInput)]


def check_equal_parts(node: Node, layer: Layer) -> None:
    """Raise `ConfigError` if an inserted Slice would give workers unequal parts of a batch.

    The mean over the workers would be wrong for unequal parts.
    """
    if node.inserted and isinstance(layer, Slice) and not layer.axis:
        sizes = [feature.shape[0] for feature in layer.features]
        if len(set(sizes)) > 1:
            message = f"expected a batch that {len(sizes)} workers can share equally, got {sum(sizes)}."
            raise ConfigError(Problem((), message))
