"""Records, from a URL to the batch of one worker.

URL -> fs -> store -> blocks -> order (which records make step t) -> loader (prefetched batches).
"""

from __future__ import annotations

from singa_dask.data import (
    arrow_store,
    cifar_store,
    fs,
    idx_store,
    image_store,
    kvfile_store,
    lmdb_store,
    npz_store,
    parquet_store,
    shards,
    tar_store,
    text_store,
    tfrecord_store,
)
from singa_dask.data.convert import convert, parse_split
from singa_dask.data.kvfile import KVFile, KVFileWriter
from singa_dask.data.loader import Batch, Loader
from singa_dask.data.order import Order
from singa_dask.data.record import encode_record
from singa_dask.data.shuffle import permutation, random_skip
from singa_dask.data.store import STORES, Arrays, Block, Field, Store, detect, open_store

__all__ = [
    "STORES",
    "Arrays",
    "Batch",
    "Block",
    "Field",
    "KVFile",
    "KVFileWriter",
    "Loader",
    "Order",
    "Store",
    "arrow_store",
    "cifar_store",
    "convert",
    "detect",
    "encode_record",
    "fs",
    "idx_store",
    "image_store",
    "kvfile_store",
    "lmdb_store",
    "npz_store",
    "open_store",
    "parquet_store",
    "parse_split",
    "permutation",
    "random_skip",
    "shards",
    "tar_store",
    "text_store",
    "tfrecord_store",
]
