"""Stores: records at a URL as blocks of arrays, one file per format. Importing this room registers all `STORES`."""

from __future__ import annotations

from singa_dask.data.stores import (
    arrow,
    cifar,
    idx,
    image,
    kvfile,
    lines,
    lmdb,
    npz,
    parquet,
    shards,
    tar,
    text,
    tfrecord,
)
from singa_dask.data.stores.manifest import write_manifest
from singa_dask.data.stores.opening import detect, open_store
from singa_dask.data.stores.store import STORES, Store

__all__ = [
    "STORES",
    "Store",
    "arrow",
    "cifar",
    "detect",
    "idx",
    "image",
    "kvfile",
    "lines",
    "lmdb",
    "npz",
    "open_store",
    "parquet",
    "shards",
    "tar",
    "text",
    "tfrecord",
    "write_manifest",
]
