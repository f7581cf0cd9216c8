"""Allocate the memory of layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from singa_dask.conf import Phase
from singa_dask.layers import Layer
from singa_dask.layers.feature import on_host


class Allocation(NamedTuple):
    """Memory to allocate.

    Attributes
    ----------
    owner : object
        Identifies the memory. If several layers yield memory of the same owner, this memory is allocated and counted
        once.
    shape : tuple of int
    dtype : dtype
    allocate : callable
        Allocates the memory, unless the owner already has it.
    """

    owner: object
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    allocate: Callable[[], None]

    @property
    def n_bytes(self) -> int:
        """Number of bytes to allocate."""
        return math.prod(self.shape) * self.dtype.itemsize


def memory_of(layer: Layer) -> Iterator[Allocation]:
    """Yield the memory that a layer needs for outputs, buffers, and gradients of outputs and params."""
    ops = layer.ops
    for feature in layer.features:
        wanted = feature.own_data
        if wanted == "consumed":
            wanted = "data" in feature.consumed_as or feature.consumed_as.isdisjoint(("raw", "one_hot_index"))
        if wanted:
            make = np.zeros if on_host(feature) else ops.features
            yield Allocation(feature, feature.shape, feature.dtype, partial(feature.allocate, "data", make))
        if feature.requires_grad and feature.own_grad:
            allocate = partial(feature.allocate, "grad", ops.features)
            yield Allocation((feature, "grad"), feature.shape, feature.dtype, allocate)
    needed = {"always": True, "training": bool(layer.context.phase & Phase.TRAIN), "backward": layer.learns}
    for buffer in layer.buffers.values():
        if needed[buffer.when]:
            yield Allocation(buffer, buffer.shape, buffer.dtype, buffer.allocate)
    for param in layer.params:
        if layer.learns and param.needs_grad:
            yield Allocation(param, param.memory_shape, param.dtype, partial(param.allocate_grad, ops.zeros))


def allocate(layer: Layer) -> None:
    """Allocate the memory that `memory_of` yields for a layer, then call `Layer.attach`."""
    for memory in memory_of(layer):
        memory.allocate()
    if not layer.fused.joins:
        layer.attach()
    for feature, other, name in layer.fused.joins:
        setattr(feature, name, getattr(other, name))
