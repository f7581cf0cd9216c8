"""CupyWeights: copies of weights in another layout or type, in one launch per captured step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from singa_dask.ops.cupy.device import Array, CupyDevice
from singa_dask.ops.cupy.launch import THREADS
from singa_dask.ops.cupy.memory import CupyMemory

# Constants of weights.cu: maximum number of weights in the table, numbers per table row, values per chunk, and blocks
# per launch.
MAX_WEIGHTS, WEIGHT_NUMBERS, CHUNK, COPY_BLOCKS = 1023, 6, 1024, 512


class StepWeights:
    """Weights that captured kernels need in another layout or type; one launch copies all of them.

    ``given`` and ``taken`` are the dtypes of the weights and of their copies.
    """

    def __init__(self, ops: CupyMemory, given: Any, taken: Any) -> None:
        self._gpu = ops.gpu
        # the table is in GPU memory, because the kernel reads it when it runs
        self._table = ops.empty((1 + MAX_WEIGHTS, WEIGHT_NUMBERS), np.int64)
        self._rows: dict[tuple[int, int], tuple[int, ...]] = {}
        self._n_chunks = 0
        self._copy = ops.gpu.function("weights", "copy_weights", In=given, Out=taken)

    def enqueue(self) -> None:
        """Enqueue the launch that copies all weights that are added before `put`."""
        self._copy((COPY_BLOCKS,), (THREADS,), (self._table,))

    def add(self, weights: Array, out: Array) -> bool:
        """Add weights and the memory to copy them to; return False if the table is full."""
        key = (weights.data.ptr, out.data.ptr)
        if key not in self._rows and len(self._rows) < MAX_WEIGHTS:
            channels = weights.shape[1] if weights.ndim > 1 else 1
            places = math.prod(weights.shape[2:])
            self._rows[key] = (*key, weights.size, channels, places, self._n_chunks)
            self._n_chunks += -(-weights.size // CHUNK)
        return key in self._rows

    def put(self) -> None:
        """Write the table, after the capture."""
        rows = [(len(self._rows), self._n_chunks, 0, 0, 0, 0), *self._rows.values()]
        self._gpu.put(np.array(rows, np.int64), self._table[: len(rows)])


class CupyWeights(CupyMemory):
    """Mixin of `CupyOps` that copies weights to the layout and type that kernels read."""

    def __init__(self, gpu: CupyDevice, precision: str = "float32") -> None:
        super().__init__(gpu, precision)
        # pairs (dtype of a weight, dtype of its copy) that were used so far, and their copies during a capture
        self._copied_kinds: set[tuple[Any, Any]] = set()
        self._step_weights: dict[tuple[Any, Any], StepWeights] = {}

    def copied_weights(self, w: Array, dtype: Any) -> Array:
        """Return a copy of weights or a bias with a dtype, in the layout of scratch memory.

        Each copy has its own memory. In a capture, `StepWeights` makes the copy, once per replay.
        """
        # each shape of the same weights needs its own memory, because all weights are copied before any is used
        taken = self.scratch(f"weights {w.data.ptr} {w.shape} {np.dtype(dtype)}", w.shape, dtype)
        kinds = (w.dtype, taken.dtype)
        copies = self._step_weights.get(kinds)
        if copies is None or not w.flags.c_contiguous or not copies.add(w, taken):
            self._copied_kinds.add(kinds)
            self.copy(w, out=taken)
        return taken
