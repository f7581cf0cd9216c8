"""Wire: numbered frames on one connection to another process.

A frame has a number, a header, and the bytes of arrays. The frame of a message has the message's sequence number, and
its header from `Message.header`. A note is a frame without arrays: the greeting that opens a connection, an
acknowledgement (empty header), or a refusal (its text is the header).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

import msgpack
import numpy as np

from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.errors import CommError

MARK = b"SNG3"
MAX_HEADER = 64 << 20
NOT_OURS = "a message that is not of this protocol"


class RefusedError(Exception):
    """The peer has refused the connection, or cannot continue it. To try again would not help."""


class Frame(NamedTuple):
    """The start of a frame.

    Attributes
    ----------
    number : int
    header : bytes or Message
        A message if both processes are one.
    n_bytes : int
        Bytes of arrays.
    arrays : list
        The arrays as bytes, if they have come with the header.
    """

    number: int
    header: bytes | Message
    n_bytes: int
    arrays: list[Any]


class Wire(ABC):
    """Writes and reads frames. Writing never waits."""

    peer: str
    """Address of the other end."""

    @property
    @abstractmethod
    def progress(self) -> int:
        """A number that rises while what was written is taken off to the peer."""

    @abstractmethod
    def write(self, number: int, message: Message) -> None:
        """Write a message. Its arrays must not change until it is acknowledged."""

    @abstractmethod
    def write_note(self, number: int, header: bytes = b"") -> None:
        """Write a frame without arrays."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until everything was handed to the system."""

    @abstractmethod
    async def read(self, max_header: int = MAX_HEADER) -> Frame:
        """Read the start of a frame."""

    @abstractmethod
    async def skip(self, frame: Frame) -> None:
        """Read the arrays of a frame, and forget them."""

    @abstractmethod
    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        """Read the rest of the message that a frame holds, its array into what ``receive_buffer`` returns."""

    async def open(self) -> None:
        """Wait until the connection can be used, as after the handshake of TLS."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the connection at once."""


Serve: TypeAlias = Callable[[Wire], Awaitable[None]]
"""Serves a new connection to its end."""


class Listener(ABC):
    """Takes connections.

    Attributes
    ----------
    address : str
        Where other processes reach it.
    """

    address: str

    @abstractmethod
    async def stop(self) -> None:
        """Take no more connections."""


def from_header(packed: bytes, receive_buffer: ReceiveBuffer | None) -> Message:
    """Build a message from its packed header, with arrays that are still to be filled."""
    try:
        header = msgpack.unpackb(packed)
    except (TypeError, ValueError) as error:
        raise CommError(f"{NOT_OURS}: {error}") from error
    return Message.from_header(header, receive_buffer)


def flat(array: np.ndarray) -> np.ndarray:
    """Return a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)
