"""Greeting: both ends of a new connection prove that they know the job's secret.

The listener sends 32 random bytes, the challenge. The sender answers with a hello, which it signs together with the
challenge and 32 random bytes of its own. The listener signs its answer in the same way. So the secret itself never
travels between endpoints, a recorded hello opens no second connection, and a sender gives nothing to a program that
has taken the port of a lost process. Sending the secret instead would save one message for each connection, and would
show it to everyone who reads one connection, or listens on such a port.

Before a signature is verified nothing is read but one frame of limited size, and nothing of it is parsed. The signature
covers the opening of a connection only: who can change what a network carries can also change the frames that
follow. Against that there is TLS.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, fields
from typing import Any

import msgpack
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from singa_dask.comm.wire import Frame, RefusedError, Wire
from singa_dask.errors import CommError

# Secret: what the endpoints of one job know, and nobody else.


_N_BYTES = 32


class Secret:
    """The secret of a job. It signs what opens a connection.

    It has no text and cannot be pickled: it travels in messages of Dask as ``to_serialize(secret)``, which debug logs
    of Dask show as ``Secret(...)``.

    Parameters
    ----------
    key : bytes
    """

    n_signature = 32
    """Bytes of a signature."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def new(cls) -> Secret:
        """Return the secret of a new job."""
        return cls(secrets.token_bytes(_N_BYTES))

    def sign(self, purpose: bytes, nonces: bytes, text: bytes) -> bytes:
        """Return the signature (HMAC-SHA256, RFC 2104) of a text.

        Parameters
        ----------
        purpose : bytes
            What the text is; one name must not begin with another.
        nonces : bytes
            Random bytes of both ends of the connection, always equally many.
        text : bytes
        """
        return hmac.digest(self._key, purpose + nonces + text, "sha256")

    def verify(self, signature: bytes, purpose: bytes, nonces: bytes, text: bytes) -> bool:
        """Return whether a signature is that of a text, in a time that does not depend on where it differs."""
        return hmac.compare_digest(signature, self.sign(purpose, nonces, text))

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


@dask_serialize.register(Secret)  # type: ignore[no-untyped-call, untyped-decorator]
def _serialize(secret: Secret) -> tuple[dict[str, Any], list[bytes]]:
    return {}, [secret._key]


@dask_deserialize.register(Secret)  # type: ignore[no-untyped-call, untyped-decorator]
def _deserialize(header: dict[str, Any], frames: list[bytes]) -> Secret:
    return Secret(bytes(frames[0]))


VERSION = 4


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


MAX_HELLO = 1 << 12
_MAX_ANSWER = 1 << 16
_N_NONCE = 32
_HELLO, _ANSWER = b"hello", b"answer"


class StrangerError(CommError):
    """Who has connected does not prove that it belongs to the job."""


@dataclass(frozen=True)
class Guest:
    """A sender that has proved that it belongs to the job.

    Attributes
    ----------
    hello : Hello
    wire : Wire
    """

    hello: Hello
    wire: Wire
    _secret: Secret
    _nonces: bytes

    def answer(self, last: int, refusal: str = "") -> None:
        """Tell the sender the number of its last message that has come, and why it is refused if it is."""
        text = refusal.encode()
        signature = self._secret.sign(_ANSWER, self._nonces, last.to_bytes(8, "little") + text)
        self.wire.write_note(last, signature + text)


async def admit(wire: Wire, secret: Secret) -> Guest:
    """Challenge a new connection, and read its hello.

    Raises
    ------
    StrangerError
        The hello is not signed with the job's secret.
    CommError
        It is, and is no hello of this protocol.
    """
    await wire.open()
    challenge = secrets.token_bytes(_N_NONCE)
    wire.write_note(0, challenge)
    signature, nonce, packed = _split(await _read_first(wire, MAX_HELLO), Secret.n_signature, _N_NONCE)
    if not secret.verify(signature, _HELLO, challenge + nonce, packed):
        raise StrangerError("it does not know the secret of the job")
    return Guest(Hello.unpack(packed), wire, secret, challenge + nonce)


async def introduce(wire: Wire, secret: Secret, hello: bytes) -> int:
    """Say a packed hello on a new connection; return the number of the last message that the listener has had.

    Raises
    ------
    RefusedError
        The listener belongs to the job, and refuses the connection.
    CommError
        It closes the connection, or does not prove that it belongs to the job.
    """
    try:
        (challenge, rest) = _split(await _read_first(wire, _N_NONCE), _N_NONCE)
        nonce = secrets.token_bytes(_N_NONCE)
        signature = secret.sign(_HELLO, challenge + nonce, hello)
        wire.write_note(0, signature + nonce + hello)
        frame = await wire.read(_MAX_ANSWER)
    except OSError as error:
        why = getattr(error, "real_error", None) or "it may belong to another job"
        raise CommError(f"it has closed the connection without an answer: {why}") from error
    signature, text = _split(frame, Secret.n_signature)
    signed = frame.number.to_bytes(8, "little") + text
    if rest or frame.n_bytes or not secret.verify(signature, _ANSWER, challenge + nonce, signed):
        raise CommError("it does not know the secret of the job")
    if text:
        raise RefusedError(f"it has refused the connection: {text.decode(errors='replace')}")
    return frame.number


async def _read_first(wire: Wire, max_header: int) -> Frame:
    """Read the first frame of a connection."""
    try:
        frame = await wire.read(max_header)
    except CommError as error:
        raise StrangerError(str(error)) from error
    if frame.number or frame.n_bytes or frame.arrays:
        raise StrangerError("its first frame is not of this protocol")
    return frame


def _split(frame: Frame, *sizes: int) -> list[bytes]:
    """Return the first pieces of a note, of the given sizes, and the rest."""
    header = frame.header
    if not isinstance(header, bytes) or len(header) < sum(sizes):
        raise StrangerError("its first frame is not of this protocol")
    pieces = []
    for size in sizes:
        pieces.append(header[:size])
        header = header[size:]
    return [*pieces, header]
