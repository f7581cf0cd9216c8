"""Limits of a server: sizes of requests and batches, and how long a request may take."""

from __future__ import annotations

from dataclasses import dataclass

# bodies of the greatest size that are in memory at a time
MAX_BODIES = 8


@dataclass(frozen=True)
class Limits:
    """What a server accepts.

    Attributes
    ----------
    max_batch : int
        Records that are computed together.
    max_wait_s : float
        How long a batch that is not full waits for more records.
    max_queue : int
        Requests that are read, wait or are computed at a time.
    max_records : int
        Records of a request.
    max_bytes : int
        Size of the body of a request, and of the values of an answer.
    timeout_s : float
        From the head of a request to its answer.
    max_connections : int
        Connections of clients, idle ones too, that are open at a time.
    """

    max_batch: int
    max_wait_s: float = 0.0
    max_queue: int = 256
    max_records: int = 10_000
    max_bytes: int = 64 << 20
    timeout_s: float = 30.0
    max_connections: int = 512

    @property
    def max_total_bytes(self) -> int:
        """Size of all bodies that are in memory at a time."""
        return MAX_BODIES * self.max_bytes


class Refused(Exception):
    """A request is not answered with predictions.

    Parameters
    ----------
    status : int
        Of HTTP.
    message : str
    headers : dict of str to str, optional
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
