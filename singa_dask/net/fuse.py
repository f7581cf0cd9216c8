"""Fuse layers of a training net: a layer does the work of a neighbouring layer in its own kernel.

Results have the same bits as without fusing. `Speed.fuses` lists the work that a layer class can do for its
neighbours; `Layer.fused` lists the work that a layer of this net does. The neighbour stays in the net, but the net
does not call its methods that have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from singa_dask.layers import Feature, Layer
from singa_dask.layers.activation import Activation, ReLU
from singa_dask.layers.combine import Add
from singa_dask.layers.connection import Split


def fuse(layers: Sequence[Layer], with_sums: bool) -> None:
    """Fuse the layers of a net. Call this function after `find_gradients`, before memory is allocated.

    Parameters
    ----------
    layers : sequence of Layer
        All layers, in the order of a forward pass.
    with_sums : bool
        Whether to fuse additions, too, which saves one kernel for each. Pass False for a partitioned net, and for a net
        whose outputs are inspected.
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
        elif type(layer) is Split and not layer.fused.relu_grad:
            wanted = [feature for feature in layer.features if feature.requires_grad]
            _fuse_sum_of_gradients(layer, sorted(wanted, key=lambda output: places[readers[output]]), readers)


def bind_shared_gradients(layers: Sequence[Layer]) -> None:
    """Make each source use the gradient array of the output with which it shares its gradient.

    Call this function once memory is allocated.
    """
    for layer in reversed(layers):
        for source in layer.fused.pass_grad:
            source.grad = layer.features[0].grad


def is_relu(layer: Layer) -> bool:
    """Return whether a layer is a ReLU with slope 0 for negative values."""
    return isinstance(layer, Activation) and type(layer) in (Activation, ReLU) and layer.kernels.is_relu


def _join_only_gradient(split: Split) -> None:
    """Make the reader of a Split write its gradient to the Split's source, if no other reader has one."""
    wanted = [feature for feature in split.features if feature.requires_grad]
    if len(wanted) == 1:
        wanted[0].own_grad = False
        split.fused.idle, split.fused.joins = ("backward",), ((wanted[0], split.sources[0], "grad"),)


def _share_gradients(layer: Layer, owners: Mapping[Feature, Layer]) -> None:
    """Make the sources of a layer share the gradient array of its output.

    A source can share the array only if its own layer does not write to the array.
    """
    for source in layer.sources:
        is_read_only = source in owners and owners[source].speed.reads_gradients
        if is_read_only and source.requires_grad and source.own_grad and source.dtype == layer.features[0].dtype:
            source.own_grad = False
            layer.fused.pass_grad += (source,)


def _fuse_relu(relu: Layer, below: Layer, reader: Layer | None) -> None:
    """Make the layer below a ReLU compute the ReLU, and ``reader`` or the layer below the ReLU's gradient.

    ``reader`` is the layer that reads the ReLU.
    """
    source, output = relu.sources[0], relu.features[0]
    source.overwritable = output.own_data = output.own_grad = False
    below.fused.relu = True
    if reader is not None and "relu_grad" in reader.speed.fuses and not reader.fused.idle:
        reader.fused.relu_grad = True
    else:
        below.fused.masks_output = True
    relu.fused.idle, relu.fused.joins = ("forward", "backward"), ((output, source, "data"), (output, source, "grad"))


def _fuse_sum(add: Add, first: Feature, last: Feature, owner: Layer) -> None:
    """Make the layer of an Add's last source compute the sum, in memory that it shares with the Add."""
    if "add" in owner.speed.fuses and first.dtype == last.dtype:
        owner.fused.add = first
        add.features[0].own_data = False
        add.fused.idle, add.fused.joins = ("forward",), ((add.features[0], last, "data"),)


def _fuse_sum_of_gradients(split: Split, wanted: Sequence[Feature], readers: Mapping[Feature, Layer]) -> None:
    """Make one of two readers of a Split add both gradients: the reader that runs backward last."""
    if len(wanted) == 2 and wanted[0].own_grad and "add_grad" in readers[wanted[0]].speed.fuses:
        readers[wanted[0]].fused.add_grad = wanted[1]
        wanted[0].own_grad = False
        split.fused.idle, split.fused.joins = ("backward",), ((wanted[0], split.sources[0], "grad"),)
