"""The copies of a layer in an unrolled net: they share params, and their gradients are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from singa_dask.conf import Phase
from singa_dask.layers import Layer

__all__ = ["compute_gradient", "order_copies"]


def order_copies(layers: Sequence[Layer], readers: Mapping[Layer, Sequence[Layer]]) -> dict[Layer, list[Layer]]:
    """Have the copies of a layer, which share the gradients of params, go back one after the other.

    Returns
    -------
    dict of Layer to list of Layer
        For each layer that learns, those that go back before it.
    """
    first: dict[str, Layer] = {}
    before: dict[Layer, list[Layer]] = {}
    for layer in reversed([layer for layer in layers if layer.learns]):
        later = [first[layer.conf_name]] if layer.conf_name in first else []
        before[layer] = [*readers[layer], *later]
        layer.adds_gradient = bool(later)
        first[layer.conf_name] = layer
    for layer in before:
        layer.hands_over = first[layer.conf_name] is layer
    return before


def compute_gradient(layer: Layer, phase: Phase) -> None:
    """Run a layer backward; the gradients of a later copy's params are added to those of the copies before it."""
    if layer.own_grads:
        _add_own_gradients(layer, phase)
    elif layer.adds_gradient:
        layer.compute_gradient(phase | Phase.AGGREGATE_GRADIENT)
    else:
        for param in layer.params:
            if param.window is not None:  # other layers have added the rest to the same memory
                layer.ops.multiply(param.memory, 0, out=param.memory)
        layer.compute_gradient(phase)


def _add_own_gradients(layer: Layer, phase: Phase) -> None:
    """Let a layer compute the gradients of its params in memory of its own, then add them."""
    params = [param for param in layer.params if param.grad is not None]
    sums = [param.grad for param in params]
    for param, own in zip(params, layer.own_grads, strict=True):
        param.grad = own
    try:
        layer.compute_gradient(phase)
    finally:
        for param, total in zip(params, sums, strict=True):
            param.grad = total
    for total, own in zip(sums, layer.own_grads, strict=True):
        layer.ops.add(total, own, out=total)
