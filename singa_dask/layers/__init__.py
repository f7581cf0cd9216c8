"""Layers: one file a family; importing this room fills `LAYERS` with all of them."""

from __future__ import annotations

from singa_dask.layers import connection, conv, image, input, loss, neuron, norm, output
from singa_dask.layers.base import LAYERS, Connection, Context, Feature, Layer, Stored
from singa_dask.layers.input import StoreInput
from singa_dask.layers.param import Gate, Param

__all__ = [
    "LAYERS",
    "Connection",
    "Context",
    "Feature",
    "Gate",
    "Layer",
    "Param",
    "StoreInput",
    "Stored",
    "connection",
    "conv",
    "image",
    "input",
    "loss",
    "neuron",
    "norm",
    "output",
]
