"""HostMirror: copies of a worker's params on a GPU, in host memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.layers import Param
from singa_dask.ops.contract import Ops


@dataclass
class _Mirrored:
    """Values of a param on the host and on the device, and the version of the values on the device."""

    host_copy: np.ndarray
    values: Any
    read: Any
    """CUDA event after the last kernel that reads the values on the device."""
    version: int = -1


class HostMirror:
    """Host copies of a worker's params, and a thread (the sender) that sends gradients from the host.

    Only the sender waits for the device and calls ``post``. A gradient is copied to the host as soon as the kernels
    that compute it are done, in parallel with later kernels. Then the sender posts its message. Messages keep their
    order. An error that ends the sender is passed to ``fail``.

    Before a worker computes with a param, the worker collects the new values. New values are available only after the
    server has answered the last gradient of the param. Therefore no buffer is overwritten while it is read:

    - Gradient on the device: the next step overwrites it. The server has answered before, so the copy to the host is
      done.
    - Gradient on the host: the next copy overwrites it. By then the server has read the gradient and answered.
    - Values on the device: an upload overwrites them. The worker enqueues it after the kernels that read the old values
      (`_Mirrored.read`), and before the kernels that read the new values.
    - Values on the host: the answer to the next gradient overwrites them. The sender posts that gradient, even if it is
      always 0, only after the kernels before it are done. These kernels have waited for the upload of the values. If
      another worker group shares the memory, its updates come at any time, as on a CPU.
    """

    def __init__(
        self, worker: Address, ops: Ops, post: Callable[[Message], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._ops = ops
        transfers = ops.transfers()
        assert transfers is not None, "the kernels are not those of a GPU"
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
        """End the sender after it has sent all messages, and wait for all copies."""
        self._outgoing.put(None)
        self._sender.join()
        # a failed device raises its error again here; do not let it replace the first error
        with contextlib.suppress(*([Exception] if kind else [])):
            self._transfers.synchronize()

    def add(self, owner: Param, host_copy: np.ndarray, sharers: Sequence[Param]) -> list[np.ndarray]:
        """Allocate a param on the device; return a 1-D host buffer for the gradient of each sharer.

        Parameters
        ----------
        owner : Param
            The param that owns the values.
        host_copy : ndarray
            Memory of the stub for the values, of the param's shape.
        sharers : sequence of Param
            Params of layers that share the values. Each of these params has its own gradient.
        """
        owner.data = self._ops.zeros(owner.memory_shape, owner.dtype)
        self._mirrored[owner] = _Mirrored(host_copy, owner.data, self._transfers.mark())
        for param in sharers:
            size = 0 if param.is_idle else param.size
            self._host_grads[param] = self._ops.pinned((size,), owner.dtype)
        return [self._host_grads[param] for param in sharers]

    def values(self, owner: Param) -> np.ndarray:
        """Return the host copy of the values of a param."""
        return self._mirrored[owner].host_copy

    def collect(self, owner: Param) -> None:
        """Enqueue a copy of the newest values to the device. Kernels that are enqueued later use these values."""
        kept, version = self._mirrored[owner], owner.version
        if kept.version < version:
            self._transfers.upload(kept.host_copy, out=kept.values, after=kept.read)
            kept.version = version

    def send(self, message: Message, param: Param | None = None) -> None:
        """Post a message after all earlier messages, and after the gradient of ``param`` is on the host."""
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
