"""Stores: records at a URL as blocks of arrays; a file has one format, or several that are read alike.

A new store is a file in this directory, and its name below: the file is imported when the format is asked for.
"""

from singa_dask.data.stores.detection import detect
from singa_dask.data.stores.manifest_writer import write_manifest
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.store import STORES, Store

__all__ = ["STORES", "Store", "detect", "open_store", "write_manifest"]

STORES.add_modules(
    __name__,
    {
        "arrow": "arrow",
        "cifar": "cifar",
        "hdf5": "hdf5",
        "idx": "idx",
        "image": "image-folder image-list",
        "jsonl": "jsonl",
        "kvfile": "kvfile",
        "lines": "lines",
        "lmdb": "lmdb",
        "npy": "npy",
        "npz": "npz",
        "parquet": "image-parquet parquet",
        "sharded_store": "shards",
        "table": "table",
        "tar": "webdataset",
        "text": "csv textfile",
        "tfrecord": "tfrecord",
        "zarr": "zarr",
    },
)
