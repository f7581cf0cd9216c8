"""NumpyNormalisation: normalisation over channels and over the batch, in numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_dask.ops.contract import Array, DType, Normalisation
from singa_dask.ops.numpy.images import sum_of_channels
from singa_dask.ops.scratch import Scratch

__all__ = ["NumpyNormalisation"]


class NumpyNormalisation(Scratch, Normalisation):
    """Kernels that normalise, a mixin of `NumpyOps`."""

    # -- local response normalisation --------------------------------------------------------------------

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        return self.features(shape, dtype)

    def lrn(self, x: Array, out: Array, work: Array | None, size: int, alpha: float, beta: float, knorm: float) -> None:
        for source, y, sums in self.pieces(x, out, work):
            sums = self.scratch("sums", y.shape, y.dtype) if sums is None else sums
            np.multiply(source, source, out=y)
            _add_neighbours(y, size, out=sums)
            np.multiply(sums, alpha / size, out=sums)
            np.add(sums, knorm, out=sums)
            np.power(sums, -beta, out=y)
            np.multiply(y, source, out=y)

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Array, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        for source, g, gx, sums in self.pieces(x, gy, out, work):
            scaled, inner = (self.scratch(name, g.shape, g.dtype) for name in ("scaled", "inner"))
            np.power(sums, -beta, out=scaled)
            np.multiply(scaled, g, out=scaled)
            np.multiply(scaled, source, out=inner)
            np.divide(inner, sums, out=inner)
            _add_neighbours(inner, size, out=gx)
            np.multiply(gx, source, out=gx)
            np.multiply(gx, -2 * beta * alpha / size, out=gx)
            np.add(gx, scaled, out=gx)

    # -- batch normalisation -----------------------------------------------------------------------------

    def batch_norm(
        self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float, training: bool
    ) -> None:
        if training:
            np.copyto(mean, sum_of_channels(x) * (mean.size / x.size), casting="same_kind")
            total = np.zeros(mean.shape)
            for source, y in self.pieces(x, out):
                np.subtract(source, _wide(mean, x), out=y)
                np.multiply(y, y, out=y)
                total += sum_of_channels(y)
            np.copyto(var, total * (var.size / x.size), casting="same_kind")
        factor = scale / np.sqrt(var + eps)
        for source, y in self.pieces(x, out):
            np.subtract(source, _wide(mean, x), out=y)
            np.multiply(y, _wide(factor, x), out=y)
            np.add(y, _wide(shift, x), out=y)

    def batch_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        var: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        eps: float,
    ) -> None:
        width = 1 / np.sqrt(var + eps)
        total = np.zeros(var.shape)
        for source, g in self.pieces(x, gy):
            product = self._normal(source, mean, width)
            np.multiply(product, g, out=product)
            total += sum_of_channels(product)
        np.copyto(grad_scale, total, casting="same_kind")
        np.copyto(grad_shift, sum_of_channels(gy), casting="same_kind")
        if out is None:
            return
        share = var.size / x.size
        for source, g, gx in self.pieces(x, gy, out):
            mixed = self._normal(source, mean, width)
            np.multiply(mixed, _wide(grad_scale * share, x), out=mixed)
            np.add(mixed, _wide(grad_shift * share, x), out=mixed)
            np.subtract(g, mixed, out=gx)
            np.multiply(gx, _wide(scale * width, x), out=gx)

    def _normal(self, x: Array, mean: Array, width: Array) -> Array:
        """Return (x - mean) width, in scratch memory."""
        normal = self.scratch("normal", x.shape, x.dtype)
        np.subtract(x, _wide(mean, x), out=normal)
        np.multiply(normal, _wide(width, x), out=normal)
        return normal


def _add_neighbours(x: Array, size: int, out: Array) -> None:
    """``out[:, c]`` = sum of ``x[:, c - size // 2 : c + size // 2 + 1]``, as far as it goes."""
    np.copyto(out, x)
    for k in range(1, min(size // 2, x.shape[1] - 1) + 1):
        np.add(out[:, k:], x[:, :-k], out=out[:, k:])
        np.add(out[:, :-k], x[:, k:], out=out[:, :-k])


def _wide(values: Array, x: Array) -> Array:
    """Return values (C,) to be broadcast against x."""
    return values[:, None, None] if x.ndim == 4 else values
