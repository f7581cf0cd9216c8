"""SharedStub: the stub of one process, for the threads of all its units."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message, Share, Stub
from singa_dask.net import NeuralNet
from singa_dask.runtime.units.host_mirror import HostMirror


class SharedStub:
    """Locks a stub, and connects the params of local workers to it.

    Parameters
    ----------
    stub : Stub
    names : sequence of str
        Params in the order of their indices; see `JobPlan`.
    """

    def __init__(self, stub: Stub, names: Sequence[str]) -> None:
        self._stub = stub
        self._names = names
        self._lock = threading.Lock()

    def handle(self, message: Message) -> list[Message]:
        """Take one message; return what follows from it."""
        with self._lock:
            return self._stub.handle(message)

    def receive_buffer(self, message: Message) -> np.ndarray | None:
        """Return the memory that the array of a message from another process is read into."""
        with self._lock:
            return self._stub.receive_buffer(message)

    def give_memory(self, worker: Address, net: NeuralNet, mirror: HostMirror | None = None) -> None:
        """Give the params of a local worker their values in the memory of this process; attach its gradients.

        With a ``mirror`` that memory, and that of the gradients, are the host copies of what it computes with.
        """
        shares = []
        with self._lock:
            for owner in net.owners:
                index = self._names.index(owner.key)
                values = self._stub.worker_values(worker.group, index).reshape(owner.memory_shape)
                none, sharers = np.empty(0, owner.dtype), net.sharers(owner)
                if mirror is not None:
                    grads = mirror.add(owner, values, sharers)
                else:
                    owner.data = values
                    grads = [none if param.is_idle else param.memory.reshape(-1) for param in sharers]
                shares += [Share(worker, index, grad, owner.publish) for grad in grads or [none]]
            self._stub.attach(shares)

    def server_values(self, server: Address) -> Callable[[int], Any]:
        """Return a function that gives a local server the values of a param, 1-D, by the index of the param."""

        def values(param: int) -> Any:
            with self._lock:
                return self._stub.server_values(server.group, param)

        return values

    def replace(self, units: Collection[Address]) -> None:
        """Take note that units start again in fresh processes, see `Stub.replace`."""
        with self._lock:
            self._stub.replace(units)

    def forget(self) -> None:
        """Release all memory, once nobody sends anything any more."""
        with self._lock:
            self._stub.forget()
