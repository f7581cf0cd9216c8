"""NumpyNormalisation: normalisation over channels, groups of channels, the batch or rows, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_dask.arrays import Array, DType
from singa_dask.ops.contract import Running
from singa_dask.ops.numpy.elementwise import NumpyElementwise
from singa_dask.ops.numpy.images import pixel_sums, sum_of_channels


class NumpyNormalisation(NumpyElementwise):
    """Kernels that normalise images (N, C, H, W); some also take rows, (N, C) or (N, D).

    ``out`` must not share memory with an input. Parameters and statistics of channels, (C,), are dense, and are float32
    if images are bfloat16.
    """

    # -- local response normalisation --------------------------------------------------------------------

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        """Return the workspace ``work`` that `lrn` passes to `lrn_grad`, for images of a shape."""
        return self.features(shape, dtype)

    def lrn(self, x: Array, out: Array, work: Array | None, size: int, alpha: float, beta: float, knorm: float) -> None:
        """``out = x / S^beta``, ``S = knorm + alpha / size`` times the sum of ``x^2`` over ``size`` channels.

        Parameters
        ----------
        x, out : (N, C, H, W)
        work : from `lrn_memory`, or None if no gradient follows
        size : int
            Odd number of channels in the sum: from c - size // 2 to c + size // 2, without channels that do not exist.
        """
        for source, y, sums in self.pieces(x, out, work):
            sums = self.scratch("sums", y.shape, y.dtype) if sums is None else sums
            np.multiply(source, source, out=y)
            _add_neighbours(y, size, out=sums)
            np.multiply(sums, alpha / size, out=sums)
            np.add(sums, knorm, out=sums)
            self._inverse_power(sums, beta, out=y)
            np.multiply(y, source, out=y)

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Array, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        """``out = gy S^-beta - 2 beta alpha / size x T``, T the sum of ``gy x S^(-beta - 1)`` over these channels."""
        for source, g, gx, sums in self.pieces(x, gy, out, work):
            scaled, inner = (self.scratch(name, g.shape, g.dtype) for name in ("scaled", "inner"))
            self._inverse_power(sums, beta, out=scaled)
            np.multiply(scaled, g, out=scaled)
            np.multiply(scaled, source, out=inner)
            np.divide(inner, sums, out=inner)
            _add_neighbours(inner, size, out=gx)
            np.multiply(gx, source, out=gx)
            np.multiply(gx, -2 * beta * alpha / size, out=gx)
            np.add(gx, scaled, out=gx)

    def _inverse_power(self, x: Array, exponent: float, out: Array) -> None:
        """``out = x^-exponent``. The usual exponent 3 / 4 is computed by roots, which is several times faster."""
        if exponent != 0.75:
            np.power(x, -exponent, out=out)
            return
        root = self.scratch("root", x.shape, x.dtype)
        np.sqrt(x, out=out)
        np.sqrt(out, out=root)
        np.multiply(out, root, out=out)
        np.divide(1, out, out=out)

    # -- batch normalisation -----------------------------------------------------------------------------

    def batch_norm(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        mean: Array,
        variance: Array,
        out: Array,
        epsilon: float,
        training: bool,
        relu: bool = False,
        work: Array | None = None,
    ) -> None:
        """``out = scale (x - mean) / sqrt(variance + epsilon) + shift``, channel by channel.

        Parameters
        ----------
        x, out : (N, C, H, W) or (N, C)
        scale, shift : (C,)
        mean, variance : (C,)
            In training these are outputs: mean and variance of x over all rows and pixels. The variance is the sum of
            squares divided by the number of values.
        relu : bool
            Also apply `relu`.
        work : (n,) uint8, optional
            Workspace for `batch_norm_grad` with one bit for each value. It may be written in training with ``relu``.
        """
        if training:
            np.copyto(mean, sum_of_channels(x) * (mean.size / x.size), casting="same_kind")
            total = np.zeros(mean.shape)
            for source, y in self.pieces(x, out):
                np.subtract(source, _wide(mean, x), out=y)
                np.multiply(y, y, out=y)
                total += sum_of_channels(y)
            np.copyto(variance, total * (variance.size / x.size), casting="same_kind")
        factor = scale / np.sqrt(variance + epsilon)
        for source, y in self.pieces(x, out):
            np.subtract(source, _wide(mean, x), out=y)
            np.multiply(y, _wide(factor, x), out=y)
            np.add(y, _wide(shift, x), out=y)
            if relu:
                np.maximum(y, 0, out=y)

    def batch_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        running: Running | None = None,
        y: Array | None = None,
        work: Array | None = None,
    ) -> None:
        """Compute the gradients of `batch_norm` in training.

        With u = (x - mean) / sqrt(variance + epsilon) and M values in a channel, ``grad_shift = sum gy``,
        ``grad_scale = sum gy u`` and, unless ``out`` is None, ``out = scale / sqrt(variance + epsilon) (gy -
        grad_shift / M - u grad_scale / M)``. Shapes are those of `batch_norm`.

        Parameters
        ----------
        running : Running, optional
            Running statistics, whose gradients are written: ``grad_mean = rate (running mean - mean)``, and the
            variance likewise.
        y : optional
            Output of `batch_norm` with ``relu``: gy is masked where ``y <= 0``, as in `relu_grad`.
        work : optional
            The workspace that was passed to `batch_norm`. Pass it together with ``y``.
        """
        if running is not None:
            write_running(running, mean, variance)
        if y is not None:
            masked = self.scratch("masked", gy.shape, gy.dtype)
            np.greater(y, 0, out=masked)
            gy = np.multiply(gy, masked, out=masked)
        width = 1 / np.sqrt(variance + epsilon)
        total = np.zeros(variance.shape)
        for source, g in self.pieces(x, gy):
            product = self._normal(source, mean, width)
            np.multiply(product, g, out=product)
            total += sum_of_channels(product)
        np.copyto(grad_scale, total, casting="same_kind")
        np.copyto(grad_shift, sum_of_channels(gy), casting="same_kind")
        if out is None:
            return
        share = variance.size / x.size
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

    # -- layer normalisation ---------------------------------------------------------------------------------

    def layer_norm(
        self, x: Array, scale: Array, shift: Array, mean: Array, variance: Array, out: Array, epsilon: float
    ) -> None:
        """``out = scale (x - mean) / sqrt(variance + epsilon) + shift``, with mean and variance of each row.

        Parameters
        ----------
        x, out : (N, D)
        scale, shift : (D,)
        mean, variance : (N,)
            Outputs for `layer_norm_grad`; float32 if x is bfloat16. The variance is the sum of squares divided by D.
        """
        for source, y, middle, spread in self.pieces(x, out, mean, variance):
            np.mean(source, axis=1, out=middle)
            np.subtract(source, middle[:, None], out=y)
            square = self.scratch("square", y.shape, y.dtype)
            np.multiply(y, y, out=square)
            np.mean(square, axis=1, out=spread)
            np.multiply(y, _inverse_root(spread, epsilon)[:, None], out=y)
            np.multiply(y, scale, out=y)
            np.add(y, shift, out=y)

    def layer_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `layer_norm`.

        With u = (x - mean) / sqrt(variance + epsilon), ``grad_scale = sum_n gy u`` and ``grad_shift = sum_n gy``,
        added to earlier values if ``accumulate``; and, unless ``out`` is None,
        ``out = (g - mean_row(g) - u mean_row(g u)) / sqrt(variance + epsilon)`` with ``g = gy scale``.
        Shapes are those of `layer_norm`.
        """
        totals = np.zeros((2, x.shape[1]))
        for source, g, gx, middle, spread in self.pieces(x, gy, out, mean, variance):
            normal, product = (self.scratch(name, g.shape, g.dtype) for name in ("normal", "product"))
            width = _inverse_root(spread, epsilon)[:, None]
            np.subtract(source, middle[:, None], out=normal)
            np.multiply(normal, width, out=normal)
            np.multiply(normal, g, out=product)
            totals += np.add.reduce(product, axis=0), np.add.reduce(g, axis=0)
            if gx is not None:
                np.multiply(product, scale, out=product)
                np.multiply(normal, product.mean(axis=1, keepdims=True), out=normal)
                np.multiply(g, scale, out=product)
                np.add(normal, product.mean(axis=1, keepdims=True), out=normal)
                np.subtract(product, normal, out=product)
                np.multiply(product, width, out=gx)
        _write_sums(totals, grad_scale, grad_shift, accumulate)

    def layer_norm_grad_add(
        self,
        more: Array,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `layer_norm`, and add ``more`` (N, D) to the gradient of x."""
        self.layer_norm_grad(
            x,
            gy,
            scale,
            mean,
            variance,
            out=out,
            grad_scale=grad_scale,
            grad_shift=grad_shift,
            epsilon=epsilon,
            accumulate=accumulate,
        )
        self.add(out, more, out=out)

    # -- root mean squares -----------------------------------------------------------------------------------

    def inverse_root(self, x: Array, epsilon: float, out: Array) -> None:
        """``out = 1 / sqrt(x + epsilon)``, (N,)."""
        np.add(x, epsilon, out=out)
        np.sqrt(out, out=out)
        np.divide(1, out, out=out)

    # -- group normalisation ---------------------------------------------------------------------------------

    def group_norm(
        self, x: Array, scale: Array, shift: Array, mean: Array, variance: Array, out: Array, epsilon: float
    ) -> None:
        """``out = scale (x - mean) / sqrt(variance + epsilon) + shift``, with mean and variance per group.

        Parameters
        ----------
        x, out : (N, C, H, W)
        scale, shift : (C,)
        mean, variance : (N, G)
            Outputs for `group_norm_grad`; float32 if x is bfloat16. G divides C. A group has C / G neighbouring
            channels of one image, and its variance is the sum of squares divided by C / G H W.
        """
        for source, y, middle, spread in self.pieces(x, out, mean, variance):
            np.copyto(middle, _group_means(pixel_sums(source), source, middle), casting="same_kind")
            np.subtract(source, _of_channels(middle, x), out=y)
            square = self.scratch("square", y.shape, y.dtype)
            np.multiply(y, y, out=square)
            np.copyto(spread, _group_means(pixel_sums(square), source, spread), casting="same_kind")
            np.multiply(y, _of_channels(_inverse_root(spread, epsilon), x) * _wide(scale, x), out=y)
            np.add(y, _wide(shift, x), out=y)

    def group_norm_grad(
        self,
        x: Array,
        gy: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        out: Array | None,
        grad_scale: Array,
        grad_shift: Array,
        epsilon: float,
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `group_norm`, like `layer_norm_grad` with groups instead of rows."""
        totals = np.zeros((2, x.shape[1]))
        for source, g, gx, middle, spread in self.pieces(x, gy, out, mean, variance):
            normal, product = (self.scratch(name, g.shape, g.dtype) for name in ("normal", "product"))
            width = _of_channels(_inverse_root(spread, epsilon), x)
            np.subtract(source, _of_channels(middle, x), out=normal)
            np.multiply(normal, width, out=normal)
            np.multiply(normal, g, out=product)
            sums = pixel_sums(product), pixel_sums(g)
            totals += [np.add.reduce(each, axis=0) for each in sums]
            if gx is not None:
                slope, constant = (_of_channels(_group_means(each * scale, x, middle), x) for each in sums)
                np.multiply(normal, slope, out=normal)
                np.add(normal, constant, out=normal)
                np.multiply(g, _wide(scale, x), out=product)
                np.subtract(product, normal, out=product)
                np.multiply(product, width, out=gx)
        _write_sums(totals, grad_scale, grad_shift, accumulate)


def write_running(running: Running, mean: Array, variance: Array) -> None:
    """Write the gradients of running statistics, given the statistics of a batch."""
    for value, of_batch, grad in (
        (running.mean, mean, running.grad_mean),
        (running.variance, variance, running.grad_variance),
    ):
        np.subtract(value, of_batch, out=grad)
        np.multiply(grad, running.rate, out=grad)


def _add_neighbours(x: Array, size: int, out: Array) -> None:
    """``out[:, c]`` = sum of ``x[:, c - size // 2 : c + size // 2 + 1]``, clipped to the channels."""
    np.copyto(out, x)
    for k in range(1, min(size // 2, x.shape[1] - 1) + 1):
        np.add(out[:, k:], x[:, :-k], out=out[:, k:])
        np.add(out[:, :-k], x[:, k:], out=out[:, :-k])


def _wide(values: Array, x: Array) -> Array:
    """Return values (C,) to be broadcast against x."""
    return values[:, None, None] if x.ndim == 4 else values


def _inverse_root(variance: Array, epsilon: float) -> Array:
    root: Array = 1 / np.sqrt(variance + epsilon)
    return root


def _write_sums(totals: Array, grad_scale: Array, grad_shift: Array, accumulate: bool) -> None:
    """Write or add the gradients of scale and shift."""
    for total, out in zip(totals, (grad_scale, grad_shift), strict=True):
        np.add(total, out if accumulate else 0, out=out, casting="same_kind")


def _group_means(sums: Array, x: Array, groups: Array) -> Array:
    """Return the means over groups (N, G) from sums over the pixels of x (N, C), shaped like ``groups``."""
    n_values = x[0].size / groups.shape[1]
    total: Array = np.add.reduce(sums.reshape(*groups.shape, -1), axis=2) / n_values
    return total


def _of_channels(groups: Array, x: Array) -> Array:
    """Return values of groups (N, G), repeated by channel, to broadcast against images x, in their dtype."""
    values = np.repeat(groups, x.shape[1] // groups.shape[1], axis=1)[:, :, None, None]
    return values.astype(x.dtype, copy=False)
