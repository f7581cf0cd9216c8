"""Stores: records at a URL as blocks of arrays, with one file for each format.

To add a store, write a file in a folder of formats and add its name to the list below. The file is imported when the
format is first used.

What all stores share
    `store`: the base class and the registry. `range_store`: stores whose blocks are ranges of files. `rechunker`:
    groups records for writers. `sharded_store`: reads several files as one store. `split_store`: reads the part to
    train on, or to test on. `view_store`: the base class of `sharded_store` and `split_store`.
From a URL to a store
    `opening`: opens stores. `detection`: finds the format. `shards`: names of sets of files. `hugging_face`, `lakes`:
    directories that other programs write. `manifest`, `manifest_writer`: descriptions of stores.
Labels and training data
    `label_match`: converts the labels of a store to the labels of the training data.
    `training_knowledge`: classes, columns and scalings of the training data.
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
        "tables.jsonl_store": "jsonl",
        "tables.table_store": "table",
        "tables.text_store": "csv textfile",
        "texts.lines": "lines",
    },
)
