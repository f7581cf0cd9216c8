"""Stub: sum the gradients of local workers, and exchange slices of params with servers.

After SINGA's src/stub.cc. A stub is a state machine without I/O: `Stub.handle` takes a message and returns the messages
to send, which the caller delivers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_dask.comm.backlog import Backlog
from singa_dask.comm.exchange import DirectExchange, PartialSum, SliceExchange
from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.slices import ParamSlice
from singa_dask.comm.sum_tree import additions, complete_nodes, leaf
from singa_dask.comm.tree import ProcessTree, TreeExchange


@dataclass(frozen=True)
class Share:
    """A sharer: a param of a local worker's layer that shares the values of a logical param.

    Attributes
    ----------
    worker : Address
        The worker.
    param : int
        Index of the logical param.
    grad : array, 1-D
        The gradient that the worker computes for this sharer, or a host copy of it. Empty if the gradient is always 0,
        or if the param is not trained.
    publish : callable
        Called with the new version when new values are in memory.
    """

    worker: Address
    param: int
    grad: Any
    publish: Callable[[int], None]


class Stub:
    """Holds the params of one process, sums gradients of local workers, and exchanges both with servers.

    Answers to requests that a worker group sent before a restart are ignored. All methods are thread-safe.

    Parameters
    ----------
    slices : sequence of ParamSlice
        The slices of all params. Every process has the same table.
    process_of : mapping of Address to int
        Process of every unit.
    n_sharers : sequence of int
        For each param, the number of sharers in a whole worker group.
    server_group_of : callable
        Takes a worker group; returns the server group that it uses.
    share_memory : bool
        Whether the worker groups of this process that use the same server group share one copy of the values.
    dtype : dtype
        dtype of all values.
    memory : callable
        Takes a number of values and a dtype; returns an array of zeros. It may be a GPU array only if no message goes
        to another process, and if operations run in the order in which they are enqueued.
    tree : ProcessTree, optional
        Tree of processes that add up gradients on the way to servers. By default gradients go directly to servers.
    applies_at_once : bool
        Whether a server applies the gradient of a slice without waiting for other gradients, as it does without
        clipping.

    Attributes
    ----------
    backlog : Backlog
        Limits the memory of received gradients that servers of this process apply immediately.
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
        tree: ProcessTree | None = None,
        applies_at_once: bool = True,
    ) -> None:
        self.address = Address.stub(process)
        self.process = process
        self.process_of = process_of
        self.n_sharers = n_sharers
        self.server_group_of = server_group_of
        self.share_memory = share_memory
        self.dtype = np.dtype(dtype)
        self.backlog = Backlog()
        self._applies_at_once = applies_at_once
        self._slices: list[list[ParamSlice]] = [[] for _ in n_sharers]
        for piece in slices:
            self._slices[piece.param].append(piece)
        self._all = list(slices)
        self._new_memory = memory
        self._memory: dict[tuple[str, int, int], Any] = {}
        self._views: dict[tuple[int, int], Any] = {}  # (worker group, slice) -> values of the slice
        self._shares: dict[tuple[int, int], list[Share]] = defaultdict(list)
        self._n_workers = 1 + max((unit.id for unit in process_of if unit.kind == "worker"), default=0)
        self._sums: dict[tuple[int, int], list[PartialSum]] = {}
        self._sent: dict[tuple[int, int], set[tuple[Address, int]]] = defaultdict(set)
        self._answered: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        self._receive_buffers: dict[tuple[str, Address, int, int, int], np.ndarray] = {}
        self._requested: set[tuple[int, int]] = set()
        self._published: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        # (slice, group) -> step of the unanswered request; a group has at most one for each slice
        self._unanswered: dict[tuple[int, int], int] = {}
        self._lock = threading.RLock()
        self._exchange: SliceExchange = DirectExchange(self._request)
        if tree is not None and process < tree.n_processes:
            roots = [process_of[Address.server(0, piece.server)] for piece in slices]
            n_bytes = [piece.size * self.dtype.itemsize for piece in slices]
            self._exchange = TreeExchange(process, tree, roots, n_bytes, self._slice_values, self._request)

    def server_values(self, group: int, param: int) -> Any:
        """Return the 1-D values of a param for the servers of a server group in this process."""
        return self._values(("server", group, param))

    def worker_values(self, group: int, param: int) -> Any:
        """Return the 1-D values of a param for the workers of a worker group in this process.

        With ``share_memory``, the workers and the servers that they use have the same array.
        """
        key = ("server", self.server_group_of(group)) if self.share_memory else ("worker", group)
        return self._values((*key, param))

    def _values(self, key: tuple[str, int, int]) -> Any:
        with self._lock:
            if key not in self._memory:
                size = sum(piece.size for piece in self._slices[key[2]])
                self._memory[key] = self._new_memory(size, self.dtype)
            return self._memory[key]

    def attach(self, shares: Sequence[Share]) -> None:
        """Add the sharers of one local worker, in the order of its net."""
        with self._lock:
            for share in shares:
                self._shares[share.worker.group, share.param].append(share)
            for users in self._shares.values():
                users.sort(key=lambda share: share.worker)
            self._sums.clear()

    def forget(self) -> None:
        """Free all memory. Call this method once no more messages are sent."""
        with self._lock:
            for kept in (self._memory, self._views, self._shares, self._sums, self._receive_buffers):
                kept.clear()
            self._exchange = DirectExchange(self._request)

    def receive_buffer(self, message: Message) -> np.ndarray | None:
        """Return the buffer for the array of a message from another process; None for new memory.

        - New values are read directly into the memory of the values.
        - Gradients of whole worker groups are read into memory of the backlog.
        - Partial sums and changes have one buffer for each sender and node of the tree of sums. One is enough, because
          the sender waits for the answer before it sends the next.
        """
        if message.slice < 0 or message.kind == "put" or not self._is_here(message.dst):
            return None
        piece = self._all[message.slice]
        if message.kind in ("r-get", "r-update", "gather"):
            values: np.ndarray = self._slice_values(message.slice, message.info["group"])
            return values
        if message.kind == "update" and self._applies_at_once and message.info["n"] == message.info["total"]:
            return self.backlog.empty(piece.size, self.dtype)
        group, node = (message.info.get(name, -1) for name in ("group", "node"))
        key = (message.kind, message.src, message.slice, group, node)
        with self._lock:
            if key not in self._receive_buffers:
                self._receive_buffers[key] = np.empty(piece.size, self.dtype)
            return self._receive_buffers[key]

    def _is_here(self, unit: Address) -> bool:
        return (unit.group if unit.kind == "stub" else self.process_of[unit]) == self.process

    def _slice_values(self, number: int, group: int = 0) -> Any:
        """Return the values of a slice for the workers of a group, always as the same array object."""
        if (values := self._views.get((group, number))) is None:
            piece = self._all[number]
            values = self.worker_values(group, piece.param)[piece.start : piece.stop]
            values = self._views.setdefault((group, number), values)
        return values

    def handle(self, message: Message) -> list[Message]:
        """Handle a message about params; return the messages to send."""
        with self._lock:
            handler: Callable[[Message], list[Message]] = getattr(self, "_on_" + message.kind.replace("-", "_"))
            return handler(message)

    def replace(self, units: Collection[Address]) -> None:
        """Drop the receive buffers of workers that restart in new processes."""
        processes = {self.process_of[unit] for unit in units}

        def is_of_these(sender: Address) -> bool:
            return (sender.group if sender.kind == "stub" else self.process_of[sender]) in processes

        with self._lock:
            for key in [key for key in self._receive_buffers if is_of_these(key[1])]:
                # drop only this reference, because messages may still use the buffer
                del self._receive_buffers[key]

    def _on_put(self, message: Message) -> list[Message]:
        group, values = message.src.group, message.arrays[0]
        self._published[group, message.param] = message.version  # the worker has the values, and needs no answer
        puts = [
            self._request(
                "put", group, piece.id, message.step, values[piece.start : piece.stop], version=message.version
            )
            for piece in self._slices[message.param]
        ]
        return puts + (self._on_get(message) if self._exchange.all_ask else [])

    def _on_get(self, message: Message) -> list[Message]:
        group, param = message.src.group, message.param
        if (group, param) in self._requested:
            return []
        self._requested.add((group, param))
        self._expect(group, param, message.step)
        return self._exchange.get(group, [piece.id for piece in self._slices[param]], message.step)

    def _expect(self, group: int, param: int, step: int) -> None:
        """Expect an answer for each slice of a param."""
        self._answered[group, param].clear()
        self._unanswered.update({(piece.id, group): step for piece in self._slices[param]})

    def _on_update(self, message: Message) -> list[Message]:
        """Count the local sharers whose gradient is ready.

        After the last one, return the messages with their sum.
        """
        group, param = message.src.group, message.param
        sent = self._sent[group, param]
        sent.add((message.src, message.info["share"]))
        if len(sent) < len(self._shares[group, param]):
            return []
        sent.clear()
        self._expect(group, param, message.step)
        return self._exchange.update(group, message.step, self._add_up(group, param))

    def _on_flush(self, message: Message) -> list[Message]:
        return self._exchange.flush(message.src.group)

    def _on_reduce(self, message: Message) -> list[Message]:
        return self._exchange.take(message)

    def _on_pack(self, message: Message) -> list[Message]:
        return pack(following for part in message.parts for following in self.handle(part))

    def _request(
        self, kind: str, group: int, number: int, step: int, *arrays: Any, n: int = 0, node: int = 0, version: int = -1
    ) -> Message:
        """Return a message about a slice to its server.

        ``n`` is the number of gradients in a sum, and ``node`` its node in the tree of sums. A sum at node 1, the root,
        counts for all sharers.
        """
        piece = self._all[number]
        to, total = Address.server(self.server_group_of(group), piece.server), self.n_sharers[piece.param]
        in_place = self.process_of[to] == self.process and self.share_memory
        info = {"group": group, "n": total if node == 1 else n, "total": total, "node": node, "in_place": in_place}
        about: dict[str, Any] = {"param": piece.param, "slice": number, "version": version, "step": step}
        return Message(kind, self.address, to, **about, info=info, arrays=arrays)

    def total(self, group: int, param: int) -> list[tuple[int, Any]]:
        """Add up the gradients of a param of the only worker; return pairs of a slice and its sum."""
        with self._lock:
            (total,) = self._add_up(group, param)
        return list(total.slices.items())

    def _add_up(self, group: int, param: int) -> list[PartialSum]:
        """Add up the gradients of the local sharers of a param; return the sums."""
        if (group, param) not in self._sums:
            self._sums[group, param] = self._partial_sums(group, param)
        for partial in self._sums[group, param]:
            for total, grad in partial.pairs:
                total += grad
        return self._sums[group, param]

    def _partial_sums(self, group: int, param: int) -> list[PartialSum]:
        """Return which sums of a param's gradients to compute.

        There is one sum, unless the order of additions places workers of other processes between the local workers.
        """
        users = self._shares[group, param]
        learning: dict[int, list[Any]] = defaultdict(list)  # gradients of each worker, in the order of its net
        for user in users:
            if user.grad.size:
                learning[user.worker.id].append(user.grad)
        units = [unit for unit, process in self.process_of.items() if process == self.process]
        local = {unit.id for unit in units if unit.kind == "worker" and unit.group == group}
        tops = complete_nodes(local, self._n_workers)
        if len(users) == self.n_sharers[param]:  # all sharers are local, so the sum is complete
            tops = dict.fromkeys(learning, 1)
        sums = []
        for top in sorted({tops[worker] for worker in learning}):
            below = {leaf(worker, self._n_workers): learning[worker] for worker in learning if tops[worker] == top}
            pairs = [(grads[0], grad) for grads in below.values() for grad in grads[1:]]
            pairs += [(below[left][0], below[right][0]) for left, right in additions(tuple(below), top)]
            total = below[min(below)][0]
            slices = {piece.id: total[piece.start : piece.stop] for piece in self._slices[param]}
            sums.append(PartialSum(top, pairs, slices, sum(map(len, below.values()))))
        sums[0].n += len(users) - sum(each.n for each in sums)
        return sums

    def _on_r_update(self, message: Message) -> list[Message]:
        """Store new values, and pass them on; once all slices of a param have new values, publish its version."""
        group, kind = message.info["group"], message.info.get("kind") or message.kind.removeprefix("r-")
        versions = {}
        for number, version, new in self._exchange.answers(message):
            if new is not None and new is not (values := self._slice_values(number, group)):
                np.copyto(values, new)  # not needed if the transport has written the values to this memory directly
            versions[number] = version
            if self._unanswered.get((number, group)) != message.step:
                continue
            del self._unanswered[number, group]
            param = self._all[number].param
            answered = self._answered[group, param]
            answered[number] = version
            if len(answered) == len(self._slices[param]):
                self._publish(kind, group, param, min(answered.values()))
        return self._exchange.pass_on(kind, versions)

    _on_r_get = _on_gather = _on_r_update

    def _publish(self, kind: str, group: int, param: int, version: int) -> None:
        """Make known to the sharers of a param the version of its new values.

        After an update, the version always rises.

        This holds even if the servers' version has not risen, because an update was sent a second time or the values
        come from a snapshot.
        """
        least = self._published[group, param] + (kind == "update")
        self._published[group, param] = version = max(version, least)
        for user in self._shares[group, param]:
            user.publish(version)
