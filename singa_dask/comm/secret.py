"""Secret: what the endpoints of one job know, and nobody else."""

from __future__ import annotations

import hmac
import secrets
from typing import Any

from distributed.protocol.serialize import dask_deserialize, dask_serialize

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
