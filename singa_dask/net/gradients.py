"""Determine which features and layers of a net have gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from singa_dask.conf import Phase
from singa_dask.errors import Problem
from singa_dask.layers import Feature, Layer
from singa_dask.net.nodes import Node


def find_gradients(layers: Sequence[Layer], phase: Phase) -> None:
    """Set `Feature.requires_grad` and `Layer.learns`.

    Both are True for all features and layers between a param and a loss. If ``phase`` is not for training, no feature
    has a gradient.
    """
    if not phase & Phase.TRAIN:
        for layer in layers:
            for feature in layer.features:
                feature.requires_grad = False
        return
    for layer in layers:
        for feature in layer.features:
            learns = _is_trained(layer) or any(source.requires_grad for source in layer.sources)
            feature.requires_grad &= learns and layer.traits.role != "unsupervised"
    reached: set[Feature] = set()
    for layer in reversed(layers):
        for feature in layer.features:
            feature.requires_grad &= feature in reached
        if layer.traits.role == "unsupervised":
            layer.learns = _is_trained(layer)
        elif layer.traits.role == "loss" or any(feature.requires_grad for feature in layer.features):
            reached.update(layer.sources)
            layer.learns = _is_trained(layer) or any(source.requires_grad for source in layer.sources)


def _is_trained(layer: Layer) -> bool:
    """Return whether a layer has params that updates change."""
    return any(param.trains for param in layer.params)


def check_backward(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> Iterator[Problem]:
    """Yield a problem for each layer that lacks `backward`, although gradients must pass through it.

    Gradients must pass through a layer if its params, or layers before it, need gradients.
    """
    for node in nodes:
        layer = layers[node.name]
        if layer.learns and type(layer).backward is Layer.backward:
            what = "its params" if layer.params else f"{layer.conf.srclayers[0]!r} and the layers before it"
            message = (
                f"{layer.conf.type} has no backward(), so {what} would never learn. Write backward(), or "
                "add_output(..., requires_grad=False) to stop gradients here."
            )
            yield node.problem(message, ("type",))
