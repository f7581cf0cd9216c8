"""NumpySoftmax: probabilities, losses and metrics of rows of scores, in numpy."""

from __future__ import annotations

import numpy as np

from singa_dask.ops.contract import Array, Softmax
from singa_dask.ops.scratch import Scratch

__all__ = ["NumpySoftmax"]


class NumpySoftmax(Scratch, Softmax):
    """Kernels on rows of scores, a mixin of `NumpyOps`."""

    def softmax(self, x: Array, out: Array) -> None:
        for source, y in self.pieces(x, out):
            row = self.scratch("row", (len(y), 1), y.dtype)
            np.max(source, axis=1, keepdims=True, out=row)
            np.subtract(source, row, out=y)
            np.exp(y, out=y)
            np.sum(y, axis=1, keepdims=True, out=row)
            np.divide(y, row, out=y)

    def softmax_grad(self, y: Array, gy: Array, out: Array) -> None:
        for p, g, gx in self.pieces(y, gy, out):
            row = self.scratch("row", (len(p), 1), p.dtype)
            np.einsum("nd,nd->n", p, g, out=row[:, 0])
            np.subtract(g, row, out=gx)
            np.multiply(gx, p, out=gx)

    def cross_entropy(self, p: Array, labels: Array) -> float:
        picked = p[np.arange(len(labels)), labels]
        return -float(np.log(np.maximum(picked, np.finfo(p.dtype).tiny)).mean(dtype=np.float64))

    def cross_entropy_grad(self, p: Array, labels: Array, scale: float, out: Array) -> None:
        factor = scale / len(labels)
        np.multiply(p, factor, out=out)
        out[np.arange(len(labels)), labels] -= factor

    def top(self, scores: Array, k: int, out: Array) -> None:
        last = scores.shape[1] - 1
        if k == 1:
            np.subtract(last, np.argmax(scores[:, ::-1], axis=1)[:, None], out=out, casting="unsafe")
        else:
            order = np.argsort(-scores[:, ::-1], axis=1, kind="stable")[:, :k]
            np.subtract(last, order, out=out, casting="unsafe")

    def count_in_top(self, scores: Array, labels: Array, k: int) -> int:
        own = scores[np.arange(len(labels)), labels][:, None]
        after, equal = (self.scratch(name, scores.shape, bool) for name in ("after", "equal"))
        np.equal(scores, own, out=equal)
        np.less_equal(np.arange(scores.shape[1]), labels[:, None], out=after)
        np.logical_and(equal, after, out=equal)
        np.less(scores, own, out=after)
        np.logical_or(after, equal, out=after)
        # Counting who does not come before makes a row of NaN a miss.
        return int(np.count_nonzero(after.sum(axis=1) > scores.shape[1] - k))
