"""Run one worker or server as a Dask task: set it up, run it, and report. Exceptions become reports."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from singa_dask import modules
from singa_dask.comm import Address, Message
from singa_dask.conf import Phase
from singa_dask.errors import A_BUG, Aborted, CheckpointError, SingaError
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.runtime.checkpoints import checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, Piece
from singa_dask.runtime.checkpoints.snapshots import keep_part
from singa_dask.runtime.planning.devices import explain_memory_errors, is_gpu
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.planning.resources import limit_thread, peak_memory
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.unit_host import UnitHost
from singa_dask.runtime.units.worker import Worker
from singa_dask.runtime.units.worker_params import WorkerParams

__all__ = ["run_unit"]

logger = logging.getLogger(__name__)


def run_unit(
    host: UnitHost, address: Address, checkpoint_url: str, resume: str | Checkpoint | None, init_from: Sequence[str]
) -> dict[str, Any]:
    """Run one unit to its end; for ``resume`` see `InitialState`.

    Returns
    -------
    dict
        ``state``: done, failed or aborted; the metrics of a worker; for a failure ``error``, its traceback, and
        ``exit_code``. Errors are returned as text, as an exception class of the user might not exist elsewhere.
    """
    thread = threading.current_thread()
    name, thread.name = thread.name, str(address)
    report: dict[str, Any] = {"unit": str(address)}
    host.emit({"event": "unit", "unit": str(address)})
    try:
        initial_state = InitialState(host.job, resume, init_from)
        run = _run_worker if address.kind == "worker" else _run_server
        report |= {"state": "done", **run(host, address, initial_state, checkpoint_url)}
    except Aborted:
        report |= {"state": "aborted", **(host.failure or {})}
    except BaseException as error:
        report |= {"state": "failed", **_explain(host, address, error)}
        logger.error("%s", report["reason"])
        host.abort({"reason": report["reason"]})
    finally:
        unit = host.units.get(address)
        report["step"] = getattr(unit, "step", -1)
        report["bad_records"] = getattr(unit, "bad_records", 0)
        report["bytes"] = host.router.traffic()
        report["peak_memory"] = peak_memory()
        thread.name = name
    return report


def _explain(host: UnitHost, address: Address, error: BaseException) -> dict[str, Any]:
    """Describe where an exception happened: in the user's code if it was there; unit, step, layer."""
    unit = host.units.get(address)
    where = str(address)
    if isinstance(unit, Worker):
        where += f", step {unit.step}"
        layer = unit.layer
        where += f", layer {layer.name}" if layer else ""
    found = modules.blame(error)
    if found is not None:
        reason = f"{found.place}: {found.text} ({where})"
        cause = f"{found.place}: {found.text}"
        return {"reason": reason, "cause": cause, "error": found.traceback, "exit_code": 1, "expected": False}
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {
        "reason": f"{where}: {_text_of(error)}",
        "cause": _text_of(error),
        "error": "".join([*lines, A_BUG]),
        "exit_code": error.exit_code if isinstance(error, SingaError) else 1,
        "expected": isinstance(error, SingaError | MemoryError),
    }


def _text_of(error: BaseException) -> str:
    """Return the message of an exception, with its type unless it is one of this package."""
    if isinstance(error, MemoryError):
        return f"out of memory: {error or 'an allocation failed'}. Set a smaller batchsize, or use more workers."
    return str(error) if isinstance(error, SingaError) else f"{type(error).__name__}: {error}"


def _run_worker(host: UnitHost, address: Address, initial_state: InitialState, checkpoint_url: str) -> dict[str, Any]:
    deals = initial_state.resumed.deals if initial_state.resumed else host.deals
    ops, threads = host.devices.ops(address), host.devices.threads(address)
    nets = build_nets(host.job, address.group, address.id, ops=ops, deals=deals, host_names=host.host_names)
    with ExitStack() as stack:
        stack.enter_context(limit_thread(threads))
        stack.enter_context(explain_memory_errors(nets.values))
        stack.enter_context(ops.activate())
        _log_threads(host, ops, threads)
        for net in nets.values():
            net.context.exchange = host.router.mailboxes[address]
            net.allocate()
            stack.callback(net.close)
        params = _params_of(host, address, nets[Phase.TRAIN], ops, stack)
        initial_state.give_class_names(nets[Phase.TRAIN])
        initial_state.seek(nets, address.group, host.job.cluster.nworker_groups)
        channel = Channel(address, host.router.post, host.router.inboxes[address])
        worker = Worker(
            address,
            host.job,
            host.plan,
            nets,
            initial_state,
            checkpoint_url,
            params,
            channel,
            host.emit,
            host.life if host.keep is not None and host.job.cluster.snapshot_freq != 0 else None,
        )
        host.add(worker)
        logger.info("starts at step %d", worker.step)
        metrics = worker.run()
        logger.info("stops at step %d", worker.step)
    return {**metrics, "ops": ops.name, "device": ops.device, "threads": threads}


def _params_of(host: UnitHost, worker: Address, net: NeuralNet, ops: Ops, stack: ExitStack) -> WorkerParams:
    """Give the training net of a worker memory for its params; return their exchange, which ends with the stack."""
    mirror = None
    if is_gpu(ops.device) and not host.devices.params_stay:

        def fail(error: BaseException) -> None:
            host.abort(_explain(host, worker, error))

        mirror = stack.enter_context(HostMirror(worker, ops, host.router.post, fail))
    host.give_memory(worker, net, mirror)
    return WorkerParams(worker, net, host.plan, ops, host.router.post, mirror)


def _log_threads(host: UnitHost, ops: Ops, threads: int) -> None:
    wanted = host.job.threads
    if is_gpu(ops.device):
        logger.info("computes with %s on %s", ops.name, ops.device)
        return
    if wanted > threads:
        logger.warning("threads: %d is more than a worker's share of the cores here", wanted)
    logger.info("computes with %s on %d threads", ops.name, threads)


def _run_server(host: UnitHost, address: Address, initial_state: InitialState, checkpoint_url: str) -> dict[str, Any]:
    plan = host.plan
    held = [piece for piece in plan.slices if piece.server == address.id]
    ops, values, job = host.devices.ops(address), host.stub.server_values(address), host.job
    # on a GPU, which it shares with workers, the server may be the first to run out of memory
    with ops.activate(), explain_memory_errors(lambda: build_nets(job, 0, 0).values()):
        server = Server(address, held, values, plan.scales, plan.n_shares, job.updater, job.cluster, ops)
        server.restore(lambda what, piece: initial_state.updater_state(plan, what, piece))
        host.add(server)
        host.router.post(Message("hello", src=address, dst=Address.stub(0)))
        logger.info("holds %d slices, %d values", len(held), sum(piece.size for piece in held))
        _serve(host, server)
    return {}


def _serve(host: UnitHost, server: Server) -> None:
    """Answer messages until the job ends."""
    inbox = host.router.inboxes[server.address]
    while (message := inbox.get()).kind != "stop":
        if message.kind == "abort":
            raise Aborted(message.info["reason"])
        if message.kind == "snapshot":
            _snapshot(host, server, message)
        elif message.kind != "start":
            for answer in server.handle(message):
                host.router.post(answer)


def _snapshot(host: UnitHost, server: Server, message: Message) -> None:
    """Copy the slices of the server, let training continue, and write or keep the copy in the background."""
    pieces = server.snapshot()
    host.router.post(Message("r-snapshot", src=server.address, dst=message.src, step=message.step))

    def write() -> None:
        try:
            info = _save(host, server.address.id, message, pieces)
        except Exception as error:  # reported to the worker that asked, which decides what to do
            info = {"error": _text_of(error)}
        host.router.post(Message("part", src=server.address, dst=message.src, step=message.step, info=info))

    host.writer.submit(write)


def _save(host: UnitHost, index: int, message: Message, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Write the part of a server to a file, or keep it in memory; return its description for the manifest."""
    n_parts, names = host.job.cluster.nservers_per_group, host.plan.names
    if "url" in message.info:
        return checkpoint.write_part(message.info["url"], index, n_parts, pieces, names, host.life)
    if host.keep is None:
        raise CheckpointError(f"process {host.process} has no place for snapshots. Expected one in every process.")
    return keep_part(host.keep, message.step, index, n_parts, pieces, names, host.life)
