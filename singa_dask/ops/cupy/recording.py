"""CupyRecording: kernels that are recorded once as a CUDA graph, and then launched all together.

To launch a kernel takes the host some microseconds, which in a small net is longer than the GPU has to do with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from singa_dask.ops import philox
from singa_dask.ops.cupy.conv import CupyConv
from singa_dask.ops.cupy.cublas import workspace
from singa_dask.ops.cupy.random import CupyRandom, Draws

__all__ = ["CupyRecording", "Recording"]


class CupyRecording(CupyConv, CupyRandom):
    """What records kernels, a mixin of `CupyOps`."""

    records = True

    def record(self, run: Callable[[], None]) -> Recording:
        # memory that is asked for first
        workspace(self.gpu.index)
        draws = self.draws = Draws(self)
        # a stream of its own: what other threads enqueue meanwhile is none of it
        with cupy.cuda.Stream(non_blocking=True) as stream:
            self.use_stream(stream)
            try:
                graph = recorded(stream, run)
            finally:
                self.use_stream(self.gpu.stream)
                self.draws = None
        return Recording(self, graph, draws)


class Recording:
    """A graph of kernels, which holds the addresses of what they compute in.

    Parameters
    ----------
    ops : CupyRecording
        Whose kernels, and scratch memory, they are.
    graph : cupy.cuda.Graph
    draws : Draws
        Keys of random numbers that they take.
    """

    def __init__(self, ops: CupyRecording, graph: Any, draws: Draws) -> None:
        self._ops, self._graph, self._draws = ops, graph, draws
        self._n_grown = ops.n_grown

    @property
    def holds(self) -> bool:
        """Whether the memory that the kernels compute in is still theirs."""
        return self._n_grown == self._ops.n_grown

    def repeat(self, key_now: Callable[[philox.Key], philox.Key]) -> None:
        """Enqueue the kernels once more.

        Parameters
        ----------
        key_now : callable
            The key of random numbers at the recording -> the key that they take now.
        """
        self._draws.put(self._ops.gpu, key_now)
        self._graph.launch(stream=self._ops.gpu.stream)


def recorded(stream: Any, run: Callable[[], None]) -> Any:
    """Return the graph of what is enqueued on a stream; that ends also where something cannot be recorded."""
    stream.begin_capture()
    try:
        run()
    finally:
        # raises too where what was enqueued has ended it
        graph = stream.end_capture()
    return graph
