"""Layers, each with its block of the job file, one file a family.

A new layer is a class in any file of this directory: all of them are imported.
"""

from __future__ import annotations

from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.feature import Feature, Raw, Records
from singa_dask.layers.input import StoreInput
from singa_dask.layers.input_layer import InputLayer
from singa_dask.layers.param import Param
from singa_dask.layers.rbm import RBMHid
from singa_dask.layers.records import StoreConf
from singa_dask.layers.site import Context, Shard, Site, Span
from singa_dask.layers.traits import Connection, Traits
from singa_dask.registry import import_members

LAYERS.base = Layer

__all__ = [
    "LAYERS",
    "Connection",
    "Context",
    "Feature",
    "InputLayer",
    "Layer",
    "Param",
    "RBMHid",
    "Raw",
    "Records",
    "Shard",
    "Site",
    "Span",
    "StoreConf",
    "StoreInput",
    "Traits",
]

import_members(__name__)
