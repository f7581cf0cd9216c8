"""Messages between units, and the addresses of units.

Between processes, a message is sent as a msgpack header, followed by the raw bytes of its arrays. Nothing is pickled.

These are the kinds of messages. The first worker of the job, here ``first``, is worker 0 of group 0; ``leader`` is
worker 0 of any group, and ``stub 0`` the stub of process 0. The last column lists ``info`` and other fields, and then,
after a semicolon, the arrays. A kind with ``*`` is answered by ``r-`` and its name.

=============== ============================== ====================================================================
kind            from -> to                     content
=============== ============================== ====================================================================
**params**
put             worker -> stub -> server       version, group, in_place; initial values
get *           worker -> stub -> server       version, group, in_place; the answer has the values
update *        worker -> stub -> server       step, share, group, n, total, node; gradients; the answer has the values
flush           worker -> stub                 all gradients of the step were sent
reduce          stub -> stub                   kind, slices; sums on their way to a server
gather          stub -> stub                   kind, slices, versions; values on their way from a server
pack            any -> any                     parts: messages to the same unit
norm            server -> its group            step, group, squares
sync *          server -> master group         slice, applied; changes, and in the answer the values
**barriers**
hello           unit -> stub 0                 is answered by ``start``
ready           worker -> stub 0               host, facts; is answered by ``go``: differing
leave           worker -> stub 0               error; after the last one, all servers get ``stop``
**checkpoints**
checkpoint-at * first -> its group             step of the next checkpoint; ``snapshot-at`` in the same way
report-at *     leader -> its group            step of the next report, request
learned         group 0 -> first               what the worker has learned from the records
progress *      first -> other groups          requester, url or snapshot; the answer has position, states or error
arrived         other groups -> first          requester: the worker waits for copies
settle *        first -> server                requester
copy *          first -> server                requester, url or snapshot
taken           first -> worker                requester: the servers have copied their slices
part            server -> first                requester, and the description of the part or an error
known           first -> first                 known: the scheduler has the snapshot
written         first -> first                 requester, event: the manifest was written
ask-again       first -> first                 units, left
**workers**
bridge          worker -> its group            key, names; outputs or gradients of layers
stop-at *       leader -> its group            step before which the group stops, reason
measured        group 0 -> first               phase, totals, arrays: names; metrics of a test
judged          first -> group 0               reason, saves
end             first -> leader                reason why the training ends early
**losses**
replaced        stub -> its units              units, left: units that restart, workers that are done
failed          worker -> its own server       error
abort           stub -> stub, stub -> unit     reason, retry
=============== ============================== ====================================================================
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
        Kind of the message; see the table of this module.
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
