"""What runs in the two processes of the traffic benchmark: an algorithm that only exchanges, and raw ends."""

from __future__ import annotations

import asyncio
import time
from queue import SimpleQueue
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.comm import connect, listen
from distributed.protocol import to_serialize

from singa_dask.conf import Phase
from singa_dask.training import ALGORITHMS, Algorithm

__all__ = ["raw_exchange", "raw_open", "ready"]

MESSAGE = 4 << 20


@ALGORITHMS.register("Exchange")
class Exchange(Algorithm):
    """Sends every gradient and waits for every value; computes nothing, but reads the records of the first step."""

    def train_one_batch(self, step: int) -> None:
        if step == 0:  # a job counts the labels of its losses after each step
            for layer in self.net.inputs:
                self.net.forward(layer, Phase.TRAIN | Phase.FORWARD)
        for layer in reversed(self.net.layers):
            for param in reversed(layer.params):
                self.update(step, param)
        for param in self.net.params:
            self.collect(param)


class Raw:
    """One end of a raw exchange, in the loop of a Dask worker."""

    def __init__(self) -> None:
        self.got: SimpleQueue[int] = SimpleQueue()
        self.loop = get_worker().loop.asyncio_loop  # type: ignore[attr-defined]
        self.address = self.call(self.open(get_worker().address.partition(":")[0]))  # the scheme that the job has, too

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    async def open(self, scheme: str) -> str:
        self.listener = listen(f"{scheme}://127.0.0.1:0", self.receive)
        await self.listener.start()
        return str(self.listener.contact_address)

    async def receive(self, comm: Any) -> None:
        try:
            while True:
                message = await comm.read()
                self.got.put(message["array"].nbytes)
        except OSError:
            comm.abort()

    async def send(self, comm: Any, arrays: list[np.ndarray[Any, Any]]) -> None:
        for array in arrays:
            await comm.write({"array": to_serialize(array)})

    async def close(self, comm: Any) -> None:
        await comm.close()


ENDS: dict[str, Raw] = {}


def raw_open() -> str:
    end = ENDS["raw"] = Raw()
    return end.address


def raw_exchange(peer: str, n_bytes: int, steps: int) -> float:
    """Send and receive ``n_bytes`` a step; return seconds a step."""
    end = ENDS["raw"]
    sizes = [MESSAGE] * (n_bytes // MESSAGE) + [n_bytes % MESSAGE]
    arrays = [np.ones(size // 4, np.float32) for size in sizes if size]
    comm = end.call(connect(peer))
    times = []
    for _ in range(steps):
        started = time.perf_counter()
        sent = asyncio.run_coroutine_threadsafe(end.send(comm, arrays), end.loop)
        left = sum(array.nbytes for array in arrays)
        while left:
            left -= end.got.get(timeout=60)
        sent.result(60)  # a comm has one writer at a time
        times.append(time.perf_counter() - started)
    end.call(end.close(comm))
    return float(np.median(times))


def ready() -> None:
    """Do nothing: a process that runs this has loaded this file, and knows the algorithm."""
