"""Read and write checkpoints: named arrays in safetensors files, plain values in a manifest.

A checkpoint is a directory ``checkpoint/step-<n>/`` with a file for each server and each worker. ``manifest.json`` is
written last; without it the checkpoint is incomplete. A snapshot has the same files, but in the memory of processes.
Only the functions that save (`Save`) and read a file differ.

- ``part-<i>-of-<k>.safetensors``: values and updater state of a server. Tensors are named by param and range, so any
  number of servers can read them.
- ``states-<group>-<worker>.safetensors``: arrays that the layers of a worker keep between batches, i.e. hidden states,
  Gibbs chains, and `Layer.state` of custom layers. The tensors are stored as bytes, because a state may have any dtype.
- ``manifest.json``: the list of these files and their tensors; the step, reading positions (cursors) and unreported
  metrics of each worker group; facts about the training data, e.g. class names; results of tests.

File names contain the incarnation of the job if it is not 0, so that a process of an old incarnation never replaces a
newer file. Files that the manifest does not name are ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load

from singa_dask import fs
from singa_dask.data.stores.training_knowledge import Learned
from singa_dask.errors import CheckpointError, DataError, LostUnitError
from singa_dask.fs.checksums import checksum_of
from singa_dask.runtime.checkpoints.manifest import (
    MANIFEST,
    decode_manifest,
    why_inconsistent,
)
from singa_dask.runtime.checkpoints.safetensors import tensor_chunks

AVERAGE = "average"
"""Name of the updater state that holds the moving average of a slice."""


# files on disk have a sha256; snapshots in memory have the faster crc32c
CHECKSUMS: dict[str, Callable[[bytes], str | int]] = {
    "sha256": lambda content: hashlib.sha256(content).hexdigest(),
    "crc32c": checksum_of,
}


class SavedTensor(NamedTuple):
    """Values or updater state of one slice.

    Attributes
    ----------
    param : int
        Index of the param in the list of the net's unique params.
    start : int
        Index in the flattened param at which the slice begins.
    what : str
        ``"value"`` for values, or the name of an updater state.
    version : int
        Number of updates applied to the slice.
    array : ndarray, 1-D
        The values or the updater state.
    applied : mapping of int to int
        For each worker group, the newest step whose gradient was applied to the values. Empty for an updater state, and
        in a job with one worker group.
    """

    param: int
    start: int
    what: str
    version: int
    array: np.ndarray
    applied: Mapping[int, int] = MappingProxyType({})


def step_url(directory: str, step: int) -> str:
    """Return the URL of the checkpoint of ``step`` in a checkpoint directory."""
    return fs.join(directory, f"step-{step}")


def part_name(index: int, n_parts: int) -> str:
    """Return the file name of a server's part, e.g. ``part-0-of-2.safetensors``."""
    return f"part-{index}-of-{n_parts}.safetensors"


Save = Callable[[str, Sequence[bytes | memoryview]], dict[str, Any]]
"""A function of (file, chunks) that saves a file of a checkpoint or snapshot, and returns its description; see
`write_file`."""


def write_part(
    save: Save, index: int, n_parts: int, tensors: Sequence[SavedTensor], names: Sequence[str]
) -> dict[str, Any]:
    """Save the part of one server; return its description for the manifest.

    ``index`` is the server's index among ``n_parts`` servers; ``names`` has the name of each param by index.
    """
    arrays, described = {}, []
    for tensor in tensors:
        param = names[tensor.param]
        key = f"{param}/{tensor.what}/{tensor.start}"
        arrays[key] = tensor.array
        stop = tensor.start + tensor.array.size
        facts = {"key": key, "param": param, "what": tensor.what, "start": tensor.start, "stop": stop}
        applied = {"applied": {str(group): step for group, step in tensor.applied.items()}} if tensor.applied else {}
        described.append({**facts, "version": tensor.version, **applied})
    return {**save(part_name(index, n_parts), tensor_chunks(arrays)), "tensors": described}


@contextmanager
def _recording_unreadable(checkpoint: str) -> Iterator[None]:
    """Set the attribute ``unreadable`` of errors in this context to the URL of the checkpoint."""
    try:
        yield
    except (CheckpointError, LostUnitError) as error:
        error.unreadable = checkpoint
        raise


class Checkpoint:
    """Reads a checkpoint from files, or through `from_manifest` from anywhere else.

    Parameters
    ----------
    url : str
        URL of the checkpoint of one step; see `lookup.find`.

    Attributes
    ----------
    url : str
        URL or name of the checkpoint, for messages.
    manifest : dict
        Content of the manifest.
    step : int
        Number of steps that the job had made.
    groups : dict of int to dict
        For each worker group, its ``step`` and ``cursors`` (reading positions).
    assignments : dict of str to list of int
        For each input layer whose order the job had chosen: the order in which blocks were assigned to workers.
    learned : Learned
        Facts about the job's training data, e.g. class names.
    """

    def __init__(self, url: str) -> None:
        file = fs.join(url, MANIFEST)
        with _recording_unreadable(url):
            try:
                content = fs.read_bytes(file)
            except DataError as error:
                raise CheckpointError(f"{file}: cannot be read: {error}") from error
            manifest = decode_manifest(file, content)
            try:
                self._open(manifest, lambda part: fs.read_bytes(fs.join(url, part)), url)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise CheckpointError(f"{file}: damaged: {error!r}.") from error

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], read: Callable[[str], bytes | None], name: str) -> Checkpoint:
        """Return a checkpoint that calls a function to read its files.

        Parameters
        ----------
        manifest : mapping
            Content of the manifest. The content may come from a message, with tuples instead of lists.
        read : callable
            Takes the name of a file; returns its content, or None if the file is missing.
        name : str
            Name of the checkpoint in messages.
        """
        checkpoint = cls.__new__(cls)
        checkpoint._open(json.loads(json.dumps(manifest)), read, name)
        return checkpoint

    def _open(self, manifest: Mapping[str, Any], read: Callable[[str], bytes | None], url: str) -> None:
        self.url = url
        self._read_file = read
        self.manifest = dict(manifest)
        self.step = int(self.manifest["step"])
        self.groups = {int(group): facts for group, facts in self.manifest["groups"].items()}
        self.assignments: dict[str, list[int]] = self.manifest.get("deals", {})
        self.learned = Learned.of(self.manifest)
        self._files = {each["file"]: each for key in ("parts", "states") for each in self.manifest.get(key, ())}
        self._contents: dict[str, dict[str, np.ndarray]] = {}
        # (key of a param or shard, what) -> descriptions of its tensors, including their file
        self._tensors: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for part in self.manifest["parts"]:
            for tensor in part["tensors"]:
                described = {name: tensor[name] for name in ("key", "start", "stop", "version")}
                described |= {"file": part["file"], "applied": tensor.get("applied", {})}
                self._tensors.setdefault((tensor["param"], tensor["what"]), []).append(described)

    def version(self, param: str) -> int:
        """Return the number of updates applied to a param."""
        keys = self._parts_of(param) or [param]
        return int(min(tensor["version"] for key in keys for tensor in self._tensors[key, "value"]))

    def applied(self, key: str, start: int, stop: int) -> dict[int, int]:
        """Return, for each worker group, the newest step whose gradient was applied to a range of values.

        ``key`` is the name of a param or shard. The range is [start, stop) of its flattened values.
        """
        tensors = [
            each for each in self._tensors.get((key, "value"), ()) if each["start"] < stop and start < each["stop"]
        ]
        groups = set.intersection(*(set(tensor["applied"]) for tensor in tensors)) if tensors else set()
        return {int(group): min(tensor["applied"][group] for tensor in tensors) for group in groups}

    def _parts_of(self, param: str) -> dict[str, tuple[int, int, int]]:
        """Return {key: (axis, start, stop)} for the stored shards of a param; empty without shards."""
        self.shape(param)
        return {key: tuple(extent) for key, extent in self.manifest["params"][param].get("parts", {}).items()}

    def whole(self, param: str, what: str) -> np.ndarray | None:
        """Return the values or an updater state of a whole param, in the param's shape.

        ``what`` is ``"value"`` or the name of an updater state. If the checkpoint lacks this array, the result is None.
        """
        shape = self.shape(param)
        parts = self._parts_of(param)
        if not parts:
            values = self._read(param, param, what, 0, math.prod(shape))
            return None if values is None else values.reshape(shape)
        out = None
        for key, (axis, start, stop) in parts.items():
            part_shape = (*shape[:axis], stop - start, *shape[axis + 1 :])
            values = self._read(key, param, what, 0, math.prod(part_shape))
            if values is None:
                return None
            out = np.empty(shape, values.dtype) if out is None else out
            out[(slice(None),) * axis + (slice(start, stop),)] = values.reshape(part_shape)
        return out

    @property
    def files(self) -> Collection[str]:
        """Names of the files with params and states, relative to the directory of the checkpoint."""
        return self._files.keys()

    @property
    def has_averages(self) -> bool:
        """Whether the checkpoint has moving averages of params."""
        return any(what == AVERAGE for _, what in self._tensors)

    def values(self, param: str, averaged: bool = False) -> np.ndarray:
        """Return the values of a whole param in its shape.

        With ``averaged``, return the moving averages of the values if the checkpoint has them.

        Raises
        ------
        CheckpointError
            The checkpoint lacks the param.
        """
        average = self.whole(param, AVERAGE) if averaged else None
        values = self.whole(param, "value") if average is None else average
        if values is None:
            raise CheckpointError(f"{self.url}: the checkpoint has no values of param {param!r}.")
        return values

    def shape(self, param: str) -> tuple[int, ...]:
        """Return the shape of a param; raise `CheckpointError` if the checkpoint lacks the param."""
        known = self.manifest["params"]
        if param not in known:
            raise CheckpointError(f"{self.url}: there is no param {param!r}. Known: {', '.join(sorted(known))}.")
        return tuple(known[param]["shape"])

    def params(self) -> list[str]:
        """Return the names of all params."""
        return list(self.manifest["params"])

    def read(self, param: str, what: str, start: int, stop: int) -> np.ndarray | None:
        """Return the range [start, stop) of the values or an updater state of a flattened param.

        ``what`` is ``"value"`` or the name of an updater state. If the checkpoint lacks this array, the result is None.
        """
        if not self._parts_of(param):
            return self._read(param, param, what, start, stop)
        whole = self.whole(param, what)
        return None if whole is None else whole.reshape(-1)[start:stop]

    def _read(self, key: str, param: str, what: str, start: int, stop: int) -> np.ndarray | None:
        """Return a range of the values that are stored under ``key``; see `read`."""
        if (key, what) not in self._tensors:
            return None
        out, n_read = np.empty(stop - start, np.dtype(self.manifest["params"][param]["dtype"])), 0
        for tensor in self._tensors[key, what]:
            first, last = max(start, tensor["start"]), min(stop, tensor["stop"])
            if first < last:
                values = self.tensors(tensor["file"])[tensor["key"]]
                out[first - start : last - start] = values[first - tensor["start"] : last - tensor["start"]]
                n_read += last - first
        if n_read != stop - start:
            raise CheckpointError(f"{self.url}: {param}/{what} has {n_read} of {stop - start} values.")
        return out

    def tensors(self, file: str) -> dict[str, np.ndarray]:
        """Return the tensors of a file by key; raise `CheckpointError` if it is damaged or cannot be read."""
        if file not in self._contents:
            with _recording_unreadable(self.url):
                self._contents[file] = load(self._content(file))
        return self._contents[file]

    def release(self) -> None:
        """Free the memory of the files read so far. Later calls read the files again."""
        self._contents.clear()

    def verify(self) -> None:
        """Check that all files are readable and undamaged, and that the checkpoint is consistent.

        Raises
        ------
        CheckpointError
            A file is damaged or cannot be read, or the checkpoint is inconsistent; see `why_inconsistent`.
        """
        if self.manifest.get("cut") and (why := why_inconsistent(self.manifest["parts"], self.manifest["groups"])):
            raise CheckpointError(f"{self.url}: {why}")
        for file in self._files:
            self._content(file)

    def _content(self, file: str) -> bytes:
        """Return the bytes of a file.

        Raise `CheckpointError` if they do not match the checksum in the manifest.
        """
        url, expected = fs.join(self.url, file), self._files[file]
        try:
            content = self._read_file(file)
        except DataError as error:
            raise CheckpointError(f"{url}: cannot be read: {error}") from error
        if content is None:
            raise CheckpointError(f"{url}: cannot be read: the file is missing.")
        kinds = [kind for kind in CHECKSUMS if kind in expected]
        if not kinds or any(expected[kind] != CHECKSUMS[kind](content) for kind in kinds):
            raise CheckpointError(
                f"{url}: damaged: its checksum differs from the manifest ({len(content)} bytes of {expected['bytes']})."
            )
        return content
