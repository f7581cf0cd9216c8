"""WorkerParams: exchange values and gradients of one worker's params with servers.

For params on a GPU, a `HostMirror` keeps copies of values and gradients in host memory. The stub, servers and transport
use only these copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import Share, Stub
from singa_dask.layers import Param
from singa_dask.net import NeuralNet
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.server import Server


class WorkerParams:
    """Allocates the params of a worker's training net, and exchanges them with the stub of its process.

    The stub owns the memory of the values. With a ``mirror``, this memory holds host copies of values on a GPU, and the
    stub gets host copies of gradients.

    Parameters
    ----------
    net : NeuralNet
        The training net, with allocated memory.
    post : callable
        Delivers a message.
    mirror : HostMirror, optional
        Needed if the params are on a GPU and the servers work in host memory.
    own_server : callable, optional
        Returns a server in this process and on this device that serves only this worker; None while it does not exist.
        Once it exists, the worker calls it to update all params at each flush, sends no messages and never waits.

    Attributes
    ----------
    wait_s : float
        Seconds that the worker has waited for updates.
    mirror : HostMirror or None
        The argument ``mirror``.
    """

    def __init__(
        self,
        worker: Address,
        net: NeuralNet,
        plan: JobPlan,
        stub: Stub,
        post: Callable[[Message], None],
        mirror: HostMirror | None = None,
        own_server: Callable[[], Server | None] = lambda: None,
    ) -> None:
        self.wait_s = 0.0
        self._worker = worker
        self._net = net
        self._cluster = plan.layout.cluster
        self._ops = net.ops
        self._post = post
        self.mirror = mirror
        self._stub = stub
        self._index = {name: index for index, name in enumerate(plan.names)}
        self._sharers = {owner: net.sharers(owner) for owner in net.owners}
        self._share = {param: k for sharers in self._sharers.values() for k, param in enumerate(sharers)}
        self._find_server = own_server
        self._server: Server | None = None
        self._n_ready = dict.fromkeys(net.owners, 0)
        self._ready: list[Param] = []
        self._step = -1
        stub.attach([share for owner in net.owners for share in self._shares_of(owner)])

    def _shares_of(self, owner: Param) -> list[Share]:
        """Place the values of a param in the memory of the stub; return a `Share` for each of its gradients."""
        index, sharers = self._index[owner.key], self._sharers[owner]
        values = self._stub.worker_values(self._worker.group, index).reshape(owner.memory_shape)
        empty = np.empty(0, owner.dtype)
        if self.mirror is not None:
            grads = self.mirror.add(owner, values, sharers)
        else:
            owner.data = values
            grads = [empty if param.is_idle else param.memory.reshape(-1) for param in sharers]
        return [Share(self._worker, index, grad, owner.publish) for grad in grads or [empty]]

    def begin(self, initial_state: InitialState) -> None:
        """Send the initial values for which this worker is responsible to the servers.

        Wait for all other values. A worker that joins a running job sends no values.
        """
        per_server_group = self._cluster.nworker_groups // self._cluster.nserver_groups
        puts = initial_state.rejoin is None and self._worker.group % per_server_group == 0
        for owner in self._net.owners:
            self._net.cancellation.check()
            index = self._index[owner.key]
            if puts and self._net.logical[owner.key].holder == self._worker.id:
                values, version = initial_state.values(owner)
                memory = owner.values if self.mirror is None else self.mirror.values(owner)
                if self.mirror is None:
                    self._ops.copy(np.ascontiguousarray(values, owner.dtype), out=memory)
                else:
                    np.copyto(memory, values)
                owner.publish(version)
                self._send("put", param=index, version=version, arrays=(memory.reshape(-1),))
            else:
                self._send("get", param=index, version=0)
        for owner in self._net.owners:
            owner.wait(0)
            self._renew(owner)

    def collect(self, param: Param) -> None:
        """Wait until the values of a param include the update by its last gradient.

        On a GPU, kernels that are enqueued after this call use the new values.
        """
        owner = param.owner
        if owner.version <= owner.last_version:
            started = time.perf_counter()
            self.flush()
            owner.wait(owner.last_version + 1)
            self.wait_s += time.perf_counter() - started
        self._renew(owner)

    def _renew(self, owner: Param) -> None:
        if self.mirror is not None:
            self.mirror.collect(owner)

    def collect_all(self) -> None:
        """Collect every param."""
        for owner in self._net.owners:
            self.collect(owner)

    def update(self, step: int, param: Param) -> None:
        """Queue a param's gradient, to be sent with other gradients, at the latest at the next `flush`.

        The gradient is weighted by this worker's share of the rows, because servers average over workers.
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
        """Send the pending gradients, or update the params with them if the worker has its own server."""
        if self._server is None:
            self._send("flush")
        elif self._ready:
            self._update_ready(self._server)

    def _idle_server(self) -> Server | None:
        """Return the server that serves only this worker, if it exists and no update is pending; else None."""
        server = self._find_server()
        if server is None or any(owner.version <= owner.last_version for owner in self._net.owners):
            return None
        with server.lock:
            return server if server.has_values else None

    def _update_ready(self, server: Server) -> None:
        """Update the params whose gradients are complete."""
        self._net.cancellation.check()
        ready, self._ready = self._ready, []
        group = self._worker.group
        gradients = [pair for owner in ready for pair in self._stub.total(group, self._index[owner.key])]
        try:
            with server.lock:
                server.update(self._step, gradients)
        except Exception as error:  # let the server's thread report the error, as it is the server that failed
            self._post(Message("failed", self._worker, server.address, info={"error": error}))
            self._net.cancellation.wait(lambda: False, "the end of the job")
        for owner in ready:  # set the version without a notification, as no other thread waits for it
            owner.version = owner.last_version + 1

    def _send(self, kind: str, gradient: Param | None = None, **fields: Any) -> None:
        message = Message(kind, src=self._worker, dst=self._stub.address, **fields)
        if self.mirror is None:
            self._post(message)
        else:
            self.mirror.send(message, gradient)
