"""Mirror: the params of a worker on a GPU where others keep them too: twins in host memory, and copies both ways.

Stub, servers and transport know the twins alone.
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

__all__ = ["Mirror"]


@dataclass
class _Kept:
    """Values of a param: those of the host, those of the device, and which version these are."""

    twin: np.ndarray
    values: Any
    read: Any
    """When the device has last read them in a step."""
    version: int = -1


class Mirror:
    """The twins of the params of one worker, and the thread that follows its gradients to the host.

    Nothing here waits for the device but that thread, the courier: a gradient is copied as soon as the kernels before
    it are done, beside those after it, and its message is posted then. Messages keep their order.

    That nobody writes over what is still read follows from one thing: a worker asks for new values of a param before
    it computes with it, and they are there only when the message of its last gradient was answered.

    - The gradient on the device is written by the next step. Before, the worker has got the values that the message of
      this one brought about; the courier had posted that after the copy, so the copy is over.
    - The twin of the gradient is written by the next copy. That is enqueued after the same answer, which a server gives
      once it has read what stub and transport had of the twin.
    - The values on the device are written by a copy that the worker itself enqueues, after the kernels that have read
      them (`_Kept.read`) and before those that read them next.
    - The twin of the values is written by the answer to the next gradient. Its message, also of one that is always 0,
      is posted once the kernels up to there are done, which have waited for the copy; so that is over. Where another
      worker group shares the memory its updates come at any time, as they do on a CPU.

    Parameters
    ----------
    worker : Address
    ops : NumpyOps
        Of the worker, for a GPU.
    post : callable
        Delivers a message; from any thread.
    fail : callable
        Told the error that has ended the courier.
    """

    def __init__(
        self,
        worker: Address,
        ops: NumpyOps,
        post: Callable[[Message], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._ops = ops
        self._transfers = ops.transfers()
        self._post = post
        self._fail = fail
        self._kept: dict[Param, _Kept] = {}
        self._twins: dict[Param, np.ndarray] = {}
        self._leaving: SimpleQueue[tuple[Any, Message] | None] = SimpleQueue()
        self._courier = threading.Thread(target=self._carry, name=f"{worker}-courier", daemon=True)

    def __enter__(self) -> Mirror:
        self._courier.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the courier, once what it was given has left, and wait for all copies: their memory may go now."""
        self._leaving.put(None)
        self._courier.join()
        # a device that has failed says so again
        with contextlib.suppress(*([Exception] if kind else [])):
            self._transfers.synchronize()

    # -- memory ------------------------------------------------------------------------------------------

    def add(self, owner: Param, twin: np.ndarray, sharers: Sequence[Param]) -> list[np.ndarray]:
        """Give a param memory on the device; ``twin``, of its shape, is where the stub keeps its values.

        Returns
        -------
        list of ndarray
            Twin of the gradient of each sharer, 1-D; empty of those that have none.
        """
        owner.data = self._ops.zeros(owner.memory_shape, owner.dtype)
        self._kept[owner] = _Kept(twin, owner.data, self._transfers.mark())
        for param in sharers:
            size = 0 if param.is_idle else param.size
            self._twins[param] = self._ops.pinned((size,), owner.dtype)
        return [self._twins[param] for param in sharers]

    def values(self, owner: Param) -> np.ndarray:
        """Return the values as others have them, in host memory."""
        return self._kept[owner].twin

    # -- copies ------------------------------------------------------------------------------------------

    def collect(self, owner: Param) -> None:
        """Let what is enqueued from now on compute with the newest values."""
        kept, version = self._kept[owner], owner.version
        if kept.version < version:
            self._transfers.upload(kept.twin, out=kept.values, after=kept.read)
            kept.version = version

    def send(self, message: Message, param: Param | None = None) -> None:
        """Post a message after those before it, and after the gradient of ``param`` has come to its twin."""
        event = None
        if param is not None:
            event = self._kept[param.owner].read = self._transfers.mark()
            twin = self._twins[param]
            if twin.size:
                event = self._transfers.download(param.memory.reshape(-1), out=twin, after=event)
        self._leaving.put((event, message))

    def _carry(self) -> None:
        try:
            with self._ops.activate():
                while (item := self._leaving.get()) is not None:
                    event, message = item
                    if event is not None:
                        event.synchronize()
                    self._post(message)
        except BaseException as error:
            self._fail(error)
