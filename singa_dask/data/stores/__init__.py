"""Stores: records at a URL as blocks of arrays, with one file for each format.

A new store is a file in a folder of formats, and its name below. The file is imported when the format is used.

What all stores share
    `store`: the base class and the registry. `range_store`: blocks that are ranges of files. `blocks`: block sizes.
    `rechunker`: records for writers. `sharded_store`: several files as one. `split`: train and test parts.
    `view_store`: the base class of these two.
From a URL to a store
    `opening`: opens stores. `detection`: finds the format. `shards`: names of sets of files. `hugging_face`, `lakes`:
    directories that others write. `manifest`, `manifest_writer`: descriptions of stores.
Labels
    `class_names`: their names. `label_match`: labels of one store as those of another.
Formats
    A folder for each kind: `tables`, `arrays`, `arrow`, `images`, `texts`, `messages`.
"""

from singa_dask.data.stores.detection import detect
from singa_dask.data.stores.manifest_writer import write_manifest
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.store import STORES, Store

__all__ = ["STORES", "Store", "detect", "open_store", "write_manifest"]

STORES.add_modules(
    __name__,
    {
        "arrays.cifar": "cifar",
        "arrays.hdf5": "hdf5",
        "arrays.idx": "idx",
        "arrays.npy": "npy",
        "arrays.npz": "npz",
        "arrays.zarr": "zarr",
        "arrow.arrow": "arrow",
        "arrow.parquet": "image-parquet parquet",
        "images.image": "image-folder image-list",
        "messages.kvfile": "kvfile",
        "messages.lmdb": "lmdb",
        "messages.tar": "webdataset",
        "messages.tfrecord": "tfrecord",
        "sharded_store": "shards",
        "tables.jsonl": "jsonl",
        "tables.table": "table",
        "tables.text": "csv textfile",
        "texts.lines": "lines",
    },
)
