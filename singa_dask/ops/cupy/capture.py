"""CupyCapture: kernels that are captured once as a CUDA graph, and then launched all together.

A launch takes the host some microseconds, in a small net longer than the GPU needs for the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from singa_dask.ops.cupy.conv import CupyConv
from singa_dask.ops.cupy.random import CupyRandom, Draws
from singa_dask.ops.types import Key


class CupyCapture(CupyConv, CupyRandom):
    """Capture of kernels, a mixin of `CupyOps`."""

    supports_capture = True

    def capture(self, run: Callable[[], None]) -> CapturedKernels:
        draws = self.draws = Draws(self)
        try:
            graph = self.graph_of(run)
        finally:
            self.draws = None
        return CapturedKernels(self, graph, draws)


class CapturedKernels:
    """A graph of kernels, with the addresses of their memory.

    Parameters
    ----------
    ops : CupyCapture
        The backend whose kernels were captured, and whose scratch memory they use.
    graph : cupy.cuda.Graph
    draws : Draws
        The keys of their random numbers.
    """

    def __init__(self, ops: CupyCapture, graph: Any, draws: Draws) -> None:
        self._ops, self._graph, self._draws = ops, graph, draws
        self._n_grown = ops.n_grown

    @property
    def is_valid(self) -> bool:
        """Whether the memory that the kernels compute in is still theirs."""
        return self._n_grown == self._ops.n_grown

    def replay(self, key_now: Callable[[Key], Key]) -> None:
        """Enqueue the kernels once more.

        Parameters
        ----------
        key_now : callable
            The key of random numbers at the capture -> the key of this replay.
        """
        self._draws.put(self._ops.gpu, key_now)
        self._graph.launch(stream=self._ops.gpu.stream)
