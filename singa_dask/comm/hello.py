"""Hello: what the sender at the other end of a connection is."""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgpack

from singa_dask.errors import CommError

__all__ = ["Hello"]

VERSION = 3


@dataclass(frozen=True)
class Hello:
    """Opens a connection: what the sender is.

    Attributes
    ----------
    job : str
    life : int
    process : int
        Index of the process of the sender.
    address : str
        Where the transport of the sender listens.
    stream : str
        Identifies the sequence of messages that the connection carries on.
    version : int
        Of the protocol.
    """

    job: str
    life: int
    process: int
    address: str
    stream: str = ""
    version: int = VERSION

    def pack(self) -> bytes:
        """Return the hello as bytes."""
        packed: bytes = msgpack.packb({field.name: getattr(self, field.name) for field in fields(self)})
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Hello:
        """Return what `pack` has packed; raise CommError if it is something else."""
        try:
            hello = cls(**msgpack.unpackb(packed))
        except (TypeError, ValueError) as error:
            raise CommError("the first frame is no hello of this protocol") from error
        types = {"job": str, "life": int, "process": int, "address": str, "stream": str, "version": int}
        if not all(type(getattr(hello, name)) is kind for name, kind in types.items()):
            raise CommError("the first frame is no hello of this protocol")
        return hello

    def __str__(self) -> str:
        return f"job {self.job!r}, life {self.life}, protocol {self.version}"

    def refusal(self, other: Hello) -> str:
        """Return why a connection that ``other`` opens is refused here; empty if it is not."""
        if (self.job, self.life, self.version) == (other.job, other.life, other.version):
            return ""
        return f"process {other.process} of {other} has connected. Expected: {self}."
