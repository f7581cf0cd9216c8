"""FusedParams: the params of several gates in one array, for one matrix product."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.layers.param import Param
from singa_dask.ops.contract import Array, DType, Ops

# padding between rows: rows whose distance is a power of two would compete for the same few cache lines
GAP = 32


def padded_matrix(ops: Ops, shape: Sequence[int], dtype: DType) -> Array:
    """Return an uninitialised matrix with padded rows."""
    return ops.empty((shape[0], shape[1] + GAP), dtype)[:, : shape[1]]


class FusedParams:
    """The params of several gates side by side in one array.

    The array is filled once per batch, on first use.

    Parameters
    ----------
    params : sequence of Param
        Weights (D, V) or biases (D,), in their order in the array.
    biases : sequence of Param, optional
        If passed, even if empty, the array is transposed to (V, gates D), and the biases are added to each row.
    """

    def __init__(self, params: Sequence[Param], biases: Sequence[Param] | None = None) -> None:
        self.params = params
        self.biases = biases
        self.stale = True
        self._values: Array | None = None

    def value(self, ops: Ops) -> Array:
        """Return the array. A `stale` array is filled first."""
        first = self.params[0].data
        width = len(first)
        if self._values is None:
            size = width * len(self.params)
            if len(first.shape) == 1:
                self._values = ops.empty((size,), first.dtype)
            else:
                shape = (size, first.shape[1]) if self.biases is None else (first.shape[1], size)
                self._values = padded_matrix(ops, shape, first.dtype)
        if self.stale:
            for k, param in enumerate(self.params):
                place = slice(k * width, (k + 1) * width)
                if self.biases is None:
                    ops.copy(param.data, out=self._values[place])
                    continue
                ops.copy(param.data.T, out=self._values[:, place])
                if self.biases:
                    ops.add(self._values[:, place], self.biases[k].data, out=self._values[:, place])
            self.stale = False
        return self._values
