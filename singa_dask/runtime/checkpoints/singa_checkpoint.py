"""Read checkpoints of SINGA, and join the files of all workers of a group.

In SINGA, worker ``i`` writes the params of its partition to ``<workspace>/checkpoint/step<n>-worker<i>``, or an empty
file if it has none. All workers use the same name for their shards of a param.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from singa_dask import fs
from singa_dask.data.codecs.singa_blobs import StoredParam, plain_param_name, read_blobprotos
from singa_dask.errors import CheckpointError

WORKER_FILE = re.compile(r"step(\d+)-worker(\d+)(?:\.bin)?")


class Stored(NamedTuple):
    """Stored values of a param, and their version.

    Attributes
    ----------
    values : ndarray
        The param, or one shard of it.
    version : int
        Number of updates applied to the values.
    parts : tuple of ndarray
        The values that each worker of SINGA has saved under this name, in the order of workers; ``values`` is one of
        them. Empty for other checkpoints.
    """

    values: np.ndarray
    version: int
    parts: tuple[np.ndarray, ...] = ()

    def fit(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the values in the given shape, joined from the parts if needed; None if they do not fit."""
        if self.values.size == math.prod(shape):
            return self.values.reshape(shape)
        extents = [part.shape for part in self.parts]
        for axis in range(len(shape)):
            rest = (*shape[:axis], *shape[axis + 1 :])
            alike = all(len(each) == len(shape) and (*each[:axis], *each[axis + 1 :]) == rest for each in extents)
            if alike and sum(each[axis] for each in extents) == shape[axis]:
                return np.concatenate(self.parts, axis=axis)
        return None

    def show_shape(self) -> str:
        """Describe the shape, or the shapes of the parts, for a message."""
        if len(self.parts) > 1:
            return f"parts of shapes {', '.join(str(part.shape) for part in self.parts)}"
        return f"shape {self.values.shape}"


def parse(url: str) -> tuple[str, int] | None:
    """Return the directory and the step in the path of a SINGA worker's file; None for other paths."""
    directory, _, name = url.rpartition("/")
    match = WORKER_FILE.fullmatch(name)
    return (directory or ".", int(match[1])) if match else None


def steps(directory: str) -> dict[int, list[str]]:
    """Return the URLs of the worker files in a directory by step, in the order of workers."""
    files: dict[int, list[tuple[int, str]]] = {}
    for name in fs.ls(directory) if fs.is_dir(directory) else ():
        if match := WORKER_FILE.fullmatch(name):
            files.setdefault(int(match[1]), []).append((int(match[2]), fs.join(directory, name)))
    return {step: [url for _, url in sorted(of_workers)] for step, of_workers in files.items()}


def newest_files(url: str) -> list[str]:
    """Return the files of the last step in a workspace or checkpoint directory of SINGA, if any."""
    for directory in (fs.join(url, "checkpoint"), url):
        if files := steps(directory):
            return files[max(files)]
    return []


def read(url: str) -> dict[str, Stored]:
    """Read a file of SINGA, and the files of the other workers for the same step in the same directory.

    The ``values`` of a param come from the file ``url`` if this file contains the param. ``parts`` has the values of
    all workers. Empty files are skipped.

    Raises
    ------
    CheckpointError
        A file is damaged or has another format, or all files are empty.
    """
    files = [url]
    if place := parse(url):
        files = steps(place[0]).get(place[1], files)
    names: dict[str, list[StoredParam]] = {}
    own: dict[str, StoredParam] = {}
    for file in files:
        content = fs.read_bytes(file)
        for name, param in read_blobprotos(content, file).items() if content else ():
            plain = plain_param_name(name)
            names.setdefault(plain, []).append(param)
            if file.rpartition("/")[2] == url.rpartition("/")[2]:
                own[plain] = param
    if not names:
        raise CheckpointError(f"{url}: no params: this file and the files of all other workers of SINGA are empty.")
    return {
        name: Stored((first := own.get(name, parts[0])).values, first.version, tuple(part.values for part in parts))
        for name, parts in names.items()
    }
