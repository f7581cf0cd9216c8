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
    lines_store,
    lmdb_store,
    npz_store,
    parquet_store,
    shards,
    tar_store,
    text_store,
    tfrecord_store,
)
from singa_dask.data.bad_records import BadPolicy
from singa_dask.data.convert import convert, parse_split
from singa_dask.data.kvfile import KVFile, KVFileWriter
from singa_dask.data.loader import Batch, Loader
from singa_dask.data.locality import Stretch, Survey, deal_by_host, host_names, same_host
from singa_dask.data.manifest import write_manifest
from singa_dask.data.order import Order
from singa_dask.data.ranges import with_cache
from singa_dask.data.record import encode_record
from singa_dask.data.shuffle import permutation, random_skip
from singa_dask.data.store import STORES, Arrays, Block, Field, Store, detect, open_store

__all__ = [
    "STORES",
    "Arrays",
    "BadPolicy",
    "Batch",
    "Block",
    "Field",
    "KVFile",
    "KVFileWriter",
    "Loader",
    "Order",
    "Store",
    "Stretch",
    "Survey",
    "arrow_store",
    "cifar_store",
    "convert",
    "deal_by_host",
    "detect",
    "encode_record",
    "fs",
    "host_names",
    "idx_store",
    "image_store",
    "kvfile_store",
    "lines_store",
    "lmdb_store",
    "npz_store",
    "open_store",
    "parquet_store",
    "parse_split",
    "permutation",
    "random_skip",
    "same_host",
    "shards",
    "tar_store",
    "text_store",
    "tfrecord_store",
    "with_cache",
    "write_manifest",
]
