"""Read checkpoints of SINGA, and join the files of all workers of a group.

Worker ``i`` of SINGA writes ``<workspace>/checkpoint/step<n>-worker<i>`` with the params of its partition, or an empty
file. Workers use the same param name for their shards of a param.
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
    """Values of a param, and their version.

    Attributes
    ----------
    values : ndarray
        The param, or a shard of it.
    version : int
        Number of updates that the values have had.
    parts : tuple of ndarray
        The values that all workers have saved under this name. ``values`` may be one of them.
    """

    values: np.ndarray
    version: int
    parts: tuple[np.ndarray, ...] = ()

    def fit(self, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the values in a shape, joined from the parts if needed; None if they do not fit."""
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
    """Return directory and step in the path of a SINGA worker's file; None for other paths."""
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
    """Return the files of the last step in a workspace or checkpoint directory of SINGA."""
    for directory in (fs.join(url, "checkpoint"), url):
        if files := steps(directory):
            return files[max(files)]
    return []


def read(url: str) -> dict[str, Stored]:
    """Read a file of SINGA, and the files of all other workers for the same step.

    The files are in the same directory. Values in the file itself take precedence; the values of all workers are
    returned as parts. Empty files are skipped. Raises a CheckpointError if a file is damaged or has another format, or
    if all files are empty.
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
        raise CheckpointError(f"{url}: no params: this file and those of the other workers of SINGA are empty.")
    return {
        name: Stored((first := own.get(name, parts[0])).values, first.version, tuple(part.values for part in parts))
        for name, parts in names.items()
    }
