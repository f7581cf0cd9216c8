"""Batches that the workers of a group divide into unequal parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from singa_dask.conf import NetConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import Layer
from singa_dask.layers.connection import Slice
from singa_dask.net.nodes import Node


def find_shares(net: NetConf, phase: Phase, n_workers: int) -> tuple[int, ...]:
    """Return the proportions in which the workers of a group divide a batch; empty if the parts are equal."""
    for layer in net.layer:
        store = layer.given_block(StoreConf)
        sizes = store.batchsize if store and layer.in_phase(phase) else []
        if len(sizes) == n_workers and len(set(sizes)) > 1:
            return tuple(size // math.gcd(*sizes) for size in sizes)
    return ()


def check_shares(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> list[Problem]:
    """Return problems with unequal parts: partitioned layers, or input layers that read no store."""
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
    """Raise ConfigError if a Slice would give workers unequal parts of a batch, as their means would be wrong."""
    if node.inserted and isinstance(layer, Slice) and not layer.axis:
        sizes = [feature.shape[0] for feature in layer.features]
        if len(set(sizes)) > 1:
            message = f"expected a batch that {len(sizes)} workers can share equally, got {sum(sizes)}."
            raise ConfigError(Problem((), message))
