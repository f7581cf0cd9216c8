"""Layers, each with its block of the job file, one file a family.

A new layer is a class in any file of this directory: all of them are imported.
"""

from singa_dask.layers.base import LAYERS, Context, Layer, LayerSite, ShardIndex
from singa_dask.layers.feature import Connection, Feature, Param, Raw, RecordIds, Span, Traits
from singa_dask.layers.input import InputLayer, StoreInput
from singa_dask.layers.rbm import RBMHid
from singa_dask.layers.records import StoreConf
from singa_dask.registry import import_members

LAYERS.base = Layer

__all__ = [
    "LAYERS",
    "Connection",
    "Context",
    "Feature",
    "InputLayer",
    "Layer",
    "LayerSite",
    "Param",
    "RBMHid",
    "Raw",
    "RecordIds",
    "ShardIndex",
    "Span",
    "StoreConf",
    "StoreInput",
    "Traits",
]

import_members(__name__)
