"""Exchange among many processes, in which gradients are summed on their way to servers.

The algorithm is recursive halving and doubling, after Rabenseifner (2004), extended to any number of processes. Two
processes exchange messages only if their numbers differ in one bit. Which process computes a node of the tree of sums
(see `singa_dask.comm.sum_tree`) depends on the server of the slice. The order of additions does not depend on it, so a
sum has the same bits as in a direct exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from singa_dask.comm.exchange import PartialSum, SliceExchange
from singa_dask.comm.message import Address, Message, pack

MIN_PROCESSES = 5
"""Fewer processes than this exchange slices directly: this takes as many messages as a tree, but only one hop."""
MAX_DIRECT = 8
DIRECT_BYTES = 2 << 20
"""Up to `MAX_DIRECT` processes also exchange slices directly if the params have at least `DIRECT_BYTES`, or if servers
have processes of their own, because a direct exchange then costs less."""
BUCKET_BYTES = 1 << 20
"""Gradients are collected until they have this many bytes or the step ends, and are then sent together."""
FUSED_BYTES = 1 << 18
"""Slices with fewer bytes are copied into one array for each receiver. Larger slices are sent from their own memory."""


class Route(NamedTuple):
    """The route of the gradient of one slice through one process.

    Attributes
    ----------
    children : tuple of int
        Processes whose sums are added in this process, in the order of the additions.
    parent : int or None
        Process to which the sum is sent; None if this process is the root, which sends the sum to the server.
    """

    children: tuple[int, ...]
    parent: int | None


class ProcessTree:
    """Determines which process sends sums to which process.

    Process i is a leaf of the tree of sums. The node at height h above leaf i is called block ``i >> h``. One of the
    processes below a node computes its sum: if it exists, the process whose last h bits equal the last h bits of the
    root.
    """

    def __init__(self, n_processes: int) -> None:
        self.n_processes = n_processes
        self.route = lru_cache(None)(self._route)

    @classmethod
    def of(cls, process_of: Mapping[Address, int], n_bytes: int = 0) -> ProcessTree | None:
        """Return the tree for a job with ``n_bytes`` bytes of params; None if slices are exchanged directly.

        A tree needs one worker group and one server group, and each process must compute one node of the tree of sums.
        Therefore all processes with workers must have the same number of workers, a power of two, in order; the last
        process may have fewer. Servers may have processes of their own, with higher numbers.
        """
        n = 1 + max(process for unit, process in process_of.items() if unit.kind == "worker")
        are_apart = n <= max(process_of.values())
        workers: list[list[int]] = [[] for _ in range(n)]
        for unit, process in sorted(process_of.items()):
            if unit.group:
                return None
            if unit.kind == "worker":
                workers[process].append(unit.id)
        size = len(workers[0])
        is_even = size.bit_count() == 1 and all(len(some) == size for some in workers[:-1])
        in_order = [i for some in workers for i in some] == list(range(sum(map(len, workers))))
        is_for_many = n >= MIN_PROCESSES and (n > MAX_DIRECT or not (are_apart or n_bytes >= DIRECT_BYTES))
        fits = is_for_many and is_even and in_order and 0 < len(workers[-1]) <= size
        return cls(n) if fits else None

    def root(self, number: int, server: int) -> int:
        """Return the process that computes the whole sum of slice ``number``.

        This is the process ``server`` of its server, or, if the tree lacks that process, a process that sends the sum
        there.
        """
        return server if server < self.n_processes else number % self.n_processes

    def climb(self, roots: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield, for each height of the tree, the sums to send, as three arrays of equal length.

        They have the index of the root in ``roots``, the process that sends a sum, and its parent, which receives it.
        """
        index, here = np.divmod(np.arange(len(roots) * self.n_processes), self.n_processes)
        for height in range((self.n_processes - 1).bit_length()):
            block = here >> height
            parent = self._node(height + 1, block >> 1, roots[index])
            sends = ((block ^ 1) << height < self.n_processes) & (parent != here)
            yield index[sends], here[sends], parent[sends]
            index, here = index[~sends], here[~sends]

    def _node(self, height: int, block: Any, root: Any) -> Any:
        """Return the process that computes the node ``block`` at a height, for a root; elementwise for arrays."""
        for bit in reversed(range(height)):
            left, one = 2 * block, root >> bit & 1
            block = left + one * (left + one << bit < self.n_processes)
        return block

    def _route(self, process: int, root: int) -> Route:
        children: list[int] = []
        for height in range((self.n_processes - 1).bit_length()):
            block = process >> height
            sibling = block ^ 1
            if sibling << height >= self.n_processes:
                continue
            if (parent := self._node(height + 1, block >> 1, root)) != process:
                return Route(tuple(children), parent)
            children.append(self._node(height, sibling, root))
        return Route(tuple(children), None)

    def hop(self, here: Any, to: Any) -> Any:
        """Return the next process on the route from process ``here`` to process ``to``.

        Arrays of processes give an array.
        """
        # clear bits before setting bits, so that no number on the way exceeds both ends: all these processes exist
        cleared = here & ~to
        bits = cleared + (cleared == 0) * (to & ~here)
        return here ^ (bits & -bits)

    def neighbours(self, here: int) -> list[int]:
        """Return the processes with which a process exchanges messages directly."""
        others = (here ^ 1 << bit for bit in range((self.n_processes - 1).bit_length()))
        return [other for other in others if other < self.n_processes]


class _Leg(NamedTuple):
    """The next hop of a slice.

    Attributes
    ----------
    kind : {"reduce", "gather"}
        Whether sums go up to the root, or values come down from it.
    to : int or None
        The receiving process; None for the server.
    alone : int
        The slice, if it is sent in a message of its own; else -1.
    """

    kind: str
    to: int | None
    alone: int


@dataclass
class _Bundle:
    """Slices that are sent together in one message, once all of them are ready."""

    step: int
    leg: _Leg
    slices: list[int] = field(default_factory=list)
    n_ready: int = 0


@dataclass
class _Passage:
    """The state of one slice in this process: its route, and the sums that have arrived."""

    children: tuple[int, ...]
    legs: list[_Leg]
    arrived: dict[int, Any] = field(default_factory=dict)
    total: Any = None
    n_added: int = 0
    version: int = -1
    up: _Bundle | None = None
    down: list[_Bundle] = field(default_factory=list)


_NOTHING = np.empty(0)
"""Takes the place of a gradient in requests for initial values."""


class TreeExchange(SliceExchange):
    """An exchange in which processes sum gradients on the way to servers, and pass new values on.

    Each slice waits only for its own sums, so processes do not have to agree on which slices are sent together.
    Requests for initial values take the same route, without arrays. It is a state machine without I/O.

    Parameters
    ----------
    roots : sequence of int
        For each slice, the process of its server.
    n_bytes : sequence of int
        Number of bytes of each slice.
    values : callable
        Takes the number of a slice; returns its values in this process.
    request : callable
        See `DirectExchange`.
    """

    all_ask = True

    def __init__(
        self,
        process: int,
        tree: ProcessTree,
        roots: Sequence[int],
        n_bytes: Sequence[int],
        values: Callable[[int], Any],
        request: Callable[..., Message],
    ) -> None:
        self._process = process
        self._n_bytes = n_bytes
        self._values = values
        self._request = request
        self._passages: dict[str, list[_Passage]] = {"get": [], "update": []}
        for number, root in enumerate(roots):
            children, parent = tree.route(process, tree.root(number, root))
            alone = number if n_bytes[number] >= FUSED_BYTES else -1
            legs = [_Leg("reduce", parent, alone), *(_Leg("gather", child, alone) for child in children)]
            for passages in self._passages.values():
                passages.append(_Passage(children, legs))
        # sums of this process that will be sent together, and their step
        self._bucket: dict[int, Any] = {}
        self._step = -1

    def get(self, group: int, numbers: Collection[int], step: int) -> list[Message]:
        return self._send("get", step, dict.fromkeys(numbers, _NOTHING))

    def update(self, group: int, step: int, sums: Sequence[PartialSum]) -> list[Message]:
        before = self.flush(group) if step != self._step else []
        (total,) = sums
        self._bucket |= total.slices
        self._step = step
        is_full = sum(self._n_bytes[number] for number in self._bucket) >= BUCKET_BYTES
        return before + self.flush(group) if is_full else before

    def flush(self, group: int) -> list[Message]:
        totals, self._bucket = self._bucket, {}
        return self._send("update", self._step, totals)

    def _send(self, kind: str, step: int, totals: Mapping[int, Any]) -> list[Message]:
        """Arrange that each sum is sent once the sums of its children have arrived.

        Return the messages to send now.
        """
        bundles: dict[_Leg, _Bundle] = {}
        for number, total in totals.items():
            passage = self._passages[kind][number]
            for leg in passage.legs:
                if leg not in bundles:
                    bundles[leg] = _Bundle(step, leg)
                bundles[leg].slices.append(number)
            passage.total = total
            passage.up, *passage.down = [bundles[leg] for leg in passage.legs]
        return self._advance(kind, totals)

    def take(self, message: Message) -> list[Message]:
        kind, child = message.info["kind"], message.src.group
        for number, array in self._split(message):
            self._passages[kind][number].arrived[child] = array
        return self._advance(kind, message.info["slices"])

    def answers(self, message: Message) -> Iterator[tuple[int, int, Any]]:
        if message.kind != "gather":
            yield from super().answers(message)
            return
        for (number, values), version in zip(self._split(message), message.info["versions"], strict=True):
            yield number, version, values

    def _split(self, message: Message) -> Iterator[tuple[int, Any]]:
        """Yield each slice in a message, with its part of the message's array."""
        numbers = message.info["slices"]
        if len(numbers) == 1 or not message.arrays:
            yield from zip(numbers, message.arrays or [_NOTHING] * len(numbers), strict=True)
            return
        (array,), start = message.arrays, 0
        for number in numbers:
            stop = start + self._n_bytes[number] // array.itemsize
            yield number, array[start:stop]
            start = stop

    def _advance(self, kind: str, numbers: Collection[int]) -> list[Message]:
        """Add the sums of children that have arrived, in the order of the tree; return the complete messages."""
        following: list[Message] = []
        for number in numbers:
            passage = self._passages[kind][number]
            if (bundle := passage.up) is None:
                continue
            for child in passage.children[passage.n_added :]:
                if child not in passage.arrived:
                    break
                passage.total += passage.arrived.pop(child)
                passage.n_added += 1
            else:
                passage.n_added, passage.up = 0, None
                following += self._complete(kind, bundle)
        return pack(following)

    def pass_on(self, kind: str, versions: Mapping[int, int]) -> list[Message]:
        following: list[Message] = []
        for number, version in versions.items():
            passage = self._passages[kind][number]
            passage.version, bundles, passage.down = version, passage.down, []
            for bundle in bundles:
                following += self._complete(kind, bundle)
        return pack(following)

    def _complete(self, kind: str, bundle: _Bundle) -> Iterable[Message]:
        """Count a ready slice of a bundle; return the bundle's messages if all its slices are ready."""
        bundle.n_ready += 1
        numbers, leg = bundle.slices, bundle.leg
        if bundle.n_ready < len(numbers):
            return ()
        passages = [self._passages[kind][number] for number in numbers]
        arrays = [each.total for each in passages] if leg.kind == "reduce" else list(map(self._values, numbers))
        if leg.to is None:
            sums = [(array,) if array.size else () for array in arrays]
            pairs = zip(numbers, sums, strict=True)
            return [self._request(kind, 0, number, bundle.step, *array, node=1) for number, array in pairs]
        info: dict[str, Any] = {"group": 0, "kind": kind, "slices": numbers}
        if leg.kind == "gather":
            info["versions"] = [passage.version for passage in passages]
        fused = (arrays[0] if len(arrays) == 1 else np.concatenate(arrays),) if arrays[0].size else ()
        number = numbers[0] if len(numbers) == 1 else -1
        src, dst = Address.stub(self._process), Address.stub(leg.to)
        return [Message(leg.kind, src, dst, slice=number, step=bundle.step, info=info, arrays=fused)]
