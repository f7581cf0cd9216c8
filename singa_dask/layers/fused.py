"""Fused: what an instance of a layer computes for its neighbours, in its own kernels."""

from __future__ import annotations

from dataclasses import dataclass

from singa_dask.layers.feature import Feature


@dataclass
class Fused:
    """What an instance of a layer computes for its neighbours; `singa_dask.net.fuse` decides, by `Speed.fuses`.

    Attributes
    ----------
    relu : bool
        "relu": output 0 is to be the ReLU of what the layer computes.
    masks_output : bool
        "relu" too: the gradient of output 0 is still to be set to 0 where the output is.
    masks_source : bool
        "relu_grad": the gradient of source 0 is to be 0 where the source is.
    added : Feature or None
        "add": what is to be added to output 0.
    added_grad : Feature or None
        "add_grad": the feature whose gradient is to be added to that of source 0.
    shared : tuple of Feature
        "pass_grad": sources whose ``grad`` is that of output 0, the same array.
    idle : tuple of str
        Verbs of the layer that do nothing, as its neighbours do their work.
    """

    relu: bool = False
    masks_output: bool = False
    masks_source: bool = False
    added: Feature | None = None
    added_grad: Feature | None = None
    shared: tuple[Feature, ...] = ()
    idle: tuple[str, ...] = ()
