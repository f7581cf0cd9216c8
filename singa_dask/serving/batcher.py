"""Batcher: compute waiting requests in batches, in a thread or on the event loop.

The module also defines the limits of a server.
"""

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
from singa_dask.inference.sized_nets import MAX_SIZES

# number of bodies of the maximum size that may be in memory at the same time
MAX_BODIES = 8


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Attributes
    ----------
    max_batch : int
        Maximum number of records that are computed together.
    max_wait_s : float
        How many seconds a batch that is not full waits for more records.
    max_queue : int
        Maximum number of requests in progress.
    max_records : int
        Maximum number of records in a request.
    max_bytes : int
        Maximum size of a request's body, and of the values in an answer.
    timeout_s : float
        Maximum time from the head of a request to its answer, in seconds.
    max_connections : int
        Maximum number of open connections, including idle ones.
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
        """Maximum size of all bodies that are in memory at the same time."""
        return MAX_BODIES * self.max_bytes


def batch_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes that batches are padded to: 1, ``most``, and ``most`` halved repeatedly."""
    return tuple(sorted({1, *(-(-most >> i) for i in range(MAX_SIZES - 1))}))


@dataclass(eq=False)
class _Entry:
    """The encoded records of a request."""

    arrays: Arrays
    n: int
    layer: str
    found: Future[Array] = field(default_factory=Future)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Key that is equal for requests that can be computed in one batch."""
        return (self.layer, *((name, values.dtype, values.shape[1:]) for name, values in self.arrays.items()))


class Batcher:
    """Computes records in the order of submission. Waiting records are joined to batches.

    Attributes
    ----------
    n_batches, n_records : int
        Numbers of batches and records computed so far.
    """

    def __init__(self, model: Model, limits: Limits) -> None:
        self._model, self._limits = model, limits
        self._sizes = batch_sizes(limits.max_batch)
        self._waiting: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # whether the thread is idle
        self._idle = True
        # name of the layer that the event loop computes itself
        self._quick: str | None = None
        self.n_batches = self.n_records = 0
        self._thread = threading.Thread(target=self._run, name="serve-batches", daemon=True)
        self._thread.start()

    def submit(self, arrays: Arrays, layer: str) -> Future[Array]:
        """Return a future with the values of a layer for encoded records.

        If a future is cancelled while it waits, its records are not computed. Wrong records make only their own future
        fail.
        """
        entry = _Entry(arrays, len(next(iter(arrays.values()))), layer)
        with self._changed:
            self._waiting.append(entry)
            self._wake()
        return entry.found

    async def values(self, arrays: Arrays, layer: str, is_alone: bool = False) -> Array:
        """Return the values of a layer for encoded records, on the event loop.

        Pass ``is_alone=True`` if no other request is in progress.

        Batches for the layer of `warm_up` are computed on the event loop itself if they are quick and the thread is
        idle, because passing them to the thread would take longer.
        """
        entry = _Entry(arrays, len(next(iter(arrays.values()))), layer)
        with self._changed:
            self._waiting.append(entry)
            if layer != self._quick or entry.n > self._limits.max_batch:
                self._wake()
        try:
            if not is_alone:
                # yield once, so that requests that arrived at the same time can join the batch
                await asyncio.sleep(0)
            self._compute_here(entry.found)
            return entry.found.result() if entry.found.done() else await asyncio.wrap_future(entry.found)
        finally:
            # cancel() has no effect on a finished future
            entry.found.cancel()

    def _compute_here(self, found: Future[Array]) -> None:
        """Compute batches until the future is done, unless the thread is busy."""
        while not found.done():
            with self._changed:
                batch = self._take() if self._idle else []
            if not batch:
                return
            self._start(batch)

    def warm_up(self, arrays: Arrays, layer: str) -> None:
        """Build the nets for all batch sizes, so that the first requests are fast; time the largest batch."""
        for size in self._sizes:
            self._model.compute(_joined([arrays], size), layer)
        began = time.perf_counter()
        self._model.compute(_joined([arrays], self._sizes[-1]), layer)
        # a thread may wait this long for the interpreter lock, so a shorter computation needs no thread
        is_quick = time.perf_counter() - began < sys.getswitchinterval()
        self._quick = layer if is_quick and not self._limits.max_wait_s else None

    def close(self) -> None:
        """End the thread after it has computed all waiting requests. Later requests are not computed."""
        with self._changed:
            self._closed = True
            self._wake()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    # -- methods of the batcher's thread ---------------------------------------------------------------------

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
        """Wait for requests, and return the next batch; return an empty list after `close`."""
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
        """Remove and return the waiting requests that fit in a batch, in order."""
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
            # one of the requests is wrong, so compute each by itself
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
    """Concatenate records, and pad them to a size with copies of the last one."""
    joined = {}
    for name in parts[0]:
        pieces = [part[name] for part in parts]
        if more := size - sum(map(len, pieces)):
            pieces.append(np.repeat(pieces[-1][-1:], more, axis=0))
        joined[name] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return joined
