"""HostMirror: host copies of the params of a worker on a GPU, and the copying between host and device.

Stub, servers and transport see only the host copies.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message
from singa_dask.layers import Param
from singa_dask.ops import NumpyOps

__all__ = ["HostMirror"]


@dataclass
class _Mirrored:
    """Values of a param: those of the host, those of the device, and which version these are."""

    host_copy: np.ndarray
    values: Any
    read: Any
    """When the device has last read them in a step."""
    version: int = -1


class HostMirror:
    """Host copies of the params of one worker, and the thread that sends its gradients once they are on the host.

    Nothing here waits for the device but that thread, the sender: a gradient is copied as soon as the kernels before
    it are done, beside those after it, and its message is posted then. Messages keep their order.

    That nobody writes over what is still read follows from one thing: a worker asks for new values of a param before
    it computes with it, and they are there only when the message of its last gradient was answered.

    - The gradient on the device is written by the next step. Before, the worker has got the values that the message of
      this one brought about; the sender had posted that after the copy, so the copy is over.
    - The host copy of the gradient is written by the next copy. That is enqueued after the same answer, which a server
      gives once it has read what stub and transport had of the host copy.
    - The values on the device are written by a copy that the worker itself enqueues, after the kernels that have read
      them (`_Mirrored.read`) and before those that read them next.
    - The host copy of the values is written by the answer to the next gradient. Its message, also of one that is always
      0, is posted once the kernels up to there are done, which have waited for the copy; so that is over. Where another
      worker group shares the memory its updates come at any time, as they do on a CPU.

    Parameters
    ----------
    worker : Address
    ops : NumpyOps
        Of the worker, for a GPU.
    post : callable
        Delivers a message; from any thread.
    fail : callable
        Told the error that has ended the sender.
    """

    def __init__(
        self,
        worker: Address,
        ops: NumpyOps,
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
        self._sender = threading.Thread(target=self._send_all, name=f"{worker}-sender", daemon=True)

    def __enter__(self) -> HostMirror:
        self._sender.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the sender, once what it was given has left, and wait for all copies: their memory may go now."""
        self._outgoing.put(None)
        self._sender.join()
        # a device that has failed says so again
        with contextlib.suppress(*([Exception] if kind else [])):
            self._transfers.synchronize()

    # -- memory ------------------------------------------------------------------------------------------

    def add(self, owner: Param, host_copy: np.ndarray, sharers: Sequence[Param]) -> list[np.ndarray]:
        """Give a param memory on the device; ``host_copy``, of its shape, is where the stub keeps its values.

        Returns
        -------
        list of ndarray
            Host copy of the gradient of each sharer, 1-D; empty of those that have none.
        """
        owner.data = self._ops.zeros(owner.memory_shape, owner.dtype)
        self._mirrored[owner] = _Mirrored(host_copy, owner.data, self._transfers.mark())
        for param in sharers:
            size = 0 if param.is_idle else param.size
            self._host_grads[param] = self._ops.pinned((size,), owner.dtype)
        return [self._host_grads[param] for param in sharers]

    def values(self, owner: Param) -> np.ndarray:
        """Return the values as others have them, in host memory."""
        return self._mirrored[owner].host_copy

    # -- copies ------------------------------------------------------------------------------------------

    def collect(self, owner: Param) -> None:
        """Let what is enqueued from now on compute with the newest values."""
        kept, version = self._mirrored[owner], owner.version
        if kept.version < version:
            self._transfers.upload(kept.host_copy, out=kept.values, after=kept.read)
            kept.version = version

    def send(self, message: Message, param: Param | None = None) -> None:
        """Post a message after those before it, and after the gradient of ``param`` has come to its host copy."""
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
