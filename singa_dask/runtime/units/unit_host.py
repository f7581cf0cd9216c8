"""UnitHost: hosts the units of one process: sets up messages and memory for them, and ends them."""

from __future__ import annotations

import errno
import gc
import logging
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from singa_dask import modules
from singa_dask.cancellation import Cancellation, working_for
from singa_dask.comm.message import Address, Message
from singa_dask.comm.slices import ParamSlice
from singa_dask.comm.stub import Stub
from singa_dask.comm.transport import Transport
from singa_dask.comm.wire import place_of
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.errors import (
    A_BUG,
    Aborted,
    CheckpointError,
    CommError,
    LostUnitError,
    SingaError,
    is_out_of_memory,
    text_of,
)
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.redaction import redact
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, Save, write_part
from singa_dask.runtime.checkpoints.manifest import Author, Keep, keep_in_memory, write_file
from singa_dask.runtime.planning import placement
from singa_dask.runtime.planning.nets import add_passes, build_nets
from singa_dask.runtime.units.profiler import Trace, profiled
from singa_dask.runtime.units.router import Coordinator, Router
from singa_dask.runtime.units.run_state import Channel, Emit, InitialState, Rejoin
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.worker import Worker
from singa_dask.runtime.units.worker_params import HostMirror, WorkerParams
from singa_dask.shown import plural

# Which job a thread works for, so that the log messages of the jobs of one process do not mix.


_JOB: ContextVar[str] = ContextVar("job", default="")


@contextmanager
def in_job(job_id: str) -> Iterator[None]:
    """Let this thread work for a job, and so the threads that it starts in a copy of its context."""
    token = _JOB.set(job_id)
    try:
        yield
    finally:
        _JOB.reset(token)


class JobFilter(logging.Filter):
    """Passes the log messages of threads that work for one job, and of those that work for none.

    Add it to a handler: the handler runs in the thread that logs.

    Parameters
    ----------
    job_id : str
    """

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def filter(self, record: logging.LogRecord) -> bool:
        return _JOB.get() in ("", self.job_id)


# of a filesystem or a network that does not work now; not of files that are missing, damaged or forbidden
PASSING = {
    errno.EAGAIN,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ETIMEDOUT,
}


AnyStub = TypeVar("AnyStub", bound=Stub)


def make_stub(
    kind: type[AnyStub], process: int, job: JobConf, plan: placement.JobPlan, memory: Callable[[int, Any], Any]
) -> AnyStub:
    """Return the stub of a process; ``memory`` as of `Stub`."""
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


def make_server(address: Address, job: JobConf, plan: placement.JobPlan, stub: Stub, ops: Ops) -> Server:
    """Return a server with the slices that the plan gives it, in the memory of the stub."""
    held = [piece for piece in plan.slices if piece.server == address.id]
    values, more = partial(stub.server_values, address.group), (job.updater, job.cluster, ops, plan.n_trained)
    return Server(address, held, values, plan.scales, plan.n_shares, *more)


def is_own_server(job: JobConf, plan: placement.JobPlan) -> bool:
    """Tell whether the only server is in the process of the only worker, and shares its memory."""
    return len(plan.layout.processes) == 1 and len(plan.layout.units) == 2 and job.cluster.share_memory


class UnitHost:
    """Hosts the units of one process of a job.

    Parameters
    ----------
    job_id : str
    process : int
    job : JobConf
    transport : callable
        (on_message, on_lost, job=, process=, receive_buffer=, backlog=) -> Transport of this process, or None when
        the job has one process only.
    emit : Emit
    assignments : mapping of str to sequence of int, optional
        For a job that does not continue another run; see `Context`.
    host_names : collection of str
        See `Context`.
    neighbours : collection of int, optional
        Processes of the job on this machine, including this one; their workers share its cores. By default all.
    layout : Layout, optional
        Where the units are, if not where the job file puts them.
    life : int
        Of the job.
    keep : callable, optional
        Keeps parts of snapshots, see `Keep`; called in the thread of `keeper`. Without it the job takes none.
    rejoin : Rejoin, optional
        If the other processes of the job go on.
    threads : int, optional
        See `Devices`.
    memory_limit : int, optional
        Bytes that the Dask worker may take.

    Attributes
    ----------
    devices : Devices
        Kernels of the local units, and their threads.
    stub : Stub
        Values and gradients of params in this process.
    router : Router
        Delivers messages.
    units : dict of Address to object
        Local workers and servers, also those that have ended.
    threads : dict of str to Thread
        Of each local unit, by name.
    writer, keeper : DaemonThreads
        One thread writes parts of checkpoints in the background, the other one keeps those of snapshots, which do not
        wait for a file system.
    trace : Trace or None
        If the job is profiled.
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
        layout: placement.Layout | None = None,
        life: int = 0,
        keep: Keep | None = None,
        rejoin: Rejoin | None = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        scalings: Mapping[str, Scaling] | None = None,
    ) -> None:
        self.job_id = job_id
        self.process = process
        self.job = job
        self.emit = emit
        self.life, self.keep, self.rejoin = life, keep, rejoin
        self.author = Author(job_id, life)
        self.assignments, self.scalings, self.host_names = assignments or {}, scalings or {}, host_names
        self.plan = placement.JobPlan.make(job, layout=layout)
        layout = self.plan.layout
        self.local = layout.processes[process]
        self.devices = placement.Devices(job, layout, process, neighbours, threads)
        self.memory_limit = memory_limit
        self.units: dict[Address, Worker | Server] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.failure: dict[str, Any] | None = None
        self.writer = DaemonThreads(1, f"checkpoint-{process}")
        self.keeper = DaemonThreads(1, f"snapshot-{process}")
        self.stub = make_stub(Stub, process, job, self.plan, self.devices.memory)
        coordinator = Coordinator(layout.process_of, rejoin)
        self.trace = Trace(process, emit) if job.profile else None
        self.router = Router(process, layout, self.stub, self.units, coordinator, self.abort, self.trace, self.plan.way)
        self._requested: set[str] = set()
        self._lock = threading.Lock()
        self._limits = ExitStack()
        self._limits.enter_context(placement.limit_process(self.devices.n_threads))
        if transport is not None:
            with in_job(job_id):
                self.router.transport = transport(
                    self._receive,
                    self._lose,
                    job=job_id,
                    process=process,
                    receive_buffer=self.stub.receive_buffer,
                    backlog=self.stub.backlog,
                )

    # -- the start ---------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where other processes reach this one; empty when there is no other."""
        return self.router.transport.address if self.router.transport else ""

    def connect(self, peers: Sequence[str]) -> None:
        """Set the address of every process."""
        self.router.connect(peers)

    def add(self, unit: Worker | Server) -> None:
        """Add a local unit that is ready to say hello; pass on what was requested before."""
        self.units[unit.address] = unit
        self._pass_on(unit, self._requested)

    def save_later(
        self,
        step: int,
        where: Mapping[str, Any],
        write: Callable[[Save], dict[str, Any]],
        then: Callable[[dict[str, Any]], None],
    ) -> None:
        """Save a part of a checkpoint at a ``url``, or of a snapshot, in the background; see `SaveLater`."""

        def run() -> None:
            try:
                result = write(self._save_of(step, where))
            except Exception as error:  # reported to the worker that asked, which decides what to do
                result = {"error": text_of(error)}
            then(result)

        (self.writer if "url" in where else self.keeper).submit(run)

    def _save_of(self, step: int, where: Mapping[str, Any]) -> Save:
        if "url" in where:
            return partial(write_file, where["url"], keep=where.get("keep", False), author=self.author)
        if self.keep is None:
            raise CheckpointError(f"process {self.process} has no place for snapshots. Expected one in every process.")
        return partial(keep_in_memory, self.keep, step, where["snapshot"], life=self.life)

    # -- meanwhile ---------------------------------------------------------------------------------------

    def steps(self) -> dict[str, int]:
        """Return the step of the slowest local worker of each group, by the group's number."""
        steps: dict[str, int] = {}
        for unit in list(self.units.values()):
            if isinstance(unit, Worker):
                group = str(unit.address.group)
                steps[group] = min(unit.step, steps.get(group, unit.step))
        return steps

    def progress(self) -> dict[str, Any]:
        """Return what this process has done so far.

        Returns
        -------
        dict
            ``workers``: of each local worker its step; the duration of all steps; for how long it has waited for
            records, for params, and for others of its group. All in seconds. ``bytes``: sent to and received from
            other processes.
        """
        times = {}
        for unit in list(self.units.values()):
            if isinstance(unit, Worker):
                wait_s = self.router.mailboxes[unit.address].wait_s
                times[str(unit.address)] = [unit.step, *unit.trainer.metrics.times_s(), wait_s]
        return {"workers": times, "bytes": list(self.router.traffic().values())}

    def request(self, what: str) -> None:
        """Ask those that decide, if they are here, for a ``stop``, a ``checkpoint`` or a ``snapshot``, soon.

        The first worker of each group stops it at a step that all can agree on; the first worker of the job saves.
        """
        self._requested.add(what)
        for unit in list(self.units.values()):
            self._pass_on(unit, {what})

    def _pass_on(self, unit: Worker | Server, requested: set[str]) -> None:
        if isinstance(unit, Worker) and unit.address.id == 0:
            unit.state.requested |= requested & {"stop"} if unit.address.group else requested

    def waits(self) -> dict[str, tuple[str, float]]:
        """Return what each local unit waits for, and for how many seconds; without those that compute."""
        now = time.monotonic()
        waits = {str(unit): cancellation.waiting_for for unit, cancellation in self.router.cancellations.items()}
        return {unit: (wait[0], now - wait[1]) for unit, wait in waits.items() if wait is not None}

    # -- replacements ------------------------------------------------------------------------------------

    def cut(self, processes: Collection[int], groups: Collection[int]) -> dict[int, int]:
        """Separate from processes that are to be replaced.

        Parameters
        ----------
        processes : collection of int
        groups : collection of int
            Worker groups in these processes.

        Returns
        -------
        dict of int to int
            For each of these groups that servers of this process serve: the newest step that all of these have
            applied, -1 before the first one.
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

    # -- the end -----------------------------------------------------------------------------------------

    def abort(self, failure: dict[str, Any], tell: bool = True) -> None:
        """End all units of this process; with ``tell`` those of the other processes too. The first failure is kept.

        Parameters
        ----------
        failure : dict
            ``reason``: one line; ``retry``: whether the job may succeed when it is tried again, see `explain`; more
            for the driver.
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
        """Deliver a message from another process; an error ends the job, as somebody may wait for the answer."""
        try:
            self.router.receive(message)
        except Exception as error:
            logger.exception("%s from %s to %s", message.kind, message.src, message.dst)
            reason = f"process {self.process}: {message.kind} from {message.src}: {error!r}"
            failure = {"reason": reason, "exit_code": 1, "error": redact(traceback.format_exc()) + A_BUG}
            self.abort({**failure, "retry": may_succeed_again(error)})

    def _lose(self, address: str, error: str) -> None:
        if address not in self.router.peers:
            return  # it was replaced meanwhile
        process = self.router.peers.index(address)
        units = ", ".join(str(unit) for unit in self.plan.layout.processes[process])
        reason = f"process {process} at {place_of(address)} cannot be reached ({error}). Lost: {units}."
        failure = {"reason": reason, "exit_code": LostUnitError.exit_code, "expected": True, "retry": True}
        self.abort({**failure, "unreachable": process})

    def close(self) -> None:
        """End every thread and close every port of this process. May be called twice."""
        self.abort({"reason": "the job was closed"}, tell=False)
        self.router.close()
        self.writer.close()
        self.keeper.close()
        self._limits.close()
        # units and transport refer to the host and to each other: the next job must not wait for their memory
        self.units.clear()
        self.stub.forget()
        gc.collect()
        self.devices.release()


logger = logging.getLogger(__name__)


def explain(address: Address, unit: Worker | Server | None, error: BaseException) -> dict[str, Any]:
    """Describe a failure: in the user's code if it was there; unit, step, layer.

    Returns
    -------
    dict
        ``reason``: one line that says where; ``cause``: the same without the unit; ``error``: the traceback;
        ``exit_code``; ``expected``: whether the line says it all; ``retry``: see `may_succeed_again`.
    """
    where = str(address)
    if isinstance(unit, Worker):
        where += f", step {unit.step}"
        layer = unit.trainer.layer
        # many messages begin with the layer themselves
        if layer and not text_of(error).startswith((f"layer {layer.name}:", f"layer {layer.name},")):
            where += f", layer {layer.name}"
    # reading the source of what failed takes memory
    blame = None if is_out_of_memory(error) else modules.blame(error)
    if blame is not None:
        cause = f"{blame.place}: {blame.text}"
        facts = {"reason": f"{cause} ({where})", "cause": cause, "error": blame.traceback}
        return {**facts, "exit_code": 1, "expected": False, "retry": False}
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "reason": f"{where}: {text_of(error)}",
        "cause": text_of(error),
        "error": redact("".join([*lines, A_BUG])),
        "exit_code": error.exit_code if isinstance(error, SingaError) else 1,
        "expected": isinstance(error, SingaError) or is_out_of_memory(error),
        "retry": may_succeed_again(error),
    }


def may_succeed_again(error: BaseException) -> bool:
    """Return whether what has failed may succeed when it is tried again, on other machines or a little later.

    So it is where a process was lost, or a filesystem or the network did not answer. So it is not where a job, its
    code or its records are wrong, where memory is short, and where a number is not finite.
    """
    passed: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in passed:  # one that is raised again may be its own cause
        if isinstance(cause, CommError | LostUnitError | ConnectionError | TimeoutError):
            return True
        if isinstance(cause, OSError) and cause.errno in PASSING:
            return True
        passed.append(cause)
        cause = cause.__cause__
    return False


# Run one worker or server as a Dask task: set it up, run it, and report. Exceptions become reports.


LEAVE_S = 1.0
"""Seconds that a unit has to end after an abort; only calls into foreign code and long kernels take longer."""

MAX_OWN_VALUES = 1 << 19
"""Params with more values are updated by the thread of the server, while a worker on a CPU goes on."""


def run_unit(
    host: UnitHost, address: Address, checkpoint_url: str, resume: str | Checkpoint | None, init_from: Sequence[str]
) -> dict[str, Any]:
    """Run one unit to its end; for ``resume`` see `InitialState`.

    The unit has a thread of its own. It ends soon after an abort: it looks for one before each layer and each
    read. If it is then in a call that does not return, such as a read in a C library, its thread is left behind
    `LEAVE_S` seconds after the abort: it ends after that call, and frees then what it holds.

    Returns
    -------
    dict
        ``state``: done, failed or aborted; the metrics of a worker; for a failure what `explain` says: errors are
        returned as text, as an exception class of the user might not exist elsewhere. ``retry``: whether the job may
        succeed when it is tried again. ``left_behind``: what the thread was doing, if it was left behind.
    """
    cancellation = host.router.cancellations[address]
    reports: list[dict[str, Any]] = []
    ended: SimpleQueue[bool] = SimpleQueue()

    def live() -> None:
        with in_job(host.job_id), working_for(cancellation):
            reports.append(_live(host, address, checkpoint_url, resume, init_from))
        ended.put(True)

    host.emit({"event": "unit", "unit": str(address)})
    thread = threading.Thread(target=copy_context().run, args=(live,), name=str(address), daemon=True)
    thread.start()
    host.threads[str(address)] = thread
    cancellation.on_cancel(lambda: ended.put(False))
    if not ended.get():
        with suppress(Empty):
            ended.get(timeout=LEAVE_S)
    if not reports:
        return _leave_behind(host, address)
    thread.join()  # it holds no memory any more
    return reports[0]


def _leave_behind(host: UnitHost, address: Address) -> dict[str, Any]:
    """Report for a unit whose thread is in a call that nobody can end; it ends by itself after that call."""
    waiting_for = host.router.cancellations[address].waiting_for
    what = waiting_for[0] if waiting_for else "a computation"
    thread = threading.current_thread()
    name, thread.name = thread.name, str(address)  # logged as a message of the unit
    with in_job(host.job_id):
        logger.warning("%s is left behind in a call that does not return: %s", address, what)
    thread.name = name
    facts = {"unit": str(address), "state": "aborted", **(host.failure or {}), "left_behind": what}
    return facts | _facts(host, address)


def _live(
    host: UnitHost, address: Address, checkpoint_url: str, resume: str | Checkpoint | None, init_from: Sequence[str]
) -> dict[str, Any]:
    """Run one unit to its end, in a thread of its own; return its report."""
    cancellation = host.router.cancellations[address]
    report: dict[str, Any] = {"unit": str(address)}
    try:
        with cancellation.waiting("what the job starts from"):
            initial_state = InitialState(host.job, resume, init_from, host.rejoin, host.life > 0)
        run = _run_worker if address.kind == "worker" else _run_server
        report |= {"state": "done", **run(host, address, initial_state, checkpoint_url)}
    except Aborted:
        report |= {"state": "aborted", "retry": False, **(host.failure or {})}
    except BaseException as error:
        report |= {"state": "failed", **explain(address, host.units.get(address), error)}
        logger.error("%s", report["reason"])
        host.abort({"reason": report["reason"], "retry": report["retry"]})
    finally:
        if host.trace is not None:
            host.trace.flush()
    return report | _facts(host, address)


def _facts(host: UnitHost, address: Address) -> dict[str, Any]:
    """Return what the report of a unit says however it ended."""
    unit = host.units.get(address)
    return {
        "step": getattr(unit, "step", -1),
        "bad_records": getattr(unit, "bad_records", 0),
        "bytes": host.router.traffic(),
        "peak_memory": placement.peak_memory(),
    }


def _run_worker(host: UnitHost, address: Address, initial_state: InitialState, checkpoint_url: str) -> dict[str, Any]:
    assignments = initial_state.resumed.assignments if initial_state.resumed else host.assignments
    ops, threads = host.devices.ops(address), host.devices.threads(address)
    cancellation = host.router.cancellations[address]
    nets = build_nets(
        host.job,
        address.group,
        address.id,
        ops=ops,
        assignments=assignments,
        host_names=host.host_names,
        cancellation=cancellation,
        memory=host.devices.worker_bytes(host.memory_limit),
    )
    with ExitStack() as stack:
        stack.enter_context(placement.limit_thread(threads))
        stack.enter_context(placement.explain_memory_errors(nets.each))
        stack.enter_context(ops.activate())
        on = ops.device if placement.is_gpu(ops.device) else plural(threads, "thread")
        if host.job.threads > threads and not placement.is_gpu(ops.device):
            logger.warning("threads: %d is more than a worker's share of the cores here", host.job.threads)
        logger.info("computes with %s on %s", ops.name, on)
        nets[Phase.TRAIN].context.class_names.scalings.update(host.scalings)
        initial_state.give_class_names(nets[Phase.TRAIN])
        with cancellation.waiting("the number of records of tests"):
            add_passes(host.job, nets)
        for net in nets.each():
            net.context.exchange = host.router.mailboxes[address]
            net.allocate()
            stack.callback(_close, net, cancellation)
        params = _params_of(host, address, nets[Phase.TRAIN], ops, stack)
        initial_state.seek(nets, address.group, host.job.cluster.nworker_groups)
        worker = Worker(
            Channel(address, host.router.post, host.emit, host.router.inboxes[address], cancellation),
            host.job,
            host.plan,
            nets,
            initial_state,
            checkpoint_url,
            params,
            host.save_later,
            host.writer.submit,
            host.keep is not None and host.job.cluster.snapshot_freq != 0,
            host.author,
            host.trace,
        )
        host.add(worker)
        logger.info("starts at step %d", worker.step)
        metrics = worker.run()
        logger.info("stops at step %d", worker.step)
    return {**metrics, "ops": ops.name, "device": ops.device, "threads": threads}


def _close(net: NeuralNet, cancellation: Cancellation) -> None:
    """Close a net, once the read that it is in has returned."""
    with cancellation.waiting("the end of a read"):
        net.close()


def _params_of(host: UnitHost, worker: Address, net: NeuralNet, ops: Ops, stack: ExitStack) -> WorkerParams:
    """Give the training net of a worker memory for its params; return their exchange, which ends with the stack."""
    mirror = None
    if placement.is_gpu(ops.device) and not host.devices.params_stay:

        def fail(error: BaseException) -> None:
            host.abort(explain(worker, host.units.get(worker), error))

        mirror = stack.enter_context(HostMirror(worker, ops, host.router.post, fail))
    own_server = _own_server_of(host, net, mirror)
    return WorkerParams(worker, net, host.plan, host.stub, host.router.post, mirror, own_server)


def _own_server_of(host: UnitHost, net: NeuralNet, mirror: HostMirror | None) -> Callable[[], Server | None]:
    """Return what finds the server that a worker may call itself: one of its process that serves no other worker."""
    server = Address.server(0, 0)
    if not is_own_server(host.job, host.plan) or mirror is not None or host.trace is not None:
        return lambda: None
    if not host.devices.params_stay and sum(owner.size for owner in net.owners) > MAX_OWN_VALUES:
        return lambda: None

    def find() -> Server | None:
        unit = host.units.get(server)
        return unit if isinstance(unit, Server) else None

    return find


def _run_server(host: UnitHost, address: Address, initial_state: InitialState, checkpoint_url: str) -> dict[str, Any]:
    plan, cancellation = host.plan, host.router.cancellations[address]

    def state(what: str, piece: ParamSlice) -> np.ndarray | None:
        cancellation.check()
        return initial_state.updater_state(plan, what, piece)

    ops, job = host.devices.ops(address), host.job
    # on a GPU, which it shares with workers, the server may be the first to run out of memory
    with ops.activate(), placement.explain_memory_errors(lambda: build_nets(job, 0, 0).values()):
        server = make_server(address, job, plan, host.stub, ops)
        server.restore(state, partial(initial_state.applied, plan))
        initial_state.release()
        host.add(server)
        host.router.post(Message("hello", src=address, dst=Address.stub(0)))
        sizes = [piece.size for piece in plan.slices if piece.server == address.id]
        logger.info("holds %s, %s", plural(len(sizes), "slice"), plural(sum(sizes), "value"))
        _serve(host, server, _handler(host, server, initial_state))
    return {"updates": {**server.counts.report(), "refused": server.duplicates}}


def _handler(host: UnitHost, server: Server, initial_state: InitialState) -> Callable[[Message], list[Message]]:
    """Return what takes the messages to a server; in a job that is profiled it records them."""
    profile, plan = host.job.profile, host.plan
    if host.trace is None or profile is None:
        return server.handle
    group_of = plan.layout.server_group_of
    served = [group for group in range(host.job.cluster.nworker_groups) if group_of(group) == server.address.group]
    windows = [profile.window(initial_state.step_of(group), host.job.train_steps) for group in served]
    return profiled(server, host.trace, windows, plan.names)


def _serve(host: UnitHost, server: Server, handle: Callable[[Message], list[Message]]) -> None:
    """Answer messages until the job ends."""
    inbox, cancellation = host.router.inboxes[server.address], host.router.cancellations[server.address]
    while (message := inbox.get()).kind != "stop":
        cancellation.check()
        if message.kind == "abort":
            raise Aborted(message.info["reason"])
        if message.kind == "failed":  # in the thread of its only worker
            raise message.info["error"]
        if message.kind == "snapshot":
            _snapshot(host, server, message)
        elif message.kind != "start":
            with server.lock:
                answers = handle(message)
            for answer in answers:
                host.router.post(answer)
        del message  # its memory is for the next one
    cancellation.check()


def _snapshot(host: UnitHost, server: Server, message: Message) -> None:
    """Copy the slices of the server, let training continue, and write or keep the copy in the background."""
    with server.lock:
        tensors = server.snapshot()
    term = {"term": message.info["term"]}
    host.router.post(Message("r-snapshot", src=server.address, dst=message.src, step=message.step, info=term))

    index, n_parts = server.address.id, host.job.cluster.nservers_per_group

    def write(save: Save) -> dict[str, Any]:
        return write_part(save, index, n_parts, tensors, host.plan.names)

    def send(facts: dict[str, Any]) -> None:
        host.router.post(Message("part", src=server.address, dst=message.src, step=message.step, info=facts | term))

    host.save_later(message.step, message.info, write, send)
