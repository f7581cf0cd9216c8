"""Fused: the work of its neighbours that a layer does in its own kernels."""

from __future__ import annotations

from dataclasses import dataclass

from singa_dask.layers.feature import Feature


@dataclass
class Fused:
    """The work of its neighbours that a layer does in its own kernels.

    `singa_dask.net.fuse` sets it, within the limits that `Speed.fuses` declares.

    Attributes
    ----------
    relu : bool
        Apply a ReLU to output 0. Needs "relu" in `Speed.fuses`.
    masks_output : bool
        Before using the gradient of output 0, set it to 0 where the output is 0. Needs "relu".
    masks_source : bool
        Set the gradient of source 0 to 0 where the source is 0. Needs "relu_grad".
    added : Feature or None
        A feature to add to output 0. Needs "add".
    added_grad : Feature or None
        A feature whose gradient is added to the gradient of source 0. Needs "add_grad".
    shared : tuple of Feature
        Sources whose ``grad`` is the same array as the gradient of output 0. Needs "pass_grad".
    idle : tuple of str
        Methods of this layer that do nothing, because a neighbour does their work.
    """

    relu: bool = False
    masks_output: bool = False
    masks_source: bool = False
    added: Feature | None = None
    added_grad: Feature | None = None
    shared: tuple[Feature, ...] = ()
    idle: tuple[str, ...] = ()
