"""Check that the layers of a net can read mixed records, which mixup and cutmix produce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from singa_dask.errors import Problem
from singa_dask.inputs import StoreInput
from singa_dask.layers import Layer
from singa_dask.net.nodes import Node


def check_mixing(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> Iterator[Problem]:
    """Yield a problem for each layer that cannot read mixed records, if an input layer mixes them."""
    readers = [(node, layer) for node in nodes if isinstance(layer := layers[node.name], StoreInput)]
    mixing = next((layer for _, layer in readers if any(layer.mixing)), None)
    if mixing is None:
        return
    name = mixing.conf_name
    for node, layer in readers:
        if layer.mixing != mixing.mixing:
            message = f"{name!r} mixes its records, so they would not match the records of this layer. "
            message += "Set the same mixup and cutmix in augment of both layers."
            yield node.problem(message, ("store_conf", "augment"))
    for node in nodes:
        layer, traits = layers[node.name], layers[node.name].traits
        message = f"{name!r} mixes records, by mixup or cutmix in augment, but {layer.conf.type} "
        if traits.steps == "columns":
            yield node.problem(f"{message}reads integers. Remove mixup and cutmix.", ("type",))
        if traits.role == "loss" and not traits.mixes_labels and any("labels" in each for each in traits.consumes):
            wanted = "Expected a SoftmaxLoss without ignore_index, class_weights and focal_gamma."
            yield node.problem(f"{message}reads one label of each record. {wanted}", ("type",))
