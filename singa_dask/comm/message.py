"""Messages between units, and the addresses of units.

Between processes, a message is sent as a msgpack header, followed by the raw bytes of its arrays. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from singa_dask.errors import CommError


class Address(NamedTuple):
    """Address of a unit: a worker, a server or a stub.

    Attributes
    ----------
    kind : str
        ``"worker"``, ``"server"`` or ``"stub"``.
    group : int
        Worker group or server group; for a stub, the process.
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
    """A message from one unit to another.

    Attributes
    ----------
    kind : str
        Kind of the message. The answer to a message of kind ``x`` has the kind ``r-x``.

        - For params: put, get, update and sync; norm, from server to server; reduce and gather, which carry updates and
          their answers from stub to stub; flush; pack, which contains other messages.
        - At barriers: hello, start, ready, go, leave, stop.
        - For checkpoints: learned, taken, progress, arrived, settle, copy, part.
        - Between workers: bridge, stop-at, checkpoint-at, snapshot-at, report-at, measured, judged, end.
        - After a loss or a failure: replaced, failed, abort.
        - From a worker to itself: known, written, ask-again.
    src, dst : Address
        Sender and receiver.
    param, slice : int
        Index of the logical param, and of its slice; -1 if the message is not about one.
    version : int
        Number of updates applied to the values that the message is about.
    step : int
        Training step of the sender.
    info : mapping
        Small values that msgpack can serialise.
    arrays : tuple of ndarray
        Contiguous arrays. For a receiver in the same process, they are views of the sender's memory.
    parts : tuple of Message
        For a pack: the messages in it, in order, all to the same unit.
    """

    kind: str
    src: Address
    dst: Address
    param: int = -1
    slice: int = -1
    version: int = -1
    step: int = -1
    info: Mapping[str, Any] = field(default_factory=dict)
    arrays: tuple[np.ndarray, ...] = ()
    parts: tuple[Message, ...] = ()

    @property
    def all_arrays(self) -> list[np.ndarray]:
        """The arrays of the message, followed by the arrays of its parts."""
        return [*self.arrays, *(array for part in self.parts for array in part.all_arrays)]

    @property
    def n_bytes(self) -> int:
        """Number of bytes of all arrays."""
        return sum(array.nbytes for array in self.all_arrays)

    def header(self) -> dict[str, Any]:
        """Return everything except the bytes of the arrays, as plain values for msgpack."""
        return {
            **vars(self),
            "src": list(self.src),
            "dst": list(self.dst),
            "info": dict(self.info),
            "arrays": [[array.dtype.str, list(array.shape)] for array in self.arrays],
            "parts": [part.header() for part in self.parts],
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any], receive_buffer: ReceiveBuffer | None = None) -> Message:
        """Build a message from the result of `header`, with arrays that are not filled yet.

        Parameters
        ----------
        receive_buffer : callable, optional
            Called with each message that has a single array (of a pack, with each such part), without the array.
            Returns the buffer for the array, or None for new memory. A buffer of another shape or dtype is ignored.

        Raises
        ------
        CommError
            The header does not follow the protocol.
        """
        try:
            fields = dict(header)
            described = [(_plain_dtype(dtype), tuple(shape)) for dtype, shape in fields.pop("arrays")]
            src, dst = Address(*fields.pop("src")), Address(*fields.pop("dst"))
            parts = tuple(cls.from_header(part, receive_buffer) for part in fields.pop("parts"))
            bare = cls(src=src, dst=dst, parts=parts, **fields)
            if not described:
                return bare
            buffer = receive_buffer(bare) if receive_buffer and len(described) == 1 else None
            if buffer is not None and (buffer.dtype, buffer.shape) == described[0]:
                return replace(bare, arrays=(buffer,))
            return replace(bare, arrays=tuple(np.empty(shape, dtype) for dtype, shape in described))
        except (AttributeError, IndexError, KeyError, MemoryError, RecursionError, TypeError, ValueError) as error:
            raise CommError(f"a message that is not of this protocol: {error}") from error


def pack(messages: Iterable[Message]) -> list[Message]:
    """Combine messages into one pack for each receiving unit. A single message to a unit is not packed."""
    by_unit: dict[Address, list[Message]] = {}
    for message in messages:
        by_unit.setdefault(message.dst, []).append(message)
    return [
        parts[0] if len(parts) == 1 else Message("pack", parts[0].src, unit, parts=tuple(parts))
        for unit, parts in by_unit.items()
    ]


def _plain_dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.hasobject:
        raise ValueError("arrays of Python objects cannot be sent")
    return dtype


ReceiveBuffer = Callable[[Message], "np.ndarray | None"]
