"""Greeting: the beginning of a connection. The sender says hello, and the listener answers.

The hello contains the token of the job. The answer is a refusal, or the number of the last message that the listener
has received from this sender. Because of the greeting, a process of another job or incarnation cannot write to memory
by mistake. Plain tcp sends the token in clear text; only TLS protects it from people who can read the network.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgpack

from singa_dask.comm.wire import Frame, RefusedError, Wire
from singa_dask.errors import CommError
from singa_dask.version import PROTOCOL


@dataclass(frozen=True)
class Hello:
    """Identifies the sender of a new connection.

    Attributes
    ----------
    token : str
        Secret that all processes of the job share.
    process : int
        Number of the sender's process in the job.
    address : str
        Address at which the transport of the sender listens.
    stream : str
        Id of the sender's outbox. A new connection continues the messages of this outbox.
    segment : str
        Name of the shared memory that the sender offers; empty if it offers none. See `singa_dask.comm.shared`.
    version : int
        Version of the protocol.
    """

    token: str
    job: str
    incarnation: int
    process: int
    address: str
    stream: str = ""
    segment: str = ""
    version: int = PROTOCOL

    def pack(self) -> bytes:
        """Return the hello as bytes."""
        packed: bytes = msgpack.packb({field.name: getattr(self, field.name) for field in fields(self)})
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Hello:
        """Return the hello that `pack` has packed; raise `CommError` for other bytes."""
        try:
            hello = cls(**msgpack.unpackb(packed))
        except (TypeError, ValueError) as error:
            raise CommError("the first frame is not a hello of this protocol") from error
        if not all(type(getattr(hello, field.name)).__name__ == field.type for field in fields(cls)):
            raise CommError("the first frame is not a hello of this protocol")
        return hello

    def __str__(self) -> str:
        return f"job {self.job!r}, incarnation {self.incarnation}, protocol {self.version}"

    def refusal(self, other: Hello) -> str:
        """Return why a connection that ``other`` opens is refused; empty if it is accepted."""
        if (self.token, self.job, self.incarnation, self.version) == (
            other.token,
            other.job,
            other.incarnation,
            other.version,
        ):
            return ""
        alike = str(self) == str(other)
        return (
            f"process {other.process} of {other} has connected{', of another run' if alike else ''}. Expected: {self}."
        )


MAX_HELLO = 1 << 12
_MAX_ANSWER = 1 << 16


async def read_hello(wire: Wire) -> Hello:
    """Read the hello of a new connection.

    Raises
    ------
    CommError
        The first frame is not a hello.
    """
    return Hello.unpack(_note(await wire.read(MAX_HELLO)))


async def introduce(wire: Wire, hello: bytes) -> int:
    """Send a packed hello; return the number of the last message that the listener received.

    Raises
    ------
    RefusedError
        The listener refuses the connection.
    CommError
        The listener closes the connection, or speaks another protocol.
    """
    try:
        wire.write_note(0, hello)
        frame = await wire.read(_MAX_ANSWER)
    except OSError as error:
        why = getattr(error, "real_error", None) or "it may belong to another job"
        raise CommError(f"it has closed the connection without an answer: {why}") from error
    if refusal := _note(frame):
        raise RefusedError(f"the other side refused the connection: {refusal.decode(errors='replace')}")
    return frame.number


def _note(frame: Frame) -> bytes:
    """Return the header of a frame; raise `CommError` if the frame is not part of a greeting."""
    if frame.n_bytes or frame.arrays or not isinstance(frame.header, bytes):
        raise CommError("the first frame is not of this protocol")
    return frame.header
