"""SliceExchange: send the gradients of a process to servers.

`DirectExchange` sends them straight there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_dask.comm.message import Address, Message, pack
from singa_dask.errors import CommError

PACK_BYTES = 1 << 18
"""Gradients for one server are sent once they have this many bytes, so that small params share a message."""


@dataclass
class PartialSum:
    """The sum of the gradients of a param at one node of the tree of sums.

    Attributes
    ----------
    pairs : list of (array, array)
        Pairs to add, in order: the second array is added to the first.
    slices : dict of int to array, 1-D
        The sum of each slice, in the memory of the first worker's gradient.
    n : int
        Number of sharers in the sum, including sharers whose gradient is always 0.
    """

    node: int
    pairs: list[tuple[Any, Any]]
    slices: dict[int, Any]
    n: int


class SliceExchange(ABC):
    """Creates the messages with gradients and values. It is a state machine without I/O.

    Attributes
    ----------
    all_ask : bool
        Whether each process asks for all initial values, including values that it has sent itself.
    """

    all_ask = False

    @abstractmethod
    def get(self, group: int, numbers: Collection[int], step: int) -> list[Message]:
        """Return the requests for the values of slices for a worker group."""

    @abstractmethod
    def update(self, group: int, step: int, sums: Sequence[PartialSum]) -> list[Message]:
        """Add the gradient of a param; return the messages to send now."""

    @abstractmethod
    def flush(self, group: int) -> list[Message]:
        """Return the messages with the remaining gradients of a worker group."""

    def take(self, message: Message) -> list[Message]:
        """Handle sums of another process; return the messages to send now."""
        raise CommError(f"{message.kind} from {message.src}: gradients of this job go straight to servers.")

    def answers(self, message: Message) -> Iterator[tuple[int, int, Any]]:
        """Yield slice, version and new values in an answer; the values are None if they are in place already."""
        yield message.slice, message.version, message.arrays[0] if message.arrays else None

    def pass_on(self, kind: str, versions: Mapping[int, int]) -> list[Message]:
        """Return the messages that pass new values on to other processes. The values are in place."""
        return []


class DirectExchange(SliceExchange):
    """Each process sends each slice to its server.

    Parameters
    ----------
    request : callable
        (kind, worker group, slice, step, array, n=, node=) -> message to the server of the slice.
    """

    def __init__(self, request: Callable[..., Message]) -> None:
        self._request = request
        # unsent gradients of a worker group for one server, and their number of bytes
        self._outgoing: dict[tuple[int, Address], list[Message]] = defaultdict(list)
        self._n_bytes: Counter[tuple[int, Address]] = Counter()

    def get(self, group: int, numbers: Collection[int], step: int) -> list[Message]:
        return [self._request("get", group, number, step) for number in numbers]

    def update(self, group: int, step: int, sums: Sequence[PartialSum]) -> list[Message]:
        full = []
        for number in sums[0].slices:
            for partial in sums:
                values = partial.slices[number]
                request = self._request("update", group, number, step, values, n=partial.n, node=partial.node)
                key = group, request.dst
                self._outgoing[key].append(request)
                self._n_bytes[key] += values.nbytes
                # on a GPU, wait for all params of the step, because one kernel updates all of them
                if self._n_bytes[key] >= PACK_BYTES and isinstance(values, np.ndarray):
                    full += self._send(key)
        return full

    def flush(self, group: int) -> list[Message]:
        return [request for key in list(self._outgoing) if key[0] == group for request in self._send(key)]

    def _send(self, key: tuple[int, Address]) -> list[Message]:
        del self._n_bytes[key]
        return pack(self._outgoing.pop(key))
