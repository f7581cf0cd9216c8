"""Stores: records at a URL as blocks of arrays, one file a format.

A new store is a file in this directory, and its name below: the file is imported when the format is asked for.

What all stores share
    `store`: the base class and the registry. `range_store`: blocks that are ranges of files. `blocks`: how many records
    make one. `rechunker`: records for writers. `split`: train and test parts. `sharded_store`: several files as one.
From a URL to a store
    `opening`: opens stores. `detection`: finds the format. `shards`: names of sets of files. `hugging_face`, `lakes`:
    directories that others write. `manifest`, `manifest_writer`: descriptions of stores.
Labels
    `class_names`: their names. `label_match`: labels of one store as those of another.
Arrays
    `column`: base of `idx`, `cifar`, `npy` and `npz`. `array_store`: base of `hdf5` and `zarr`.
Arrow
    `arrow` and `parquet`, with `arrow_columns` for both. `row_groups`: those of a Parquet file. `columnar`: Feather and
    ORC, read as Parquet.
Messages
    `kvfile`, `lmdb`, `tfrecord`.
Images
    `image`: folders and lists. `tar`: webdataset. `image_decoding`: pixels.
Tables
    `table`: columns by name, of the files in `table_files`. `text`: columns by place, the label first. `jsonl`: a
    column of arrays. `table_part`: a file of a table; its classes are in `table_csv` and `table_lines`, with
    `csv_records`, `table_json`, with `json_text`, `table_parquet` and `table_whole`. `open_parts`: files that stay
    open.
    `table_index`: what was learned of a table.
Texts
    `lines`: bytes. `vocabulary`: words.
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
