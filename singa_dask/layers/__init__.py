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
from singa_dask.layers.base import LAYERS, Connection, Context, Feature, Layer, Stored
from singa_dask.layers.input import StoreInput
from singa_dask.layers.param import Gate, Param
from singa_dask.layers.rbm import RBMHid

LAYERS.base = Layer

__all__ = [
    "LAYERS",
    "Connection",
    "Context",
    "Feature",
    "Gate",
    "Layer",
    "Param",
    "RBMHid",
    "StoreInput",
    "Stored",
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
