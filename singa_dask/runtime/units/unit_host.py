"""UnitHost: set up messages and memory for the units of one process, and end them."""

from __future__ import annotations

import gc
import logging
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import Stub
from singa_dask.comm.transport import Transport
from singa_dask.comm.wire import place_of
from singa_dask.conf import JobConf
from singa_dask.data.tables.scaling import Scaling
from singa_dask.errors import A_BUG, LostUnitError
from singa_dask.ops.contract import Ops
from singa_dask.redaction import redact
from singa_dask.runtime.checkpoints.author import Author
from singa_dask.runtime.checkpoints.snapshots import StorePart
from singa_dask.runtime.planning import devices, job_plan, layout
from singa_dask.runtime.planning.layout import Rejoin
from singa_dask.runtime.planning.thread_limits import limit_process
from singa_dask.runtime.units.barrier_coordinator import BarrierCoordinator
from singa_dask.runtime.units.channel import Emit
from singa_dask.runtime.units.job_of_thread import in_job
from singa_dask.runtime.units.profiler import Trace
from singa_dask.runtime.units.router import Router
from singa_dask.runtime.units.saving import Saving
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.unit_errors import may_succeed_again
from singa_dask.runtime.units.worker import Worker

logger = logging.getLogger(__name__)

AnyStub = TypeVar("AnyStub", bound=Stub)

MAX_OWN_VALUES = 1 << 19
"""With up to this many values, the only worker of a job on a CPU updates the params in its own thread. With more, the
thread of the server updates them, in parallel with the worker."""


def make_stub(
    kind: type[AnyStub], process: int, job: JobConf, plan: job_plan.JobPlan, memory: Callable[[int, Any], Any]
) -> AnyStub:
    """Return the stub of a process. See `Stub` for ``memory``."""
    return kind(
        process,
        plan.slices,
        plan.layout.process_of,
        plan.n_sharers,
        plan.layout.server_group_of,
        share_memory=job.cluster.share_memory,
        dtype=plan.dtype,
        memory=memory,
        tree=plan.tree,
        applies_at_once=not job.updater.clip_norm,
    )


def make_server(address: Address, job: JobConf, plan: job_plan.JobPlan, stub: Stub, ops: Ops) -> Server:
    """Return a server for the slices that the plan assigns to it, with values in the memory of the stub."""
    held = [piece for piece in plan.slices if piece.server == address.id]
    values, more = partial(stub.server_values, address.group), (job.updater, job.cluster, ops, plan.n_trained)
    return Server(address, held, values, plan.scales, plan.gradient_divisors, *more)


def calls_server(job: JobConf, plan: job_plan.JobPlan, n_values: int, params_stay: bool = False) -> bool:
    """Return whether the worker of a job calls its server in its own thread instead of sending messages.

    The job must have one worker and one server, which share a process and memory, and no profile of messages.

    Parameters
    ----------
    n_values : int
        Number of values of the params.
    params_stay : bool
        Whether the params stay on the GPU of the worker. On a CPU, they must have at most `MAX_OWN_VALUES` values.
    """
    is_alone = len(plan.layout.processes) == 1 and len(plan.layout.units) == 2 and job.cluster.share_memory
    return is_alone and job.profile is None and (params_stay or n_values <= MAX_OWN_VALUES)


class UnitHost:
    """Hosts the units of one process of a job.

    Parameters
    ----------
    transport : callable
        Called with (on_message, on_lost, job=, process=, receive_buffer=, backlog=). Returns the `Transport` of this
        process. Pass None if the job has only one process.
    emit : callable
        Sends an event to the scheduler; see `Emit`.
    assignments : mapping of str to sequence of int, optional
        Assignments of blocks to workers for a new run; see `InputContext`.
    host_names : collection of str
        See `InputContext`.
    neighbours : collection of int, optional
        Processes of the job on this machine, including this one. The workers of these processes share the cores. By
        default all processes of the job are on this machine.
    layout : Layout, optional
        Used instead of the layout of the job file.
    incarnation : int
        Number of the job's incarnation, which rises with each restart, even of only some processes.
    checkpoint_url, store_part
        See `Saving`.
    rejoin : Rejoin, optional
        Set if this process joins a job whose other processes continue.
    threads : int, optional
        See `Devices`.
    memory_limit : int, optional
        Number of bytes that the Dask worker may use.
    scalings : mapping of str to Scaling, optional
        Mean and deviation of the records of each standardised layer, for a new run.

    Attributes
    ----------
    devices : Devices
        Kernels and threads of the local units.
    stub : Stub
        Holds the values of params in this process, and adds up gradients of local workers.
    units : dict of Address to Worker or Server
        Local units, including ended ones.
    threads : dict of str to Thread
        The thread of each local unit, by name.
    saving : Saving
        Saves parts of checkpoints and snapshots.
    trace : Trace or None
        Records of a profiled job; None if the job is not profiled.
    """

    def __init__(
        self,
        job_id: str,
        process: int,
        job: JobConf,
        transport: Callable[..., Transport] | None,
        emit: Emit,
        assignments: Mapping[str, Sequence[int]] | None = None,
        host_names: Collection[str] = (),
        neighbours: Collection[int] | None = None,
        layout: layout.Layout | None = None,
        incarnation: int = 0,
        checkpoint_url: str = "",
        store_part: StorePart | None = None,
        rejoin: Rejoin | None = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        scalings: Mapping[str, Scaling] | None = None,
    ) -> None:
        self.job_id = job_id
        self.process = process
        self.job = job
        self.emit = emit
        self.incarnation, self.rejoin = incarnation, rejoin
        self.saving = Saving(process, checkpoint_url, Author(job_id, incarnation), store_part)
        self.assignments, self.scalings, self.host_names = assignments or {}, scalings or {}, host_names
        self.plan = job_plan.JobPlan.make(job, layout=layout)
        layout = self.plan.layout
        self.local = layout.processes[process]
        self.devices = devices.Devices(job, layout, process, neighbours, threads)
        self.memory_limit = memory_limit
        self.units: dict[Address, Worker | Server] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.failure: dict[str, Any] | None = None
        self.stub = make_stub(Stub, process, job, self.plan, self.devices.memory)
        coordinator = BarrierCoordinator(layout.process_of, rejoin)
        self.trace = Trace(process, emit) if job.profile else None
        self.router = Router(process, layout, self.stub, self.units, coordinator, self.abort, self.trace, self.plan.way)
        self._requested: set[str] = set()
        self._lock = threading.Lock()
        self._limits = ExitStack()
        self._limits.enter_context(limit_process(self.devices.n_threads))
        if transport is not None:
            try:
                with in_job(job_id):
                    self.router.transport = transport(
                        self._receive,
                        self._lose,
                        job=job_id,
                        process=process,
                        receive_buffer=self.stub.receive_buffer,
                        backlog=self.stub.backlog,
                    )
            except BaseException:
                self.close()  # the garbage collector would end the limits in a thread that may hold their lock
                raise

    @property
    def address(self) -> str:
        """Address at which other processes reach this process; empty if the job has one process."""
        return self.router.transport.address if self.router.transport else ""

    def add(self, unit: Worker | Server) -> None:
        """Add a local unit that is about to send ``hello``, and pass pending requests to it."""
        self.units[unit.address] = unit
        self._pass_on(unit, self._requested)

    def steps(self) -> dict[str, int]:
        """Return the lowest step of the local workers of each group. Keys are group numbers as text."""
        steps: dict[str, int] = {}
        for unit in list(self.units.values()):
            if isinstance(unit, Worker):
                group = str(unit.address.group)
                steps[group] = min(unit.step, steps.get(group, unit.step))
        return steps

    def progress(self) -> dict[str, Any]:
        """Return the progress of this process.

        Returns
        -------
        dict
            ``workers``: for each local worker, its step; then, in seconds, the duration of all its steps, and its waits
            for records, for params, and for other workers of its group. ``bytes``: the bytes sent to and received from
            other processes.
        """
        times = {}
        for unit in list(self.units.values()):
            if isinstance(unit, Worker):
                wait_s = self.router.mailboxes[unit.address].wait_s
                times[str(unit.address)] = [unit.step, *unit.trainer.metrics.times_s(), wait_s]
        return {"workers": times, "bytes": list(self.router.traffic().values())}

    def request(self, what: str) -> None:
        """Request a ``stop``, ``checkpoint`` or ``snapshot`` from the local workers that decide about it.

        The first worker of each group decides at which step the group stops. The first worker of the job decides when
        to save.
        """
        self._requested.add(what)
        for unit in list(self.units.values()):
            self._pass_on(unit, {what})

    def _pass_on(self, unit: Worker | Server, requested: set[str]) -> None:
        if isinstance(unit, Worker) and unit.address.id == 0:
            unit.state.requested |= requested & {"stop"} if unit.address.group else requested

    def waits(self) -> dict[str, tuple[str, float]]:
        """Return, for each waiting local unit, a description of the wait, and its duration in seconds."""
        now = time.monotonic()
        waits = {str(unit): cancellation.waiting_for for unit, cancellation in self.router.cancellations.items()}
        return {unit: (wait[0], now - wait[1]) for unit, wait in waits.items() if wait is not None}

    def cut(self, processes: Collection[int], groups: Collection[int]) -> dict[int, int]:
        """Disconnect from processes that are to be replaced.

        Parameters
        ----------
        processes : collection of int
            Processes to be replaced.
        groups : collection of int
            Worker groups in these processes.

        Returns
        -------
        dict of int to int
            For each of ``groups`` that uses servers in this process: the newest step that all these servers have
            applied; -1 before the first step.
        """
        self.router.cut(processes)
        applied: dict[int, int] = {}
        servers = [unit for unit in list(self.units.values()) if isinstance(unit, Server)]
        for group in groups:
            server_group = self.plan.layout.server_group_of(group)
            steps = [server.applied(group) for server in servers if server.address.group == server_group]
            if known := [step for step in steps if step is not None]:
                applied[group] = min(known)
        return applied

    def abort(self, failure: dict[str, Any], tell: bool = True) -> None:
        """End all units of this process and, if ``tell`` is True, of all other processes.

        Only the first call has an effect.

        ``failure`` has the ``reason`` in one line, ``retry`` (see `describe_error`), and other values for the driver.
        """
        with self._lock:
            if self.failure is not None:
                return
            self.failure = {"retry": False, **failure}
        self.router.is_closed = True
        reason = str(failure.get("reason", "the job failed"))
        for cancellation in self.router.cancellations.values():
            cancellation.cancel(reason)
        self.router.end_units({"reason": reason, "retry": self.failure["retry"]}, tell)

    def _receive(self, message: Message) -> None:
        """Deliver a message from another process; an error ends the job."""
        try:
            self.router.receive(message)
        except Exception as error:
            logger.exception("%s from %s to %s", message.kind, message.src, message.dst)
            reason = f"process {self.process}: {message.kind} from {message.src}: {error!r}"
            failure = {"reason": reason, "exit_code": 1, "error": redact(traceback.format_exc()) + A_BUG}
            self.abort({**failure, "retry": may_succeed_again(error)})

    def _lose(self, address: str, error: str) -> None:
        if address not in self.router.peers:
            return  # the process at this address has been replaced
        process = self.router.peers.index(address)
        units = ", ".join(str(unit) for unit in self.plan.layout.processes[process])
        reason = f"process {process} at {place_of(address)} cannot be reached ({error}). Lost: {units}."
        failure = {"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True, "retry": True}
        self.abort({**failure, "unreachable": process})

    def close(self) -> None:
        """End every thread and close every port of this process. A second call has no effect."""
        self.abort({"reason": "the job was closed"}, tell=False)
        self.router.close()
        self.saving.close()
        self._limits.close()
        # units and transport refer to the host and to each other; break these cycles to free memory for the next job
        self.units.clear()
        self.stub.forget()
        gc.collect()
        self.devices.release()
