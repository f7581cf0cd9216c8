"""Batcher: computes requests that have arrived in batches, by a thread or on the event loop; limits of a server."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data.types import Arrays
from singa_dask.inference.model import Model

# bodies of the greatest size that are in memory at a time
MAX_BODIES = 8


@dataclass(frozen=True)
class Limits:
    """What a server accepts.

    Attributes
    ----------
    max_batch : int
        Records that are computed together.
    max_wait_s : float
        How long a batch that is not full waits for more records.
    max_queue : int
        Requests that are read, wait or are computed at a time.
    max_records : int
        Records of a request.
    max_bytes : int
        Size of the body of a request, and of the values of an answer.
    timeout_s : float
        From the head of a request to its answer.
    max_connections : int
        Connections of clients, idle ones too, that are open at a time.
    """

    max_batch: int
    max_wait_s: float = 0.0
    max_queue: int = 256
    max_records: int = 10_000
    max_bytes: int = 64 << 20
    timeout_s: float = 30.0
    max_connections: int = 512

    @property
    def max_total_bytes(self) -> int:
        """Size of all bodies that are in memory at a time."""
        return MAX_BODIES * self.max_bytes


# nets of so many sizes are kept by a model
N_SIZES = 8


def batch_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes of batches that are computed: 1, and ``most`` halved again and again.

    A batch is filled up to the next size, as a model has a net for each.
    """
    return tuple(sorted({1, *(-(-most >> i) for i in range(N_SIZES - 1))}))


@dataclass(eq=False)
class _Entry:
    """The records of a request, encoded."""

    arrays: Arrays
    n: int
    layer: str
    found: Future[Array] = field(default_factory=Future)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Requests of one kind can be computed together."""
        return (self.layer, *((name, values.dtype, values.shape[1:]) for name, values in self.arrays.items()))


class Batcher:
    """Computes records in the order in which they are submitted; those that wait meanwhile are joined in a batch.

    Attributes
    ----------
    n_batches, n_records : int
        Computed so far.
    """

    def __init__(self, model: Model, limits: Limits) -> None:
        self._model, self._limits = model, limits
        self._sizes = batch_sizes(limits.max_batch)
        self._waiting: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # the thread has nothing to do, and was given nothing
        self._idle = True
        # layer whose values the event loop computes itself
        self._quick: str | None = None
        self.n_batches = self.n_records = 0
        self._thread = threading.Thread(target=self._run, name="serve-batches", daemon=True)
        self._thread.start()

    def submit(self, arrays: Arrays, layer: str) -> Future[Array]:
        """Return the values of a layer for records of `Model.encode`, once they are computed.

        A future that is cancelled while it waits is not computed. An error of its records is its own only.
        """
        entry = _Entry(arrays, len(next(iter(arrays.values()))), layer)
        with self._changed:
            self._waiting.append(entry)
            self._wake()
        return entry.found

    async def values(self, arrays: Arrays, layer: str) -> Array:
        """Return what `submit` does, to the event loop.

        It computes batches of the layer of `warm_up` itself if they are quick and the thread has nothing to do: handing
        them over, and the lock of the interpreter, would take longer.
        """
        entry = _Entry(arrays, len(next(iter(arrays.values()))), layer)
        with self._changed:
            self._waiting.append(entry)
            if layer != self._quick or entry.n > self._limits.max_batch:
                self._wake()
        try:
            # the requests that have arrived with it join it
            await asyncio.sleep(0)
            self._compute_here(entry.found)
            return entry.found.result() if entry.found.done() else await asyncio.wrap_future(entry.found)
        finally:
            # unless it is done
            entry.found.cancel()

    def _compute_here(self, found: Future[Array]) -> None:
        """Compute batches until one has what is to be found, or leave them to the thread if it is at work."""
        while not found.done():
            with self._changed:
                batch = self._take() if self._idle else []
            if not batch:
                return
            self._start(batch)

    def warm_up(self, arrays: Arrays, layer: str) -> None:
        """Make the nets of all sizes, from a record: of the first requests none is slow. Measure the largest."""
        for size in self._sizes:
            self._model.compute(_joined([arrays], size), layer)
        began = time.perf_counter()
        self._model.compute(_joined([arrays], self._sizes[-1]), layer)
        # as long a thread waits for another that computes in Python
        is_quick = time.perf_counter() - began < sys.getswitchinterval()
        self._quick = layer if is_quick and not self._limits.max_wait_s else None

    def close(self) -> None:
        """Compute what waits, and end. Requests that are submitted later are not computed."""
        with self._changed:
            self._closed = True
            self._wake()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next():
            self._start(batch)

    def _wake(self) -> None:
        self._idle = False
        self._changed.notify()

    def _start(self, batch: Sequence[_Entry]) -> None:
        started = [entry for entry in batch if entry.found.set_running_or_notify_cancel()]
        if started:
            self._answer(started)

    def _next(self) -> list[_Entry]:
        """Wait for requests, and return those of the next batch; none at the end."""
        most = self._limits.max_batch
        with self._changed:
            self._idle = not self._waiting and not self._closed
            self._changed.wait_for(lambda: not self._idle)
            if self._limits.max_wait_s:
                full = time.monotonic() + self._limits.max_wait_s
                while not self._closed and sum(each.n for each in self._waiting) < most:
                    if not self._changed.wait(max(0.0, full - time.monotonic())):
                        break
            return self._take()

    def _take(self) -> list[_Entry]:
        """Return what waits and fits in a batch, in the order in which it came."""
        taken: list[_Entry] = []
        n = 0
        for entry in self._waiting:
            if taken and entry.kind != taken[0].kind:
                continue
            if taken and n + entry.n > self._limits.max_batch:
                break
            taken.append(entry)
            n += entry.n
        chosen = set(map(id, taken))
        self._waiting = deque(entry for entry in self._waiting if id(entry) not in chosen)
        return taken

    def _answer(self, batch: Sequence[_Entry]) -> None:
        try:
            values = self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].found.set_exception(error)
                return
            # one of them is wrong
            for entry in batch:
                self._answer([entry])
            return
        first = 0
        for entry in batch:
            entry.found.set_result(values[first : first + entry.n])
            first += entry.n

    def _computed(self, batch: Sequence[_Entry]) -> Array:
        n, most = sum(entry.n for entry in batch), self._limits.max_batch
        arrays = _joined([entry.arrays for entry in batch], n)
        pieces = []
        for first in range(0, n, most):
            piece = {name: values[first : first + most] for name, values in arrays.items()}
            n_piece = min(most, n - first)
            size = next(size for size in self._sizes if size >= n_piece)
            pieces.append(self._model.compute(_joined([piece], size), batch[0].layer)[:n_piece])
            self.n_batches += 1
        self.n_records += n
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _joined(parts: Sequence[Arrays], size: int) -> Arrays:
    """Return records one after the other, the last one again and again up to a size."""
    joined = {}
    for name in parts[0]:
        pieces = [part[name] for part in parts]
        if more := size - sum(map(len, pieces)):
            pieces.append(np.repeat(pieces[-1][-1:], more, axis=0))
        joined[name] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return joined
