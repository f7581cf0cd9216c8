"""Files at local and remote URLs: functions built on fsspec, called as ``fs.open(...)``.

The whole package accesses its files (records, checkpoints, run directories) through these functions. No other package
imports fsspec. For ``hdfs://`` URLs, this package has its own client.

URLs and whole files
    `urls`: the filesystem and path of a URL. `files`: looks at, opens, reads and deletes files and directories.
    `writing`: writes that replace or create a file completely. `client_errors`: converts errors of filesystems.
Ranged reads
    `open_bytes`: opens a file, gzipped or not. `sources`: the interface of an open file. `range_reader`: reads ranges
    of a local or remote file. `range_file`: a file object that reads ranges. `decompression`: gzip and size limits.
    `versions`: detects changed files. `mapped_file`: memory maps. `checksums`: CRC32C.
Read-ahead and cache
    `io_threads`, `daemon_threads`: threads that read. `retry`: repeated calls. `cache`, `cache_folder`: remote data on
    a local disk. `locks`: file locks. `mounts`: network filesystems, on which locks do not work.
HDFS
    `hdfs`: selects the client for a URL; the filesystem on hdfs-native.
Directories and names
    `host_files`, `part_folders`: files on the hosts of Dask workers. `patterns`: wildcards in URLs. `outputs`: checks
    of output files. `ownership`: decides which process may write to a directory.
"""

from singa_dask.fs.client_errors import errors_name
from singa_dask.fs.files import (
    entries,
    exists,
    get_block_locations,
    has_locations,
    is_dir,
    is_stream,
    look,
    ls,
    makedirs,
    no_file,
    open,
    question_beside,
    read_bytes,
    remove_tree,
    size,
)
from singa_dask.fs.urls import CACHE, MAX_DECOMPRESSED, Options, absolute, is_chain, join, local_path, resolve
from singa_dask.fs.writing import check_writable, create, move, staged, write_atomic

__all__ = [
    "CACHE",
    "MAX_DECOMPRESSED",
    "Options",
    "absolute",
    "check_writable",
    "create",
    "entries",
    "errors_name",
    "exists",
    "get_block_locations",
    "has_locations",
    "is_chain",
    "is_dir",
    "is_stream",
    "join",
    "local_path",
    "look",
    "ls",
    "makedirs",
    "move",
    "no_file",
    "open",
    "question_beside",
    "read_bytes",
    "remove_tree",
    "resolve",
    "size",
    "staged",
    "write_atomic",
]
