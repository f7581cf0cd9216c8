"""Stub: sums the gradients of the local workers of a process, and exchanges slices of params with servers.

After SINGA's src/stub.cc. A stub is a state machine without I/O: `Stub.handle` takes a message and returns the
messages that follow. The caller delivers them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.slicing import ParamSlice
from singa_dask.comm.sums import additions, complete_nodes, leaf

PACK_BYTES = 1 << 18
"""Gradients for one server are sent once they have this many bytes, so that small params share a message.

Those on a GPU wait for the flush.
"""


@dataclass(frozen=True)
class Share:
    """A local param that shares the values of a logical param.

    Attributes
    ----------
    worker : Address
    param : int
        Index of the param.
    grad : array, 1-D
        The sharer's own gradient: the memory that it is computed in, or its host copy. Empty if the gradient is always
        0, and for a param that is not trained: its one sharer only waits for the initial values.
    publish : callable
        Called with the version once new values are in memory.
    """

    worker: Address
    param: int
    grad: Any
    publish: Callable[[int], None]


@dataclass
class _PartialSum:
    """The sum of the gradients of a param at one node of the tree, see `sums`.

    Attributes
    ----------
    node : int
    pairs : list of (array, array)
        The second is added to the first, in order.
    slices : list of array, 1-D
        Where the sum is then, slice by slice: in the gradient of the first worker.
    n : int
        Number of sharers that it counts for, also if the gradients of some are always 0.
    """

    node: int
    pairs: list[tuple[Any, Any]]
    slices: list[Any]
    n: int


@dataclass
class _Outgoing:
    """Gradients of one worker group that wait to be sent to one server together."""

    requests: list[Message] = field(default_factory=list)
    n_bytes: int = 0

    def add(self, request: Message) -> None:
        self.requests.append(request)
        self.n_bytes += request.n_bytes

    def take(self) -> list[Message]:
        taken, self.requests, self.n_bytes = self.requests, [], 0
        return pack(taken)


class Stub:
    """The params of a job in one process: values, local gradients, and requests to servers.

    It knows which requests are not answered yet: a worker group that starts again ignores answers to the one before.

    Parameters
    ----------
    process : int
    slices : sequence of ParamSlice
        Of all params, the same table in every process.
    process_of : mapping of Address to int
        Process of every unit.
    n_sharers : sequence of int
        Number of sharers of each param in a whole worker group.
    server_group_of : callable
        Worker group -> server group that it uses.
    share_memory : bool
        Whether the worker groups of this process that use one server group share one copy of the values.
    dtype : dtype
        Of all values.
    memory : callable
        (number of values, dtype) -> array of zeros for values. If values and gradients are GPU arrays, no message
        goes to another process, and operations on them run in the order in which they are enqueued.
    """

    def __init__(
        self,
        process: int,
        slices: Sequence[ParamSlice],
        process_of: Mapping[Address, int],
        n_sharers: Sequence[int],
        server_group_of: Callable[[int], int],
        *,
        share_memory: bool = True,
        dtype: Any = np.float32,
        memory: Callable[[int, Any], Any] = np.zeros,
    ) -> None:
        self.address = Address.stub(process)
        self.process = process
        self.process_of = process_of
        self.n_sharers = n_sharers
        self.server_group_of = server_group_of
        self.share_memory = share_memory
        self.dtype = np.dtype(dtype)
        self._slices: list[list[ParamSlice]] = [[] for _ in n_sharers]
        for piece in slices:
            self._slices[piece.param].append(piece)
        self._all = list(slices)
        self._new_memory = memory
        self._memory: dict[tuple[str, int, int], Any] = {}
        self._shares: dict[tuple[int, int], list[Share]] = defaultdict(list)
        self._n_workers = 1 + max((unit.id for unit in process_of if unit.kind == "worker"), default=0)
        self._sums: dict[tuple[int, int], list[_PartialSum]] = {}
        self._sent: dict[tuple[int, int], set[tuple[Address, int]]] = defaultdict(set)
        self._answered: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self._receive_buffers: dict[tuple[str, Address, int, int, int], np.ndarray] = {}
        self._requested: dict[tuple[int, int], int] = {}
        self._published: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        self._unanswered = _UnansweredRequests()
        self._outgoing: dict[tuple[int, Address], _Outgoing] = defaultdict(_Outgoing)

    # -- memory ------------------------------------------------------------------------------------

    def server_values(self, group: int, param: int) -> Any:
        """Return the values of a param as the servers of ``group`` in this process hold them, 1-D.

        If a worker of this process uses them too, both use the same memory and nothing is copied.
        """
        return self._values(("server", group, param))

    def worker_values(self, group: int, param: int) -> Any:
        """Return the values of a param as the workers of ``group`` in this process see them, 1-D."""
        key = ("server", self.server_group_of(group)) if self.share_memory else ("worker", group)
        return self._values((*key, param))

    def _values(self, key: tuple[str, int, int]) -> Any:
        if key not in self._memory:
            size = sum(piece.size for piece in self._slices[key[2]])
            self._memory[key] = self._new_memory(size, self.dtype)
        return self._memory[key]

    def attach(self, shares: Sequence[Share]) -> None:
        """Add the sharers of one local worker, in the order of its net."""
        for share in shares:
            self._shares[share.worker.group, share.param].append(share)
        for users in self._shares.values():
            users.sort(key=lambda share: share.worker)
        self._sums.clear()

    def forget(self) -> None:
        """Release all memory, once no more messages are sent."""
        self._memory.clear()
        self._shares.clear()
        self._sums.clear()
        self._receive_buffers.clear()
        self._outgoing.clear()
        self._unanswered.clear()

    def receive_buffer(self, message: Message) -> np.ndarray | None:
        """Return the buffer that the array of a message from another process is read into.

        New values are read straight into their memory. Gradients and changes have one buffer for each sender and
        node of the tree of sums: it sends the next one only after this one was answered.
        """
        if message.slice < 0 or message.kind == "put":
            return None
        piece = self._all[message.slice]
        if message.kind in ("r-get", "r-update"):
            values: np.ndarray = self.worker_values(message.info["group"], piece.param)[piece.start : piece.stop]
            return values
        group, node = (message.info.get(name, -1) for name in ("group", "node"))
        key = (message.kind, message.src, message.slice, group, node)
        if key not in self._receive_buffers:
            self._receive_buffers[key] = np.empty(piece.size, self.dtype)
        return self._receive_buffers[key]

    # -- messages ----------------------------------------------------------------------------------

    def handle(self, message: Message) -> list[Message]:
        """Take one message about params from a local worker or a server; return the messages that follow."""
        handler: Callable[[Message], list[Message]] = getattr(self, "_on_" + message.kind.replace("-", "_"))
        return handler(message)

    def replace(self, units: Collection[Address]) -> None:
        """Take note that workers start again in fresh processes."""
        processes = {self.process_of[unit] for unit in units}
        for key in [key for key in self._receive_buffers if self._process_with(key[1]) in processes]:
            del self._receive_buffers[key]  # what was read there may still be in use

    def _process_with(self, unit: Address) -> int:
        return unit.group if unit.kind == "stub" else self.process_of[unit]

    def _on_put(self, message: Message) -> list[Message]:
        values = message.arrays[0]
        self._published[message.src.group, message.param] = message.version  # to the worker, by itself
        return [
            self._to_server(message, piece, arrays=(values[piece.start : piece.stop],))
            for piece in self._slices[message.param]
        ]

    def _on_get(self, message: Message) -> list[Message]:
        key = (message.src.group, message.param)
        if self._requested.get(key, -1) >= message.version:
            return []
        self._requested[key] = message.version
        requests = [self._to_server(message, piece) for piece in self._slices[message.param]]
        for request in requests:
            self._unanswered.add(request)
        return requests

    def _on_update(self, message: Message) -> list[Message]:
        """Count the local sharers whose gradient is ready; after the last one, send their sum.

        Workers whose place in the tree of sums is apart from the others' have a sum of their own.
        """
        group, param = message.src.group, message.param
        sent = self._sent[group, param]
        sent.add((message.src, message.info["share"]))
        if len(sent) < len(self._shares[group, param]):
            return []
        sent.clear()
        self._answered[group, param].clear()
        if (group, param) not in self._sums:
            self._sums[group, param] = self._partial_sums(group, param)
        sums = self._sums[group, param]
        for each in sums:
            for total, grad in each.pairs:
                total += grad
        full = []
        for index, piece in enumerate(self._slices[param]):
            for each in sums:
                request = self._to_server(message, piece, (each.slices[index],), n=each.n, node=each.node)
                self._unanswered.add(request)
                outgoing = self._outgoing[group, request.dst]
                outgoing.add(request)
                # a GPU updates all params of a step by one kernel
                if outgoing.n_bytes >= PACK_BYTES and isinstance(each.slices[index], np.ndarray):
                    full += outgoing.take()
        return full

    def _partial_sums(self, group: int, param: int) -> list[_PartialSum]:
        """Return the sums to send of a param: one, unless other workers come between those of this process."""
        users = self._shares[group, param]
        learning: dict[int, list[Any]] = defaultdict(list)  # gradients of each worker, in the order of its net
        for user in users:
            if user.grad.size:
                learning[user.worker.id].append(user.grad)
        tops = complete_nodes(self._local_workers(group), self._n_workers)
        if len(users) == self.n_sharers[param]:  # workers of other processes do not have it
            tops = dict.fromkeys(learning, 1)
        sums = []
        for top in sorted({tops[worker] for worker in learning}):
            below = {leaf(worker, self._n_workers): learning[worker] for worker in learning if tops[worker] == top}
            pairs = [(grads[0], grad) for grads in below.values() for grad in grads[1:]]
            pairs += [(below[left][0], below[right][0]) for left, right in additions(tuple(below), top)]
            total = below[min(below)][0]
            slices = [total[piece.start : piece.stop] for piece in self._slices[param]]
            sums.append(_PartialSum(top, pairs, slices, sum(map(len, below.values()))))
        sums[0].n += len(users) - sum(each.n for each in sums)
        return sums

    def _local_workers(self, group: int) -> set[int]:
        local = [unit for unit, process in self.process_of.items() if process == self.process]
        return {unit.id for unit in local if unit.kind == "worker" and unit.group == group}

    def _on_flush(self, message: Message) -> list[Message]:
        """Send the gradients that wait for more of them: the worker group has no more for now."""
        waiting = [outgoing for (group, _), outgoing in self._outgoing.items() if group == message.src.group]
        return [request for outgoing in waiting for request in outgoing.take()]

    def _on_pack(self, message: Message) -> list[Message]:
        return pack(following for part in message.parts for following in self.handle(part))

    def _to_server(
        self, message: Message, piece: ParamSlice, arrays: tuple[np.ndarray, ...] = (), n: int = 0, node: int = 0
    ) -> Message:
        group = message.src.group
        to = Address.server(self.server_group_of(group), piece.server)
        here = self.process_of[to] == self.process and self.share_memory
        return Message(
            message.kind,
            src=self.address,
            dst=to,
            param=message.param,
            slice=piece.id,
            version=message.version,
            step=message.step,
            info={"group": group, "n": n, "total": self.n_sharers[message.param], "node": node, "in_place": here},
            arrays=arrays,
        )

    def _on_r_update(self, message: Message) -> list[Message]:
        """Store new values; publish the version once every slice of the param has answered."""
        group, piece = message.info["group"], self._all[message.slice]
        if message.arrays:
            values = self.worker_values(group, piece.param)[piece.start : piece.stop]
            if message.arrays[0].ctypes.data != values.ctypes.data:  # else the transport has read them there
                np.copyto(values, message.arrays[0])
        if not self._unanswered.discard(message):
            return []
        answered = self._answered[group, piece.param]
        answered[piece.id] = message.version
        if len(answered) == len(self._slices[piece.param]):
            self._publish(message.kind, group, piece.param, min(answered.values()))
            answered.clear()
        return []

    def _publish(self, kind: str, group: int, param: int, version: int) -> None:
        """Tell the sharers the version of new values.

        After an update it is a new one in any case. If a server already has an update, since it was sent again, or the
        values are those of a snapshot, there may be no newer values.
        """
        least = self._published[group, param] + (kind == "r-update")
        self._published[group, param] = version = max(version, least)
        for user in self._shares[group, param]:
            user.publish(version)

    _on_r_get = _on_r_update


class _UnansweredRequests:
    """Knows the step of each request until it is answered.

    A worker group has at most one request about a slice at a time, in one message for each sum of gradients.
    """

    def __init__(self) -> None:
        self._steps: dict[tuple[Address, int, int], int] = {}

    def add(self, request: Message) -> None:
        """Expect an answer to a request."""
        self._steps[request.dst, request.slice, request.info["group"]] = request.step

    def discard(self, answer: Message) -> bool:
        """Take note of an answer; return False if it is not to a request that was added."""
        key = answer.src, answer.slice, answer.info["group"]
        if self._steps.get(key) != answer.step:
            return False
        del self._steps[key]
        return True

    def clear(self) -> None:
        """Forget all requests."""
        self._steps.clear()
