"""Records, from a URL to the batches of a worker.

Each room imports only rooms to its right: convert > loading > order > stores > codecs > fs > types.

Names are imported on first use, so that importing this package loads no filesystem, codec or store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.data.codecs.record import encode_record
    from singa_dask.data.convert import parse_split
    from singa_dask.data.loading import (
        BadPolicy,
        Batch,
        HostSpan,
        Loader,
        Survey,
        assign_by_host,
        host_names,
        same_host,
    )
    from singa_dask.data.order import Sampler, permutation, random_skip
    from singa_dask.data.stores import STORES, Store, detect, open_store, write_manifest
    from singa_dask.data.stores.kvfile import KVFile, KVFileWriter
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
    "assign_by_host",
    "detect",
    "encode_record",
    "host_names",
    "open_store",
    "parse_split",
    "permutation",
    "random_skip",
    "same_host",
    "write_manifest",
]

__getattr__ = lazy_names(
    __name__,
    {
        "codecs.record": ["encode_record"],
        "convert": ["parse_split"],
        "loading": ["BadPolicy", "Batch", "HostSpan", "Loader", "Survey", "assign_by_host", "host_names", "same_host"],
        "order": ["Sampler", "permutation", "random_skip"],
        "stores": ["STORES", "Store", "detect", "open_store", "write_manifest"],
        "stores.kvfile": ["KVFile", "KVFileWriter"],
        "types": ["Arrays", "Block", "Field"],
    },
)
