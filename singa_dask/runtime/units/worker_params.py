"""WorkerParams: exchanges values and gradients of the params of one worker with servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask.comm import Address, Message
from singa_dask.layers import Param
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.units.host_mirror import HostMirror
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.runtime.units.server import Server

__all__ = ["WorkerParams"]


class _Updates(NamedTuple):
    """What follows from the gradients of some params.

    Attributes
    ----------
    sums : list of (array, array)
        The second is added to the first, in order.
    gradients : list of (int, array)
        For `Server.update`.
    owners : list of Param
        Of each of these.
    incomplete : list of Param
        Those whose owner has other sharers, which have no gradient yet.
    """

    sums: list[tuple[Any, Any]]
    gradients: list[tuple[int, Any]]
    owners: list[Param]
    incomplete: list[Param]


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
        self._share = {param: k for owner in net.owners for k, param in enumerate(net.sharers(owner))}
        self._slices = plan.slices
        self._find_server = own_server
        self._server: Server | None = None
        self._step = -1
        self._ready: list[Param] = []
        self._own_updates: dict[tuple[Param, ...], _Updates] = {}

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
            self._ready.append(param)
            self._step = step
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
        self._net.gate.check()
        key, self._ready = tuple(self._ready), []
        if key not in self._own_updates:
            self._own_updates[key] = self._updates_of(key)
        updates = self._own_updates[key]
        self._ready += updates.incomplete
        for total, grad in updates.sums:
            self._ops.add(total, grad, out=total)
        with server.lock:
            versions = server.update(self._step, updates.gradients)
        # as nobody else waits for versions, nobody is notified
        for owner, version in zip(updates.owners, versions, strict=True):
            owner.version = max(version, owner.last_version + 1)

    def _updates_of(self, ready: Sequence[Param]) -> _Updates:
        """Return what follows from the gradients of some params: as the stub does, but for one worker."""
        updates = _Updates([], [], [], [])
        for owner in dict.fromkeys(param.owner for param in ready):
            sharers = self._net.sharers(owner)
            if not set(sharers).issubset(ready):
                updates.incomplete.extend(param for param in ready if param.owner is owner)
                continue
            total, *grads = (param.memory.reshape(-1) for param in sharers if not param.is_idle)
            updates.sums.extend((total, grad) for grad in grads)
            for piece in self._slices:
                if piece.param == self._index[owner.key]:
                    updates.owners.append(owner)
                    updates.gradients.append((piece.id, total[piece.start : piece.stop]))
        return updates

    def _send(self, kind: str, gradient: Param | None = None, **fields: Any) -> None:
        message = Message(kind, src=self._worker, dst=self._stub, **fields)
        if self._mirror is None:
            self._post(message)
        else:
            self._mirror.send(message, gradient)
