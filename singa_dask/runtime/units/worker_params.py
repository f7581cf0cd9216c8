"""WorkerParams: exchanges values and gradients of the params of one worker with servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message
from singa_dask.layers import Param
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.server import Server


class WorkerParams:
    """Exchanges the params of the training net of a worker with the stub of its process.

    Parameters
    ----------
    worker : Address
    net : NeuralNet
        The training net, with memory.
    plan : JobPlan
    ops : Ops
        The worker's kernels.
    post : callable
        Delivers a message.
    mirror : HostMirror, optional
        If the params are on a GPU, and servers have copies elsewhere.
    own_server : callable, optional
        Returns the server that serves this worker alone, in this process and on its device, once there is one. From
        then on this worker updates the params itself, all at once at each flush; it sends no messages, and never waits.

    Attributes
    ----------
    wait_s : float
        Time that the worker has waited for updates, in seconds.
    """

    def __init__(
        self,
        worker: Address,
        net: NeuralNet,
        plan: JobPlan,
        ops: Ops,
        post: Callable[[Message], None],
        mirror: HostMirror | None = None,
        own_server: Callable[[], Server | None] = lambda: None,
    ) -> None:
        self.wait_s = 0.0
        self._worker = worker
        self._net = net
        self._cluster = plan.layout.cluster
        self._ops = ops
        self._post = post
        self._mirror = mirror
        self._stub = Address.stub(plan.layout.process_of[worker])
        self._index = {name: index for index, name in enumerate(plan.names)}
        self._sharers = {owner: net.sharers(owner) for owner in net.owners}
        self._share = {param: k for sharers in self._sharers.values() for k, param in enumerate(sharers)}
        self._slices = plan.slices
        self._find_server = own_server
        self._server: Server | None = None
        self._n_ready = dict.fromkeys(net.owners, 0)
        self._ready: list[Param] = []
        self._sums: dict[Param, tuple[list[Any], list[tuple[int, Any]]]] = {}
        self._step = -1

    @property
    def leave_the_device(self) -> bool:
        """Whether gradients are copied from a GPU, each as soon as it is computed."""
        return self._mirror is not None

    def begin(self, initial_state: InitialState) -> None:
        """Send initial values to the servers, for params that this worker initialises; wait for those of the others.

        A worker that joins a running job sends none.
        """
        per_server_group = self._cluster.nworker_groups // self._cluster.nserver_groups
        puts = initial_state.rejoin is None and self._worker.group % per_server_group == 0
        for owner in self._net.owners:
            self._net.gate.check()
            index = self._index[owner.key]
            if puts and self._net.logical[owner.key].holder == self._worker.id:
                version = self._take_first(owner, initial_state)
                owner.publish(version)
                self._send("put", param=index, version=version, arrays=(self._memory(owner).reshape(-1),))
            else:
                self._send("get", param=index, version=0)
        for owner in self._net.owners:
            owner.wait(0)
            self._renew(owner)

    def _take_first(self, owner: Param, initial_state: InitialState) -> int:
        """Write initial values to the memory that the stub uses; return their version."""
        values, version = initial_state.values(owner)
        if self._mirror is not None:
            np.copyto(self._mirror.values(owner), values)
        else:
            self._ops.copy(np.ascontiguousarray(values, owner.dtype), out=owner.values)
        return version

    def _memory(self, owner: Param) -> Any:
        return owner.values if self._mirror is None else self._mirror.values(owner)

    def collect(self, param: Param) -> None:
        """Wait until the values have the update of the last gradient.

        On a GPU that holds for kernels that are enqueued from now on.
        """
        owner = param.owner
        if owner.version <= owner.last_version:
            started = time.perf_counter()
            self.flush()
            owner.wait(owner.last_version + 1)
            self.wait_s += time.perf_counter() - started
        self._renew(owner)

    def _renew(self, owner: Param) -> None:
        if self._mirror is not None:
            self._mirror.collect(owner)

    def collect_all(self) -> None:
        """Collect every param."""
        for owner in self._net.owners:
            self.collect(owner)

    def update(self, step: int, param: Param) -> None:
        """Send a gradient, together with others or at the next flush. Never waits.

        Servers average over workers, so the gradient is weighted by the number of rows of this worker.
        """
        owner, weight = param.owner, self._net.context.weight
        if self._server is None:
            self._server = self._idle_server()
        owner.last_version = owner.version
        if weight != 1 and not param.is_idle:
            self._ops.multiply(param.memory, weight, out=param.memory)
        if self._server is not None:
            self._step = step
            self._n_ready[owner] += 1
            if self._n_ready[owner] == len(self._sharers[owner]):
                self._n_ready[owner] = 0
                self._ready.append(owner)
            return
        info = {"share": self._share[param]}
        self._send("update", param, param=self._index[owner.key], step=step, info=info)

    def flush(self) -> None:
        """Send the gradients that wait for others, or update the params with them."""
        if self._server is None:
            self._send("flush")
        elif self._ready:
            self._update_ready(self._server)

    def _idle_server(self) -> Server | None:
        """Return the server that serves this worker alone, if it has nothing to do for it."""
        server = self._find_server()
        if server is None or any(owner.version <= owner.last_version for owner in self._net.owners):
            return None
        with server.lock:
            return server if server.has_values else None

    def _update_ready(self, server: Server) -> None:
        """Update the params that have all of their gradients."""
        self._net.gate.check()
        ready, self._ready = self._ready, []
        gradients = [part for owner in ready for part in self._sum_of(owner)]
        try:
            with server.lock:
                server.update(self._step, gradients)
        except Exception as error:  # of the server, whose thread reports it
            self._post(Message("failed", self._worker, server.address, info={"error": error}))
            self._net.gate.wait(lambda: False, "the end of the job")
        for owner in ready:  # nobody else waits for a version
            owner.version = owner.last_version + 1

    def _sum_of(self, owner: Param) -> list[tuple[int, Any]]:
        """Add up the gradients of a param as the stub does; return the sum, slice by slice."""
        if owner not in self._sums:
            total, *grads = (param.memory.reshape(-1) for param in self._sharers[owner] if not param.is_idle)
            pieces = [piece for piece in self._slices if piece.param == self._index[owner.key]]
            self._sums[owner] = [(total, grad) for grad in grads], [(x.id, total[x.start : x.stop]) for x in pieces]
        pairs, slices = self._sums[owner]
        for total, grad in pairs:
            self._ops.add(total, grad, out=total)
        return slices

    def _send(self, kind: str, gradient: Param | None = None, **fields: Any) -> None:
        message = Message(kind, src=self._worker, dst=self._stub, **fields)
        if self._mirror is None:
            self._post(message)
        else:
            self._mirror.send(message, gradient)
