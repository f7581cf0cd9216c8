"""What flows between the layers of a net: as what outputs are read, and which have gradients."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.conf import Phase
from singa_dask.layers import Feature, Layer
from singa_dask.layers.feature import Read

__all__ = ["find_gradients", "pass_on_reads"]


def pass_on_reads(layers: Sequence[Layer]) -> None:
    """Have layers that pass on read what their consumers do, as data what they cannot pass on."""
    for layer in reversed(layers):
        # what nobody reads is computed, but of several pieces only those that are read
        unread: Read = "nothing" if any(feature.read_as for feature in layer.features) else "data"
        for feature in layer.features if layer.passes else ():
            feature.read_as = feature.read_as or {unread}
            if feature.read_as - layer.passes - {"nothing"}:
                feature.read_as.add("data")
            for source in layer.sources:
                source.read_as |= feature.read_as & layer.passes


def find_gradients(layers: Sequence[Layer], phase: Phase) -> None:
    """Decide which features and layers have gradients: between something that learns and a loss."""
    if not phase & Phase.TRAIN:
        for layer in layers:
            for feature in layer.features:
                feature.wants_grad = False
        return
    for layer in layers:
        for feature in layer.features:
            learns = bool(layer.params) or any(source.wants_grad for source in layer.sources)
            feature.wants_grad &= learns and not layer.is_energy
    reached: set[Feature] = set()
    for layer in reversed(layers):
        for feature in layer.features:
            feature.wants_grad &= feature in reached
        if layer.is_energy:
            layer.learns = bool(layer.params)
        elif layer.is_loss or not reached.isdisjoint(layer.features):
            reached.update(layer.sources)
            layer.learns = bool(layer.params) or any(source.wants_grad for source in layer.sources)
