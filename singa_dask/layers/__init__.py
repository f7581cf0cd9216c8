"""Layers: one file a family; importing this room fills `LAYERS` with all of them."""

from __future__ import annotations

from singa_dask.layers import (
    bridge,
    connection,
    conv,
    embedding,
    image,
    input,
    loss,
    neuron,
    norm,
    output,
    rbm,
    recurrent,
    text,
)
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.context import Context
from singa_dask.layers.feature import Feature, Raw, Records
from singa_dask.layers.input import StoreInput
from singa_dask.layers.input_layer import InputLayer
from singa_dask.layers.param import Gate, Param
from singa_dask.layers.rbm import RBMHid
from singa_dask.layers.site import Shard, Site, Span
from singa_dask.layers.traits import Connection, Traits

LAYERS.base = Layer

__all__ = [
    "LAYERS",
    "Connection",
    "Context",
    "Feature",
    "Gate",
    "InputLayer",
    "Layer",
    "Param",
    "RBMHid",
    "Raw",
    "Records",
    "Shard",
    "Site",
    "Span",
    "StoreInput",
    "Traits",
    "bridge",
    "connection",
    "conv",
    "embedding",
    "image",
    "input",
    "loss",
    "neuron",
    "norm",
    "output",
    "rbm",
    "recurrent",
    "text",
]
