"""Router: deliver the messages of one process to its units, its stub, and other processes.

Messages of local units are routed in the thread of the unit that sends them, messages of other processes in the thread
of the transport. Routing never waits. The router has no thread of its own, because waking a thread for each message
would cost more than it saves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import Stub
from singa_dask.comm.transport import Transport
from singa_dask.comm.tree import ProcessTree
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.units.barrier_coordinator import BarrierCoordinator
from singa_dask.runtime.units.mailbox import Mailbox
from singa_dask.runtime.units.profiler import Trace
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.worker import Worker


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
    coordinator : BarrierCoordinator
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
        coordinator: BarrierCoordinator,
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
            self._abort(dict(message.info), tell=self._tree is not None)  # inform the next processes of the tree
            return
        if message.kind in BarrierCoordinator.KINDS:
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
        """Send ``abort`` with ``info`` to every local unit and, if ``tell`` is True, to all other processes.

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
        """Return the numbers of bytes of arrays sent to and received from other processes."""
        transport = self.transport  # keep a local reference, because another thread may close the transport
        if transport is None:
            return {"sent": 0, "received": 0}
        return {"sent": transport.sent_bytes, "received": transport.received_bytes}

    def close(self) -> None:
        """Close the connections to other processes."""
        if self.transport:
            self.transport.close()
        self.transport = None
