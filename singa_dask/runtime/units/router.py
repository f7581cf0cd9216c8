"""Router: deliver the messages of one process to its units, its stub, and other processes.

Messages of local units are routed in the thread of the unit that sends them, messages of other processes in the thread
of the transport. Routing never waits. The router has no thread of its own, because waking a thread for each message
would cost more than it saves.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import Stub
from singa_dask.comm.transport import Transport
from singa_dask.comm.tree import ProcessTree
from singa_dask.errors import DataError
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.units.initial_state import Rejoin
from singa_dask.runtime.units.profiler import Trace
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.worker import Worker


class Coordinator:
    """Counts the units of a job at three barriers. It is a state machine without I/O, like the stub.

    - ``hello``: all units start when every unit has sent it.
    - ``ready``: all workers train when every worker has its params and has sent it.
    - ``leave``: all servers end when every worker has sent it.

    Units that join a running job wait only for each other. A repeated message counts once; if no unit is missing, it is
    answered again.

    With ``ready`` a worker sends facts that must be equal on all workers: versions of remote files, and digests of what
    it has learned from the records. The coordinator compares them with the facts of the worker whose ``ready`` came
    first. The answer ``go`` lists the facts that differ, with the value and the host of that worker. If a ``leave`` has
    an ``error``, the job ends with this error once all workers have left.

    Parameters
    ----------
    process_of : mapping of Address to int
        Process of each unit.
    rejoin : Rejoin, optional
        Set if this process joins a running job.
    """

    KINDS: ClassVar[Mapping[str, str]] = {"hello": "start", "ready": "go", "leave": "stop"}

    def __init__(self, process_of: Mapping[Address, int], rejoin: Rejoin | None = None) -> None:
        units = set(process_of)
        workers = {unit for unit in units if unit.kind == "worker"}
        left, running = (rejoin.left, rejoin.running) if rejoin else (frozenset[Address](), frozenset[Address]())
        starting = units - running - left
        self._processes = sorted({*process_of.values()})
        self._facts: dict[str, list[str]] = {}
        self._differing: dict[Address, dict[str, list[str]]] = {}
        self._error = ""
        self._servers = sorted(units - workers)
        self._missing = {"hello": starting, "ready": starting & workers, "leave": workers - left}
        self._present: dict[str, set[Address]] = {"hello": set(), "ready": set(), "leave": set(left)}

    def missing(self, kind: str) -> list[Address]:
        """Return the units that have not sent the message ``kind`` yet."""
        return sorted(self._missing[kind])

    def handle(self, message: Message) -> list[Message]:
        """Count the sender of a message; if no unit is missing any more, return the messages to waiting units."""
        self._missing[message.kind].discard(message.src)
        self._present[message.kind].add(message.src)
        if message.kind == "ready":
            self._differing[message.src] = self._compare(message.info["host"], message.info["facts"])
        elif message.kind == "leave" and message.info["error"] and not self._error:
            self._error = f"{message.src}: {message.info['error']}"
        answers = self._answers(message.kind)
        # a server that joins after all workers have left must end, too
        return answers + self._answers("leave") if message.kind == "hello" else answers

    def _compare(self, host: str, facts: Mapping[str, str]) -> dict[str, list[str]]:
        """Return the facts that differ from the facts received first, with the first value and its host."""
        for what, value in facts.items():
            self._facts.setdefault(what, [value, host])
        return {what: self._facts[what] for what, value in facts.items() if self._facts[what][0] != value}

    def _answers(self, kind: str) -> list[Message]:
        if self._missing[kind] or not self._present[kind]:
            return []
        waiting = self._servers
        if kind != "leave":
            waiting = sorted(self._present[kind])
            self._present[kind].clear()
        elif self._error:
            info: dict[str, Any] = {"reason": self._error, "exit_code": DataError.exit_code, "expected": True}
            return [Message("abort", Address.stub(0), Address.stub(process), info=info) for process in self._processes]
        return [
            Message(self.KINDS[kind], Address.stub(0), unit, info={"differing": self._differing.pop(unit, {})})
            for unit in waiting
        ]

    def replace(self, units: Iterable[Address], left: Iterable[Address] = ()) -> list[Message]:
        """Expect messages of restarting units again; return messages to units that no longer have to wait.

        Parameters
        ----------
        units : iterable of Address
            Units that restart.
        left : iterable of Address
            Workers that have finished; no messages of them are expected. ``units`` does not contain them.
        """
        units, left = set(units), set(left)
        workers = {unit for unit in units if unit.kind == "worker"}
        for kind, again in {"hello": units, "ready": workers, "leave": workers}.items():
            self._missing[kind] = (self._missing[kind] | again) - left
            self._present[kind] -= again
        self._present["leave"] |= left
        return [answer for kind in self.KINDS for answer in self._answers(kind)]


class Mailbox:
    """The `Exchange` of a worker: sends arrays to workers of its group, and receives arrays from them.

    Parameters
    ----------
    owner : Address
        The worker.
    post : callable
        Delivers a message.

    Attributes
    ----------
    wait_s : float
        Seconds that the worker has waited for other workers of its group.
    """

    def __init__(self, owner: Address, post: Callable[[Message], None], cancellation: Cancellation) -> None:
        self.owner = owner
        self.cancellation = cancellation
        self.wait_s = 0.0
        self._post = post
        self._arrived: dict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def send(self, worker: int, key: str, arrays: Sequence[np.ndarray], names: Sequence[str]) -> None:
        """Send arrays to another worker of the group without waiting."""
        to, info = Address.worker(self.owner.group, worker), {"key": key, "names": list(names)}
        self._post(Message("bridge", src=self.owner, dst=to, info=info, arrays=tuple(arrays)))

    def put(self, message: Message) -> None:
        """Add arrays that have arrived from another worker. Any thread may call this method."""
        with self.cancellation.condition:
            self._arrived[message.info["key"]].append(dict(zip(message.info["names"], message.arrays, strict=True)))
            self.cancellation.condition.notify_all()

    def has(self, key: str) -> bool:
        """Return whether arrays with this key have arrived, so that `receive` would return at once."""
        # use get() and not []: [] could, without the lock, replace the queue that `put` adds at the same moment
        return bool(self._arrived.get(key))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true; raise Aborted if the job ends meanwhile.

        The condition is checked whenever arrays arrive. ``what`` describes the wait in messages to the user.
        """
        started = time.perf_counter()
        self.cancellation.wait(condition, what)
        self.wait_s += time.perf_counter() - started

    def receive(self, key: str) -> dict[str, Any]:
        """Wait for arrays with this key, and return the oldest of them by name; raise Aborted if the job ends."""
        if not self.has(key):
            self.wait(lambda: self.has(key), f"bridge {key}")
        return self._arrived[key].popleft()


class Router:
    """Delivers messages from one process to every unit of a job.

    Parameters
    ----------
    process : int
        Number of this process.
    stub : Stub
        Exchanges gradients and values of params between local workers and servers.
    units : mapping of Address to unit
        Local units that are ready. The caller adds units later.
    coordinator : Coordinator
        Counts units at barriers. Only the coordinator of process 0 gets messages.
    abort : callable
        Ends the units of this process and of other processes; see `UnitHost.abort`.
    trace : Trace, optional
        Records the messages exchanged with other processes.
    tree : ProcessTree, optional
        Tree along which messages travel from process to process. Without it, processes send messages directly.

    Attributes
    ----------
    transport : Transport or None
        Connects to the other processes; None if the job has one process.
    peers : list of str
        Address of every process. The address of a process that is being replaced is empty.
    is_closed : bool
        If True, only messages about the end of the job are delivered.
    """

    def __init__(
        self,
        process: int,
        layout: Layout,
        stub: Stub,
        units: Mapping[Address, Worker | Server],
        coordinator: Coordinator,
        abort: Callable[..., None],
        trace: Trace | None = None,
        tree: ProcessTree | None = None,
    ) -> None:
        local = layout.processes[process]
        self.inboxes: dict[Address, SimpleQueue[Message]] = {unit: SimpleQueue() for unit in local}
        self.cancellations = {unit: Cancellation() for unit in local}
        workers = [unit for unit in local if unit.kind == "worker"]
        self.mailboxes = {unit: Mailbox(unit, self.post, self.cancellations[unit]) for unit in workers}
        self.transport: Transport | None = None
        self.peers: list[str] = []
        self._early: list[Message] = []  # messages that wait until the addresses of other processes are known
        self.is_closed = False
        self._process = process
        self._process_of = layout.process_of
        self._stub = stub
        self._units = units
        self._abort = abort
        self._trace = trace
        self._tree = tree
        self._coordinator = coordinator
        self._lock = threading.Lock()

    def post(self, message: Message) -> None:
        """Deliver a message and all messages that follow from it, without waiting."""
        if self.is_closed and message.kind != "abort":
            return
        process = self._process_with(message.dst)
        if process != self._process:
            if not self.peers:
                with self._lock:
                    if not self.peers:
                        self._early.append(message)
                        return
            transport = self.transport  # keep a local reference, because another thread may close the transport
            last, process = process, self._next_hop(process)
            # a process without an address is being replaced; drop the message, as it will be sent again
            if (address := self.peers[process]) and transport is not None:
                if self._trace is None or self._process_with(message.src) != self._process:
                    transport.send(address, message)
                else:
                    self._trace.send(last, message, partial(transport.send, address, message))
        elif message.dst.kind == "stub":
            self._post_to_stub(message)
        elif message.kind == "bridge":
            self.mailboxes[message.dst].put(message)
        else:
            unit = self._units.get(message.dst)
            if isinstance(unit, Worker) and message.kind in Worker.ANSWERED_AT_ONCE:
                unit.accept(message)  # do not let this message wait for the end of the worker's step
            else:  # the unit may not exist yet, in a process that joins a running job
                self.inboxes[message.dst].put(message)

    def connect(self, peers: Sequence[str]) -> None:
        """Set the addresses of all processes, and deliver the messages that waited for them."""
        with self._lock:
            self.peers, early, self._early = list(peers), self._early, []
        for message in early:
            self.post(message)

    def _process_with(self, unit: Address) -> int:
        return unit.group if unit.kind == "stub" else self._process_of[unit]

    def _next_hop(self, process: int) -> int:
        return self._tree.hop(self._process, process) if self._tree else process

    def _post_to_stub(self, message: Message) -> None:
        if message.kind == "abort":
            self._abort(dict(message.info), tell=self._tree is not None)  # tell the next processes of the tree
            return
        if message.kind in Coordinator.KINDS:
            with self._lock:
                following = self._coordinator.handle(message)
        else:
            following = self._stub.handle(message)
        for each in following:
            self.post(each)

    def receive(self, message: Message) -> None:
        """Deliver a message from another process."""
        if self._trace is None or self._process_with(message.dst) != self._process:
            self.post(message)
        else:
            self._trace.receive(self._process_with(message.src), message, partial(self.post, message))

    def cut(self, processes: Iterable[int]) -> None:
        """Close the connections to processes that are to be replaced."""
        assert self.transport is not None
        for process in processes:
            address, self.peers[process] = self.peers[process], ""
            if address:
                self.transport.cut(address)
            if self._trace is not None:
                self._trace.forget(process)

    def join(self, endpoints: Mapping[int, str], left: Collection[Address]) -> None:
        """Connect to replacement processes, and inform the local units, which may have to repeat messages.

        Parameters
        ----------
        endpoints : mapping of int to str
            Address of each replacement, by number of the process.
        left : collection of Address
            Workers that had finished before their process was lost.
        """
        for process, address in endpoints.items():
            self.peers[process] = address
        units = [unit for unit, process in self._process_of.items() if process in endpoints]
        info = {"units": [list(unit) for unit in units], "left": [list(unit) for unit in left]}
        for unit in self.inboxes:
            self.post(Message("replaced", src=Address.stub(self._process), dst=unit, info=info))
        self._stub.replace(units)
        if self._process == 0:
            with self._lock:
                following = self._coordinator.replace([unit for unit in units if unit not in left], left)
            for each in following:
                self.post(each)

    def end_units(self, info: dict[str, Any], tell: bool) -> None:
        """Send ``abort`` with ``info`` to every local unit, and with ``tell`` to all other processes.

        In a tree, each process sends the message to its neighbours, so that it reaches all processes even if one is
        lost.
        """
        stub = Address.stub(self._process)
        for unit, inbox in self.inboxes.items():
            inbox.put(Message("abort", src=stub, dst=unit, info=info))
        if tell and self.transport:
            for process in self._tree.neighbours(self._process) if self._tree else range(len(self.peers)):
                if process != self._process:
                    self.post(Message("abort", src=stub, dst=Address.stub(process), info=info))

    def traffic(self) -> dict[str, int]:
        """Return the bytes of arrays sent to and received from other processes."""
        transport = self.transport  # keep a local reference, because another thread may close the transport
        if transport is None:
            return {"sent": 0, "received": 0}
        return {"sent": transport.sent_bytes, "received": transport.received_bytes}

    def close(self) -> None:
        """Close the connections to other processes."""
        if self.transport:
            self.transport.close()
        self.transport = None
