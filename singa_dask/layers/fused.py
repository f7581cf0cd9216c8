"""Fused: which work of its neighbours a layer does in its own kernels."""

from __future__ import annotations

from dataclasses import dataclass

from singa_dask.layers.feature import Feature


@dataclass
class Fused:
    """Which work of its neighbours a layer does. `singa_dask.net.fuse` sets it, as `Speed.fuses` permits.

    Attributes
    ----------
    relu : bool
        "relu": apply a ReLU to output 0.
    masks_output : bool
        "relu" too: set the gradient of output 0 to 0 where the output is 0, before using it.
    masks_source : bool
        "relu_grad": set the gradient of source 0 to 0 where the source is 0.
    added : Feature or None
        "add": a feature to add to output 0.
    added_grad : Feature or None
        "add_grad": a feature whose gradient is added to the gradient of source 0.
    shared : tuple of Feature
        "pass_grad": sources whose ``grad`` is the same array as that of output 0.
    idle : tuple of str
        Methods of this layer that do nothing, as a neighbour does their work.
    """

    relu: bool = False
    masks_output: bool = False
    masks_source: bool = False
    added: Feature | None = None
    added_grad: Feature | None = None
    shared: tuple[Feature, ...] = ()
    idle: tuple[str, ...] = ()
