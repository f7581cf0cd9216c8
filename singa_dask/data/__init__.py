"""Records, from a URL to the batches of a worker.

Each room imports only rooms to its right: convert > loading > order > stores > codecs > fs > types.
"""

from __future__ import annotations

from singa_dask.data import fs
from singa_dask.data.codecs import KVFile, KVFileWriter, encode_record
from singa_dask.data.convert import convert, parse_split
from singa_dask.data.fs.range_reader import with_cache
from singa_dask.data.loading import (
    BadPolicy,
    Batch,
    HostSpan,
    Loader,
    Survey,
    deal_by_host,
    host_names,
    same_host,
)
from singa_dask.data.order import Sampler, permutation, random_skip
from singa_dask.data.stores import STORES, Store, detect, open_store, write_manifest
from singa_dask.data.types import Arrays, Block, Field

__all__ = [
    "STORES",
    "Arrays",
    "BadPolicy",
    "Batch",
    "Block",
    "Field",
    "HostSpan",
    "KVFile",
    "KVFileWriter",
    "Loader",
    "Sampler",
    "Store",
    "Survey",
    "convert",
    "deal_by_host",
    "detect",
    "encode_record",
    "fs",
    "host_names",
    "open_store",
    "parse_split",
    "permutation",
    "random_skip",
    "same_host",
    "with_cache",
    "write_manifest",
]
