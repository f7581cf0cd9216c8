"""SliceExchange: exchange gradients and values of a process with servers.

`DirectExchange` sends gradients directly to servers; `TreeExchange` in `singa_dask.comm.tree` sends them through other
processes.
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
"""Gradients for a server are collected until they have this many bytes, so that small params share a message."""


@dataclass
class PartialSum:
    """The sum of the gradients of a param at one node of the tree of sums; see `singa_dask.comm.sum_tree`.

    Attributes
    ----------
    node : int
        Number of the node.
    pairs : list of (array, array)
        Arrays to add, in order: the second array of each pair is added to the first.
    slices : dict of int to array, 1-D
        For each slice, its part of the sum, in the memory of the first worker's gradient.
    n : int
        Number of gradients in the sum, including gradients that are always 0.
    """

    node: int
    pairs: list[tuple[Any, Any]]
    slices: dict[int, Any]
    n: int


class SliceExchange(ABC):
    """Creates the messages that carry gradients to servers and values back.

    It is a state machine without I/O.

    Attributes
    ----------
    all_ask : bool
        Whether each process requests all initial values, including the values that it has itself sent to servers.
    """

    all_ask = False

    @abstractmethod
    def get(self, group: int, numbers: Collection[int], step: int) -> list[Message]:
        """Return the messages that request the values of slices (by ``numbers``) for a worker group."""

    @abstractmethod
    def update(self, group: int, step: int, sums: Sequence[PartialSum]) -> list[Message]:
        """Add the gradient of a param, given as partial sums; return the messages to send now."""

    @abstractmethod
    def flush(self, group: int) -> list[Message]:
        """Return the messages with the remaining gradients of a worker group."""

    def take(self, message: Message) -> list[Message]:
        """Handle a message with sums from another process; return the messages to send now."""
        raise CommError(f"{message.kind} from {message.src}: unexpected: workers send gradients straight to servers.")

    def answers(self, message: Message) -> Iterator[tuple[int, int, Any]]:
        """Yield each slice in an answer, with its version and new values.

        Yield None for values that are already in place.
        """
        yield message.slice, message.version, message.arrays[0] if message.arrays else None

    def pass_on(self, kind: str, versions: Mapping[int, int]) -> list[Message]:
        """Return the messages that pass new values on to other processes.

        ``versions`` has the version of each slice whose new values are in the memory of this process.
        """
        return []


class DirectExchange(SliceExchange):
    """An exchange in which processes send each slice's gradient directly to the server of the slice.

    Parameters
    ----------
    request : callable
        Takes (kind, worker group, slice, step, array, n=, node=); returns the message to the server of the slice.
    """

    def __init__(self, request: Callable[..., Message]) -> None:
        self._request = request
        # (worker group, server) -> gradients that are not sent yet, and their number of bytes
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
                # on a GPU, collect all params of the step, because one kernel updates all of them
                if self._n_bytes[key] >= PACK_BYTES and isinstance(values, np.ndarray):
                    full += self._send(key)
        return full

    def flush(self, group: int) -> list[Message]:
        return [request for key in list(self._outgoing) if key[0] == group for request in self._send(key)]

    def _send(self, key: tuple[int, Address]) -> list[Message]:
        del self._n_bytes[key]
        return pack(self._outgoing.pop(key))
