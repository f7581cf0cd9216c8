"""Fuse layers of a training net: a layer computes what its neighbour would, in the same kernels and the same memory.

No bit changes. A type of layer says by `Speed.fuses` what it can compute for its neighbours, and finds in `Layer.fused`
what it is to compute. The neighbour keeps its place in the net; those of its verbs that have nothing left to do are
replaced by one that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from singa_dask.conf import Phase
from singa_dask.layers import Feature, Layer
from singa_dask.layers.activation import Activation, ReLU
from singa_dask.layers.combine import Add
from singa_dask.layers.connection import Split


def fuse(layers: Sequence[Layer], with_sums: bool) -> None:
    """Fuse layers of a net whose gradients have been decided, before its memory is allocated.

    Parameters
    ----------
    layers : sequence of Layer
        In the order of a forward pass; backward is the reverse.
    with_sums : bool
        Fuse additions too, a kernel less for each. Not for a partitioned net, nor for one whose outputs are looked at.
    """
    owners = {feature: layer for layer in layers for feature in layer.features}
    readers = {source: layer for layer in layers for source in layer.sources}
    for layer in layers:
        if type(layer) is Split:
            _join_only_gradient(layer)
    for layer in layers:
        if "pass_grad" in layer.speed.fuses:
            _share_gradients(layer, owners)
        elif is_relu(layer) and (below := owners.get(layer.sources[0])) and "relu" in below.speed.fuses:
            _fuse_relu(layer, below, readers.get(layer.features[0]))
    places = {layer: place for place, layer in enumerate(layers)}
    for layer in layers if with_sums else ():
        if type(layer) is Add and len(layer.sources) == 2 and not layer.fused.relu:
            first, last = sorted(layer.sources, key=lambda source: places[owners[source]])
            _fuse_sum(layer, first, last, owners[last])
        elif type(layer) is Split and not layer.fused.masks_source:
            wanted = [feature for feature in layer.features if feature.requires_grad]
            _fuse_sum_of_gradients(layer, sorted(wanted, key=lambda output: places[readers[output]]), readers)


def bind_shared_gradients(layers: Sequence[Layer]) -> None:
    """Give sources the gradient of the output that they share, once memory is allocated."""
    for layer in reversed(layers):
        for source in layer.fused.shared:
            source.grad = layer.features[0].grad


def is_relu(layer: Layer) -> bool:
    """Tell whether a layer is a ReLU without a slope."""
    return isinstance(layer, Activation) and type(layer) in (Activation, ReLU) and layer.kernels.is_relu


def _join_only_gradient(split: Split) -> None:
    """Let the one reader of a Split with a gradient write to that of the source."""
    wanted = [feature for feature in split.features if feature.requires_grad]
    if len(wanted) == 1:
        wanted[0].own_grad = False
        _relieve(split, "backward", attach=partial(_join, wanted[0], split.sources[0], "grad"))


def _share_gradients(layer: Layer, owners: Mapping[Feature, Layer]) -> None:
    """Let sources share the gradient of the output, where the layers that own them only read it."""
    for source in layer.sources:
        is_read_only = source in owners and owners[source].speed.reads_gradients
        if is_read_only and source.requires_grad and source.own_grad and source.dtype == layer.features[0].dtype:
            source.own_grad = False
            layer.fused.shared += (source,)


def _fuse_relu(relu: Layer, below: Layer, reader: Layer | None) -> None:
    """Let the layer before a ReLU compute it, and that layer or the reader its gradient."""
    source, output = relu.sources[0], relu.features[0]
    source.overwritable = output.own_data = output.own_grad = False
    below.fused.relu = True
    if reader is not None and "relu_grad" in reader.speed.fuses and not reader.fused.idle:
        reader.fused.masks_source = True
    else:
        below.fused.masks_output = True
    _relieve(relu, "forward", "backward", attach=partial(_join, output, source, "data", "grad"))


def _fuse_sum(add: Add, first: Feature, last: Feature, owner: Layer) -> None:
    """Let the layer that owns the last source of an Add compute the sum, which is then the output of both."""
    if "add" in owner.speed.fuses and first.dtype == last.dtype:
        owner.fused.added = first
        add.features[0].own_data = False
        _relieve(add, "forward", attach=partial(_join, add.features[0], last, "data"))


def _fuse_sum_of_gradients(split: Split, wanted: Sequence[Feature], readers: Mapping[Feature, Layer]) -> None:
    """Let the reader of a Split that goes backward last add the gradient of the other one to its own."""
    if len(wanted) == 2 and wanted[0].own_grad and "add_grad" in readers[wanted[0]].speed.fuses:
        readers[wanted[0]].fused.added_grad = wanted[1]
        wanted[0].own_grad = False
        _relieve(split, "backward", attach=partial(_join, wanted[0], split.sources[0], "grad"))


def _relieve(layer: Layer, *verbs: str, attach: Callable[[], None]) -> None:
    """Replace verbs of a layer whose work its neighbours do, and how its outputs get memory."""
    layer.fused.idle = verbs
    vars(layer).update(dict.fromkeys(verbs, _nothing), attach=attach)


def _nothing(phase: Phase) -> None:
    """Do nothing: a neighbour does."""


def _join(feature: Feature, other: Feature, *names: str) -> None:
    """Give a feature the ``data`` or ``grad`` of another one."""
    for name in names:
        setattr(feature, name, getattr(other, name))
