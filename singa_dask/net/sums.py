"""Sums that a layer computes beside its own work: of an Add by the layer before it, of two gradients by one reader."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.layers import Layer
from singa_dask.layers.combine import Add
from singa_dask.layers.connection import Split

__all__ = ["merge_sums"]


def merge_sums(layers: Sequence[Layer]) -> None:
    """Have layers of a net that is trained and not partitioned compute sums of others: a kernel less for each.

    The numbers are the same, in the same memory: an Add has the output of the layer that adds, whose own output is then
    the sum. Gradients have been decided; memory is not allocated yet.

    Parameters
    ----------
    layers : sequence of Layer
        In the order of a forward pass; backward is the reverse.
    """
    made = {feature: place for place, layer in enumerate(layers) for feature in layer.features}
    reader = {source: layer for layer in reversed(layers) for source in layer.sources}
    read = {source: place for place, layer in enumerate(layers) for source in layer.sources}
    for layer in layers:
        if type(layer) is Add and len(layer.sources) == 2 and not layer.features[0].relu:
            first, last = sorted(layer.sources, key=made.__getitem__)
            if last.can_add and first.dtype == last.dtype:
                last.added = first
                layer.features[0].own_data = False
        elif type(layer) is Split and layer.sources[0].requires_grad and layer.sources[0].relu_of is None:
            wanted = sorted((each for each in layer.features if each.requires_grad), key=read.__getitem__)
            if len(wanted) == 2 and wanted[0].own_grad and reader[wanted[0]].speed.adds_gradient:
                # that reader goes backward last
                wanted[0].grad_added, wanted[0].own_grad = wanted[1], False
