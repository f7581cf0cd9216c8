"""Message: what one unit tells another; Address: who it is.

A message on the wire is a msgpack header and raw array frames. Nothing in it is ever pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from singa_dask.errors import CommError

__all__ = ["Address", "Message"]


class Address(NamedTuple):
    """One unit of a job.

    Attributes
    ----------
    kind : str
        ``"worker"``, ``"server"`` or ``"stub"``.
    group : int
        Worker or server group; the process, for a stub.
    id : int
        Place in the group; 0 for a stub.
    """

    kind: str
    group: int
    id: int

    @classmethod
    def worker(cls, group: int, id: int) -> Address:
        """Return the address of a worker."""
        return cls("worker", group, id)

    @classmethod
    def server(cls, group: int, id: int) -> Address:
        """Return the address of a server."""
        return cls("server", group, id)

    @classmethod
    def stub(cls, process: int) -> Address:
        """Return the address of the stub of a process."""
        return cls("stub", process, 0)

    def __str__(self) -> str:
        return f"stub-{self.group}" if self.kind == "stub" else f"{self.kind}-{self.group}-{self.id}"


@dataclass(frozen=True)
class Message:
    """One thing said by one unit to another.

    Attributes
    ----------
    kind : str
        put, get, update, sync and their answers ``r-...``; hello, start, leave, stop, stop-at, snapshot, part, abort.
    src, dst : Address
    job : str
        Id of the job; a stub refuses the messages of another.
    generation : int
        Start of the job that the message belongs to; one of an old generation is dropped.
    param, slice : int
        Index of the logical param and of its piece, -1 where the message is about neither.
    version : int
        Updates that the values have seen.
    step : int
        Training step of the sender.
    info : mapping
        Small values that msgpack can write.
    arrays : tuple of ndarray
        Contiguous arrays. Within a process they are the sender's own memory.
    """

    kind: str
    src: Address
    dst: Address
    job: str = ""
    generation: int = 0
    param: int = -1
    slice: int = -1
    version: int = -1
    step: int = -1
    info: Mapping[str, Any] = field(default_factory=dict)
    arrays: tuple[np.ndarray, ...] = ()

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)

    def header(self) -> dict[str, Any]:
        """Return everything but the bytes of the arrays, as msgpack can write it."""
        return {
            "kind": self.kind,
            "src": list(self.src),
            "dst": list(self.dst),
            "job": self.job,
            "generation": self.generation,
            "param": self.param,
            "slice": self.slice,
            "version": self.version,
            "step": self.step,
            "info": dict(self.info),
            "arrays": [[array.dtype.str, list(array.shape)] for array in self.arrays],
        }

    @classmethod
    def from_frames(cls, header: Mapping[str, Any], frames: Sequence[Any]) -> Message:
        """Build a message from what `header` returned and the bytes of its arrays.

        Raises
        ------
        CommError
            The header is not one of ours, or the frames do not fit it.
        """
        try:
            fields = dict(header)
            described = fields.pop("arrays")
            arrays = tuple(_array(frame, *entry) for frame, entry in zip(frames, described, strict=True))
            src, dst = Address(*fields.pop("src")), Address(*fields.pop("dst"))
            return cls(src=src, dst=dst, arrays=arrays, **fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CommError(f"a message that is not of this protocol: {error}") from error


def _array(frame: Any, dtype: str, shape: Sequence[int]) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ValueError("arrays of objects do not travel")
    return np.frombuffer(frame, kind).reshape(shape)
