"""HostMirror: host copies of the params of a worker on a GPU, and the copying between host and device.

Stub, servers and transport see only the host copies.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message
from singa_dask.layers import Param
from singa_dask.ops.contract import Ops


@dataclass
class _Mirrored:
    """Values of a param: on the host and on the device, and the version of the latter."""

    host_copy: np.ndarray
    values: Any
    read: Any
    """Event after the last kernel that reads the values on the device."""
    version: int = -1


class HostMirror:
    """Host copies of the params of one worker, and the thread that sends its gradients once they are on the host.

    Only that thread, the sender, waits for the device. A gradient is copied as soon as the kernels before it are done,
    in parallel with those after it; then its message is posted. Messages keep their order.

    No buffer is overwritten while it is read, because a worker collects the values of a param before it computes with
    it, and they are available only after the message of its last gradient was answered:

    - The next step overwrites the gradient on the device. By then the worker has the values that resulted from this
      gradient. Its message was posted after the copy, so the copy is done.
    - The next copy overwrites the host copy of the gradient. It is enqueued after the same answer, and the server has
      answered only after it had read the host copy.
    - The worker itself enqueues the copy that overwrites the values on the device: after the kernels that have read
      them (`_Mirrored.read`), and before those that read them next.
    - The answer to the next gradient overwrites the host copy of the values. The message of that gradient, also if it
      is always 0, is posted once the kernels before it are done, and these have waited for the copy. If another worker
      group shares the memory, its updates come at any time, as on a CPU.

    Parameters
    ----------
    worker : Address
    ops : Ops
        Kernels of the worker, for a GPU.
    post : callable
        Delivers a message; called from the sender.
    fail : callable
        Called with the error that has ended the sender.
    """

    def __init__(
        self,
        worker: Address,
        ops: Ops,
        post: Callable[[Message], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._ops = ops
        transfers = ops.transfers()
        if transfers is None:
            raise TypeError(f"Mirror: {ops.device} shares the memory of the host. Expected a GPU.")
        self._transfers = transfers
        self._post = post
        self._fail = fail
        self._mirrored: dict[Param, _Mirrored] = {}
        self._host_grads: dict[Param, np.ndarray] = {}
        self._outgoing: SimpleQueue[tuple[Any, Message] | None] = SimpleQueue()
        self._sender = threading.Thread(
            target=copy_context().run, args=(self._send_all,), name=f"{worker}-sender", daemon=True
        )

    def __enter__(self) -> HostMirror:
        self._sender.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the sender once it has sent everything, and wait for all copies, so that memory can be released."""
        self._outgoing.put(None)
        self._sender.join()
        # a device that has failed raises its error again
        with contextlib.suppress(*([Exception] if kind else [])):
            self._transfers.synchronize()

    # -- memory ------------------------------------------------------------------------------------------

    def add(self, owner: Param, host_copy: np.ndarray, sharers: Sequence[Param]) -> list[np.ndarray]:
        """Give a param memory on the device; ``host_copy``, of its shape, is the memory of the stub for its values.

        Returns
        -------
        list of ndarray
            Host copy of the gradient of each sharer, 1-D; empty if it has none.
        """
        owner.data = self._ops.zeros(owner.memory_shape, owner.dtype)
        self._mirrored[owner] = _Mirrored(host_copy, owner.data, self._transfers.mark())
        for param in sharers:
            size = 0 if param.is_idle else param.size
            self._host_grads[param] = self._ops.pinned((size,), owner.dtype)
        return [self._host_grads[param] for param in sharers]

    def values(self, owner: Param) -> np.ndarray:
        """Return the host copy of the values."""
        return self._mirrored[owner].host_copy

    # -- copies ------------------------------------------------------------------------------------------

    def collect(self, owner: Param) -> None:
        """Copy the newest values to the device, for kernels that are enqueued from now on."""
        kept, version = self._mirrored[owner], owner.version
        if kept.version < version:
            self._transfers.upload(kept.host_copy, out=kept.values, after=kept.read)
            kept.version = version

    def send(self, message: Message, param: Param | None = None) -> None:
        """Post a message, after those before it and after the copy of the gradient of ``param`` to the host."""
        event = None
        if param is not None:
            event = self._mirrored[param.owner].read = self._transfers.mark()
            host_copy = self._host_grads[param]
            if host_copy.size:
                event = self._transfers.download(param.memory.reshape(-1), out=host_copy, after=event)
        self._outgoing.put((event, message))

    def _send_all(self) -> None:
        try:
            with self._ops.activate():
                while (item := self._outgoing.get()) is not None:
                    event, message = item
                    if event is not None:
                        event.synchronize()
                    self._post(message)
        except BaseException as error:
            self._fail(error)
