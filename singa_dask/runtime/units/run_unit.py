"""Run one worker or server as a Dask task: set it up, run it, and return its report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from singa_dask.cancellation import Cancellation, working_for
from singa_dask.comm.message import Address, Message
from singa_dask.comm.slices import ParamSlice
from singa_dask.conf import Phase
from singa_dask.errors import Aborted
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, Save, write_part
from singa_dask.runtime.planning import devices, machine
from singa_dask.runtime.planning.nets import add_passes, build_nets
from singa_dask.runtime.planning.thread_limits import limit_thread
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.job_of_thread import in_job
from singa_dask.runtime.units.profiler import profile_server
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.unit_errors import describe_error
from singa_dask.runtime.units.unit_host import UnitHost, calls_server, make_server
from singa_dask.runtime.units.worker import Worker
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.shown import plural

logger = logging.getLogger(__name__)


LEAVE_S = 1.0
"""Seconds that a unit has to end after an abort. Only calls into foreign code and long kernels take longer."""


def run_unit(
    host: UnitHost, address: Address, resume: str | Checkpoint | None, init_from: Sequence[str]
) -> dict[str, Any]:
    """Run one unit to its end; return its report.

    The unit has its own thread, and checks for an abort before each layer and each read. If a call, such as a read in a
    C library, does not return within `LEAVE_S` seconds of the abort, the thread is left behind. The thread ends and
    frees its memory after that call.

    Parameters
    ----------
    address : Address
        The unit.
    resume, init_from
        See `InitialState`.

    Returns
    -------
    dict
        The report. ``state`` is done, failed or aborted. A worker adds its metrics. A failed unit adds the texts that
        `describe_error` returns instead of the exception, whose class may not exist in other processes. ``retry``:
        whether the job may succeed when it is tried again. ``left_behind``: the call in which the thread was left.
    """
    cancellation = host.router.cancellations[address]
    reports: list[dict[str, Any]] = []
    ended: SimpleQueue[bool] = SimpleQueue()

    def live() -> None:
        with in_job(host.job_id), working_for(cancellation):
            reports.append(_live(host, address, resume, init_from))
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
    thread.join()  # joining the thread frees its memory
    return reports[0]


def _leave_behind(host: UnitHost, address: Address) -> dict[str, Any]:
    """Return the report of a unit whose thread is left behind in a call that cannot be interrupted."""
    waiting_for = host.router.cancellations[address].waiting_for
    what = waiting_for[0] if waiting_for else "a computation"
    thread = threading.current_thread()
    name, thread.name = thread.name, str(address)  # log messages show the unit as the name of the thread
    with in_job(host.job_id):
        logger.warning("%s is left behind in a call that does not return: %s", address, what)
    thread.name = name
    facts = {"unit": str(address), "state": "aborted", **(host.failure or {}), "left_behind": what}
    return facts | _facts(host, address)


def _live(
    host: UnitHost, address: Address, resume: str | Checkpoint | None, init_from: Sequence[str]
) -> dict[str, Any]:
    """Run one unit to its end in its own thread; return its report."""
    cancellation = host.router.cancellations[address]
    report: dict[str, Any] = {"unit": str(address)}
    try:
        with cancellation.waiting("the initial values"):
            initial_state = InitialState(host.job, resume, init_from, host.rejoin, host.incarnation > 0)
        run = _run_worker if address.kind == "worker" else _run_server
        report |= {"state": "done", **run(host, address, initial_state)}
    except Aborted:
        report |= {"state": "aborted", "retry": False, **(host.failure or {})}
    except BaseException as error:
        report |= {"state": "failed", **describe_error(address, host.units.get(address), error)}
        logger.error("%s", report["reason"])
        host.abort({"reason": report["reason"], "retry": report["retry"]})
    finally:
        if host.trace is not None:
            host.trace.flush()
    return report | _facts(host, address)


def _facts(host: UnitHost, address: Address) -> dict[str, Any]:
    """Return the part of a unit's report that does not depend on how it ended."""
    unit = host.units.get(address)
    return {
        "step": getattr(unit, "step", -1),
        "bad_records": getattr(unit, "bad_records", 0),
        "bytes": host.router.traffic(),
        "peak_memory": machine.peak_memory(),
    }


def _run_worker(host: UnitHost, address: Address, initial_state: InitialState) -> dict[str, Any]:
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
        stack.enter_context(limit_thread(threads))
        stack.enter_context(devices.explain_memory_errors(nets.each))
        stack.enter_context(ops.activate())
        on = ops.device if devices.is_gpu(ops.device) else plural(threads, "thread")
        if host.job.threads > threads and not devices.is_gpu(ops.device):
            logger.warning("threads: %d is more than the worker's share of the cores on this host", host.job.threads)
        logger.info("computes with %s on %s", ops.name, on)
        nets[Phase.TRAIN].context.knowledge.known.scalings.update(host.scalings)
        initial_state.restore_knowledge(nets[Phase.TRAIN])
        with cancellation.waiting("the number of test records"):
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
            params,
            host.saving,
            host.trace,
        )
        host.add(worker)
        logger.info("starts at step %d", worker.step)
        metrics = worker.run()
        logger.info("stops at step %d", worker.step)
    return {**metrics, "ops": ops.name, "device": ops.device, "threads": threads}


def _close(net: NeuralNet, cancellation: Cancellation) -> None:
    """Close a net once its current read has returned."""
    with cancellation.waiting("the end of a read"):
        net.close()


def _params_of(host: UnitHost, worker: Address, net: NeuralNet, ops: Ops, stack: ExitStack) -> WorkerParams:
    """Allocate the params of a worker's training net; return the object that exchanges them with servers.

    On a GPU the object may have a thread, which ends when ``stack`` is closed.
    """
    mirror = None
    if devices.is_gpu(ops.device) and not host.devices.params_stay:

        def fail(error: BaseException) -> None:
            host.abort(describe_error(worker, host.units.get(worker), error))

        mirror = stack.enter_context(HostMirror(worker, ops, host.router.post, fail))
    n_values = sum(owner.size for owner in net.owners)
    calls = mirror is None and calls_server(host.job, host.plan, n_values, host.devices.params_stay)

    def own_server() -> Server | None:
        unit = host.units.get(Address.server(0, 0)) if calls else None
        return unit if isinstance(unit, Server) else None

    return WorkerParams(worker, net, host.plan, host.stub, host.router.post, mirror, own_server)


def _run_server(host: UnitHost, address: Address, initial_state: InitialState) -> dict[str, Any]:
    plan, cancellation = host.plan, host.router.cancellations[address]

    def state(what: str, piece: ParamSlice) -> np.ndarray | None:
        cancellation.check()
        return initial_state.updater_state(plan, what, piece)

    ops, job = host.devices.ops(address), host.job
    # a server that shares a GPU with workers may be the first unit to run out of memory
    with ops.activate(), devices.explain_memory_errors(lambda: build_nets(job, 0, 0).values()):
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
    """Return the function that handles a server's messages; in a profiled job, it also records them."""
    profile, plan = host.job.profile, host.plan
    if host.trace is None or profile is None:
        return server.handle
    group_of = plan.layout.server_group_of
    served = [group for group in range(host.job.cluster.nworker_groups) if group_of(group) == server.address.group]
    windows = [profile.window(initial_state.step_of(group), host.job.train_steps) for group in served]
    return profile_server(server, host.trace, windows, plan.names)


def _serve(host: UnitHost, server: Server, handle: Callable[[Message], list[Message]]) -> None:
    """Answer messages until the job ends."""
    inbox, cancellation = host.router.inboxes[server.address], host.router.cancellations[server.address]
    while (message := inbox.get()).kind != "stop":
        cancellation.check()
        if message.kind == "abort":
            raise Aborted(message.info["reason"])
        if message.kind == "failed":  # an update that the server's only worker made in its own thread has failed
            raise message.info["error"]
        if message.kind == "copy":
            _copy_slices(host, server, message)
        elif message.kind != "start":
            with server.lock:
                answers = handle(message)
            for answer in answers:
                host.router.post(answer)
        del message  # free the memory of this message before receiving the next one
    cancellation.check()


def _copy_slices(host: UnitHost, server: Server, message: Message) -> None:
    """Copy the slices of the server, let the training continue, and save the copy in the background."""
    with server.lock:
        tensors = server.copy_slices()
    requester = {"requester": message.info["requester"]}
    host.router.post(Message("r-copy", src=server.address, dst=message.src, step=message.step, info=requester))

    index, n_parts = server.address.id, host.job.cluster.nservers_per_group

    def write(save: Save) -> dict[str, Any]:
        return write_part(save, index, n_parts, tensors, host.plan.names)

    def send(facts: dict[str, Any]) -> None:
        host.router.post(
            Message("part", src=server.address, dst=message.src, step=message.step, info=facts | requester)
        )

    host.saving.later(message.step, message.info, write, send)
