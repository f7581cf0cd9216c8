"""Message: what one unit tells another; Address: who it is.

A message on the wire is a msgpack header and raw array frames. Nothing in it is ever pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from singa_dask.errors import CommError

__all__ = ["Address", "Message", "ReceiveBuffer", "pack"]


class Address(NamedTuple):
    """One unit of a job.

    Attributes
    ----------
    kind : str
        ``"worker"``, ``"server"`` or ``"stub"``.
    group : int
        Worker or server group; the process, for a stub.
    id : int
        Index in the group; 0 for a stub.
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
        put, get, update, sync and their answers ``r-...``; flush; pack; hello, start, leave, stop, stop-at,
        checkpoint-at, snapshot, part, measured, judged, end, abort.
    src, dst : Address
    job : str
        Id of the job; a stub refuses the messages of another.
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
    parts : tuple of Message
        Of a pack: messages to the same unit that travel together, in order.
    """

    kind: str
    src: Address
    dst: Address
    job: str = ""
    param: int = -1
    slice: int = -1
    version: int = -1
    step: int = -1
    info: Mapping[str, Any] = field(default_factory=dict)
    arrays: tuple[np.ndarray, ...] = ()
    parts: tuple[Message, ...] = ()

    @property
    def all_arrays(self) -> list[np.ndarray]:
        """Own arrays, then those of the parts."""
        return [*self.arrays, *(array for part in self.parts for array in part.all_arrays)]

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.all_arrays)

    def header(self) -> dict[str, Any]:
        """Return everything but the bytes of the arrays, as msgpack can write it."""
        return {
            "kind": self.kind,
            "src": list(self.src),
            "dst": list(self.dst),
            "job": self.job,
            "param": self.param,
            "slice": self.slice,
            "version": self.version,
            "step": self.step,
            "info": dict(self.info),
            "arrays": [[array.dtype.str, list(array.shape)] for array in self.arrays],
            "parts": [part.header() for part in self.parts],
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any], receive_buffer: ReceiveBuffer | None = None) -> Message:
        """Build a message from what `header` returned, with arrays whose bytes are still to come.

        Parameters
        ----------
        header : mapping
        receive_buffer : callable, optional
            (message without arrays) -> the memory that its one array is to be read into, or None for new memory.
            Memory of another size or type is not taken. Asked for each part of a pack.

        Raises
        ------
        CommError
            The header is not one of ours.
        """
        try:
            fields = dict(header)
            described = [(_plain_dtype(dtype), tuple(shape)) for dtype, shape in fields.pop("arrays")]
            src, dst = Address(*fields.pop("src")), Address(*fields.pop("dst"))
            parts = tuple(cls.from_header(part, receive_buffer) for part in fields.pop("parts"))
            bare = cls(src=src, dst=dst, parts=parts, **fields)
            if not described:
                return bare
            given = receive_buffer(bare) if receive_buffer and len(described) == 1 else None
            if given is not None and (given.dtype, given.shape) == described[0]:
                return replace(bare, arrays=(given,))
            return replace(bare, arrays=tuple(np.empty(shape, dtype) for dtype, shape in described))
        except (AttributeError, KeyError, MemoryError, RecursionError, TypeError, ValueError) as error:
            raise CommError(f"a message that is not of this protocol: {error}") from error


def pack(messages: Iterable[Message]) -> list[Message]:
    """Make one message of those to the same unit, so that each way there is gone once; a single one stays as it is."""
    by_unit: dict[Address, list[Message]] = {}
    for message in messages:
        by_unit.setdefault(message.dst, []).append(message)
    return [
        each[0] if len(each) == 1 else Message("pack", each[0].src, unit, parts=tuple(each))
        for unit, each in by_unit.items()
    ]


def _plain_dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.hasobject:
        raise ValueError("arrays of objects do not travel")
    return dtype


ReceiveBuffer = Callable[[Message], "np.ndarray | None"]
