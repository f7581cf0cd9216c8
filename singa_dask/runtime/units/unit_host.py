"""UnitHost: what hosts the units of one process: their inboxes, the stub, the endpoint, the way to the driver.

Messages of local units are routed in the caller's own thread, what comes from other processes in the transport's:
nothing here waits, and a thread less to wake for each message is worth more than any queue.
"""

from __future__ import annotations

import gc
import logging
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message, Share, Stub
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.errors import A_BUG, LostUnitError
from singa_dask.net import NeuralNet
from singa_dask.runtime.planning.devices import Devices
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.resources import limit_process
from singa_dask.runtime.units.coordinator import Coordinator
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.mailbox import Mailbox
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.worker import Worker

__all__ = ["UnitHost"]

logger = logging.getLogger(__name__)


class UnitHost:
    """One process of a job.

    Parameters
    ----------
    job_id : str
    process : int
    job : JobConf
    transport : callable
        (on_message, on_lost, receive_buffer=) -> Transport of this process, or None when the job has one process only.
    emit : callable
        Takes an event, a dict that msgpack can write; called from any thread.
    deals : mapping of str to sequence of int, optional
        Of a job that starts afresh; see `Context`.
    host_names : collection of str
        See `Context`.
    neighbours : collection of int, optional
        Processes of the job on this host, itself among them; their workers share its cores. All, if not given.

    Attributes
    ----------
    devices : Devices
        Kernels of the local units, and their threads.
    units : dict of Address to object
        Local workers and servers, also after their end.
    writer : ThreadPoolExecutor
        Writes parts of checkpoints, while training goes on.
    """

    def __init__(
        self,
        job_id: str,
        process: int,
        job: JobConf,
        transport: Callable[..., Transport] | None,
        emit: Callable[[dict[str, Any]], None],
        deals: Mapping[str, Sequence[int]] | None = None,
        host_names: Collection[str] = (),
        neighbours: Collection[int] | None = None,
    ) -> None:
        self.job_id = job_id
        self.deals, self.host_names = deals or {}, host_names
        self.process = process
        self.job = job
        self.emit = emit
        self.plan = JobPlan.make(job)
        self.local = self.plan.layout.processes[process]
        self.devices = Devices(job, self.plan.layout, process, neighbours)
        self.process_of = self.plan.layout.process_of
        self.inboxes: dict[Address, SimpleQueue[Message]] = {unit: SimpleQueue() for unit in self.local}
        self.mailboxes = {unit: Mailbox(unit, self.post) for unit in self.local if unit.kind == "worker"}
        self.units: dict[Address, Worker | Server] = {}
        self.failure: dict[str, Any] | None = None
        self.stop_requested = False
        self.writer = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoint-{process}")
        self._gates = [mailbox.gate for mailbox in self.mailboxes.values()]
        self._peers: list[str] = []
        self._lock = threading.RLock()
        self._stub = Stub(
            process,
            self.plan.slices,
            self.process_of,
            self.plan.n_sharers,
            self.plan.layout.server_group_of,
            share_memory=job.cluster.share_memory,
            dtype=self.plan.dtype,
            memory=self.devices.memory,
        )
        self._coordinator = Coordinator(self.process_of)
        self._limits = ExitStack()
        self._limits.enter_context(limit_process(self.devices.n_threads))
        self._transport = (
            transport(self._receive, self._lose, receive_buffer=self._receive_buffer) if transport else None
        )

    # -- what units use --------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where other processes reach this one; empty when there is no other."""
        return self._transport.address if self._transport else ""

    def connect(self, peers: Sequence[str]) -> None:
        """Learn the address of every process."""
        self._peers = list(peers)

    def give_memory(self, worker: Address, net: NeuralNet, mirror: HostMirror | None = None) -> None:
        """Give the params of a local worker their values in the memory of this process; attach its gradients.

        With a ``mirror`` that memory, and that of the gradients, are the host copies of what it computes with.
        """
        shares = []
        with self._lock:
            for owner in net.owners:
                index = self.plan.names.index(owner.key)
                values = self._stub.worker_values(worker.group, index).reshape(owner.memory_shape)
                none, sharers = np.empty(0, owner.dtype), net.sharers(owner)
                if mirror is not None:
                    grads = mirror.add(owner, values, sharers)
                else:
                    owner.data = values
                    grads = [none if param.is_idle else param.memory.reshape(-1) for param in sharers]
                shares += [Share(worker, index, grad, owner.publish) for grad in grads or [none]]
            self._stub.attach(shares)
            self._gates.append(net.gate)
        if self.failure:
            self._close_gates()

    def add(self, unit: Worker | Server) -> None:
        """Take in a local unit that is ready to say hello, with a stop that was asked for before it was there."""
        self.units[unit.address] = unit
        self._pass_on_stop(unit)

    def server_values(self, server: Address) -> Callable[[int], Any]:
        """Return how a local server gets at the values of a param."""

        def values(param: int) -> Any:
            with self._lock:
                return self._stub.server_values(server.group, param)

        return values

    def post(self, message: Message) -> None:
        """Deliver a message, and all that follows from it. Never waits."""
        if self.failure and message.kind != "abort":
            return
        if message.dst.kind == "stub" and message.dst.group == self.process:
            self._at_stub(message)
        elif self._home(message.dst) == self.process:
            self._at_unit(message)
        else:
            assert self._transport is not None
            self._transport.send(self._peers[self._home(message.dst)], replace(message, job=self.job_id))

    def _home(self, unit: Address) -> int:
        return unit.group if unit.kind == "stub" else self.process_of[unit]

    def _at_stub(self, message: Message) -> None:
        if message.kind == "abort":
            self.abort(dict(message.info), tell=False)
            return
        machine = self._coordinator if message.kind in Coordinator.KINDS else self._stub
        with self._lock:
            following = machine.handle(message)
        for each in following:
            self.post(each)

    def _at_unit(self, message: Message) -> None:
        """Put a message in an inbox; answer at once what must not wait for a worker's next step."""
        if message.kind == "bridge":
            self.mailboxes[message.dst].put(message)
            return
        if message.kind not in ("stop-at", "checkpoint-at", "end", "progress"):
            self.inboxes[message.dst].put(message)
            return
        unit = self.units[message.dst]
        assert isinstance(unit, Worker)
        info = {}
        if message.kind == "end":
            unit.ended, unit.stop_requested = message.info["reason"], True
            return
        if message.kind == "stop-at":
            unit.ended, unit.stop_at = message.info["reason"], message.step
        elif message.kind == "checkpoint-at":
            unit.due_at = message.step
        else:
            info = {"steps": list(unit.lockstep.progress)}
        self.post(Message("r-" + message.kind, src=message.dst, dst=message.src, step=message.step, info=info))

    def _receive(self, message: Message) -> None:
        if message.job != self.job_id:
            logger.warning("dropped a message of job %r: this is job %r", message.job, self.job_id)
            return
        try:
            self.post(message)
        except Exception as error:  # whatever it is, nobody must wait for an answer that never comes
            logger.exception("%s from %s to %s", message.kind, message.src, message.dst)
            reason = f"process {self.process}: {message.kind} from {message.src}: {error!r}"
            self.abort({"reason": reason, "exit_code": 1, "error": traceback.format_exc() + A_BUG})

    # -- the end -----------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Ask the first worker of each local group to stop its group at a step that all can agree on."""
        self.stop_requested = True
        for unit in list(self.units.values()):
            self._pass_on_stop(unit)

    def _pass_on_stop(self, unit: Worker | Server) -> None:
        if self.stop_requested and isinstance(unit, Worker) and unit.address.id == 0:
            unit.stop_requested = True

    def abort(self, failure: dict[str, Any], tell: bool = True) -> None:
        """End all units of this process; ``tell`` the other processes too. The first failure is kept.

        Parameters
        ----------
        failure : dict
            ``reason``: one line; more for the driver.
        """
        with self._lock:
            if self.failure is not None:
                return
            self.failure = failure
        self._close_gates()
        reason = {"reason": str(failure.get("reason", "the job failed"))}
        for unit, inbox in self.inboxes.items():
            inbox.put(Message("abort", src=Address.stub(self.process), dst=unit, info=reason))
        if tell and self._transport:
            for process in range(len(self._peers)):
                if process != self.process:
                    self.post(Message("abort", src=Address.stub(self.process), dst=Address.stub(process), info=reason))

    def _close_gates(self) -> None:
        reason = str((self.failure or {}).get("reason", ""))
        with self._lock:
            gates = list(self._gates)
        for gate in gates:
            gate.close(reason)

    def _lose(self, address: str, error: str) -> None:
        process = self._peers.index(address)
        units = ", ".join(str(unit) for unit in self.plan.layout.processes[process])
        reason = f"process {process} at {address} cannot be reached ({error}). Lost: {units}."
        self.abort({"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True})

    def _receive_buffer(self, message: Message) -> np.ndarray | None:
        with self._lock:
            return self._stub.receive_buffer(message)

    def steps(self) -> dict[str, int]:
        """Return the step of the slowest local worker of each group, by the group's number."""
        steps: dict[str, int] = {}
        for unit in list(self.units.values()):
            if isinstance(unit, Worker):
                group = str(unit.address.group)
                steps[group] = min(unit.step, steps.get(group, unit.step))
        return steps

    def traffic(self) -> dict[str, int]:
        """Return the bytes of arrays sent to and received from other processes."""
        if self._transport is None:
            return {"sent": 0, "received": 0}
        return {"sent": self._transport.sent_bytes, "received": self._transport.received_bytes}

    def close(self) -> None:
        """End every thread and close every port of this process. May be called twice."""
        self.abort({"reason": "the job was closed"}, tell=False)
        if self._transport:
            self._transport.close()
        self.writer.shutdown(wait=False, cancel_futures=True)  # not to hold up a Dask worker while it uploads
        self._limits.close()
        # units and transport know the host and each other: the next job should not have to wait for their memory
        self.units.clear()
        self._transport = None
        with self._lock:
            self._stub.forget()
        gc.collect()
        self.devices.release()
