"""Files at URLs, local or remote. This is the only room that uses fsspec.

The functions of `files` are re-exported here, and are called as ``fs.open(...)``.
"""

from __future__ import annotations

from singa_dask.data.fs.files import (
    CACHE,
    Options,
    absolute,
    create,
    entries,
    errors_name,
    exists,
    get_block_locations,
    has_locations,
    is_dir,
    join,
    local_path,
    look,
    ls,
    makedirs,
    move,
    open,
    read_bytes,
    remove_tree,
    resolve,
    size,
    staged,
    write_atomic,
)
from singa_dask.data.fs.hdfs_connection import patiently

__all__ = [
    "CACHE",
    "Options",
    "absolute",
    "create",
    "entries",
    "errors_name",
    "exists",
    "get_block_locations",
    "has_locations",
    "is_dir",
    "join",
    "local_path",
    "look",
    "ls",
    "makedirs",
    "move",
    "open",
    "patiently",
    "read_bytes",
    "remove_tree",
    "resolve",
    "size",
    "staged",
    "write_atomic",
]
