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

__all__ = ["WorkerParams"]


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
        owner.last_version = owner.version
        if weight != 1 and not param.is_idle:
            self._ops.multiply(param.memory, weight, out=param.memory)
        info = {"share": self._share[param]}
        self._send("update", param, param=self._index[owner.key], step=step, info=info)

    def flush(self) -> None:
        """Send the gradients that wait for others."""
        self._send("flush")

    def _send(self, kind: str, gradient: Param | None = None, **fields: Any) -> None:
        message = Message(kind, src=self._worker, dst=self._stub, **fields)
        if self._mirror is None:
            self._post(message)
        else:
            self._mirror.send(message, gradient)
