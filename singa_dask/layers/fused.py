"""Fused: work of neighbouring layers that a layer does in its own kernels."""

from __future__ import annotations

from dataclasses import dataclass

from singa_dask.layers.feature import Feature


@dataclass
class Fused:
    """The work of its neighbours that a layer does in its own kernels.

    `singa_dask.net.fuse` sets only the fields that the layer lists in `Speed.fuses`. If a layer lists "relu", the net
    may also set ``masks_output``.

    Attributes
    ----------
    relu : bool
        Apply a ReLU to output 0.
    masks_output : bool
        Before the gradient of output 0 is used, set it to 0 where the output is 0.
    relu_grad : bool
        Set the gradient of source 0 to 0 where the source is 0.
    add : Feature or None
        A feature to add to output 0.
    add_grad : Feature or None
        A feature whose gradient is added to the gradient of source 0.
    pass_grad : tuple of Feature
        Sources whose ``grad`` is the same array as the gradient of output 0.
    idle : tuple of {"forward", "backward"}
        Methods of this layer that the net does not call, because a neighbour does their work.
    joins : tuple of (Feature, Feature, str)
        For a layer with ``idle`` methods: (output, other feature, "data" or "grad"). The output uses this array of
        the other feature. The net does not call `Layer.attach` of such a layer.
    """

    relu: bool = False
    masks_output: bool = False
    relu_grad: bool = False
    add: Feature | None = None
    add_grad: Feature | None = None
    pass_grad: tuple[Feature, ...] = ()
    idle: tuple[str, ...] = ()
    joins: tuple[tuple[Feature, Feature, str], ...] = ()
