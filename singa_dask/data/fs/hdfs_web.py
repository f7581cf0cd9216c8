"""What fsspec's filesystem on WebHDFS lacks: files in the root, renames that replace a file, and timeouts."""

from __future__ import annotations

import errno
import functools
import posixpath
from typing import Any

from singa_dask.data.fs.hdfs_calls import with_errno

__all__ = ["parent", "rename", "set_timeout"]

# seconds to connect, and without data
TIMEOUT_S = (10.0, 60.0)


def is_web(filesystem: Any) -> bool:
    """Return whether a filesystem is fsspec's on WebHDFS. Its module cannot be imported without requests."""
    return "webhdfs" in filesystem.protocol


def set_timeout(filesystem: Any) -> None:
    """Let requests of a filesystem on WebHDFS end after `TIMEOUT_S`; others are left as they are."""
    if is_web(filesystem) and not isinstance(filesystem.session.request, functools.partial):
        filesystem.session.request = functools.partial(filesystem.session.request, timeout=TIMEOUT_S)


def parent(filesystem: Any, path: str) -> str:
    """Return the directory of a file. For fsspec's WebHDFS that of a file in / is empty, which makes a wrong URL."""
    return posixpath.dirname(path) if is_web(filesystem) else str(filesystem._parent(path))


def rename(filesystem: Any, source: str, target: str) -> None:
    """Rename a file; one at the target is replaced, atomically where the filesystem can.

    fsspec requests WebHDFS's plain rename, which does nothing if the target exists, and ignores its answer.

    Raises
    ------
    OSError
        WebHDFS refused to rename.
    """
    if not is_web(filesystem):
        filesystem.mv(source, target)
        return
    try:
        filesystem._call("RENAME", method="put", path=source, destination=target, renameoptions="OVERWRITE")
    except (RuntimeError, ValueError) as error:
        raise with_errno(OSError, errno.EIO, f"{target}: cannot be replaced by a rename: {error}") from error
