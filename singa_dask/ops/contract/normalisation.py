"""Normalisation: over channels, the batch, rows, and groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from singa_dask.ops.contract.device import Array, DType


class Running(NamedTuple):
    """The running statistics of a batch normalisation.

    Attributes
    ----------
    mean, var : (C,)
        Their values.
    grad_mean, grad_var : (C,)
        Their gradients, what an update subtracts.
    rate : float
        1 minus the decay rate.
    """

    mean: Array
    var: Array
    grad_mean: Array
    grad_var: Array
    rate: float


class Normalisation(Protocol):
    """Kernels that normalise (N, C, H, W), or (N, C) where noted. ``out`` shares memory with no input.

    Parameters and statistics of channels, (C,), are dense, and float32 where images are bfloat16.
    """

    # -- local response normalisation ------------------------------------------------------------------------

    def lrn_memory(
        self, shape: Sequence[int], dtype: DType, size: int, alpha: float, beta: float, knorm: float
    ) -> Array:
        """Return ``work`` of `lrn`, which it leaves to `lrn_grad`; ``shape`` is that of the images."""

    def lrn(self, x: Array, out: Array, work: Array | None, size: int, alpha: float, beta: float, knorm: float) -> None:
        """``out = x / S^beta``, ``S = knorm + alpha / size`` times the sum of ``x^2`` over ``size`` channels around.

        Parameters
        ----------
        x, out : (N, C, H, W)
        work : from `lrn_memory`, or None if no gradient follows
        size : int
            Odd; the sum is over the channels from c - size // 2 to c + size // 2 that exist.
        """

    def lrn_grad(
        self, x: Array, gy: Array, out: Array, work: Array, size: int, alpha: float, beta: float, knorm: float
    ) -> None:
        """``out = gy S^-beta - 2 beta alpha / size x T``, T the sum of ``gy x S^(-beta - 1)`` over these channels."""

    # -- batch normalisation -------------------------------------------------------------------------------

    def batch_norm(
        self,
        x: Array,
        scale: Array,
        shift: Array,
        mean: Array,
        var: Array,
        out: Array,
        eps: float,
        training: bool,
        relu: bool = False,
    ) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, channel by channel.

        Parameters
        ----------
        x, out : (N, C, H, W) or (N, C)
        scale, shift : (C,)
        mean, var : (C,)
            In training those of x over all rows and pixels are written here; the variance divides by their number.
        relu : bool
            ``out`` is `relu` of that.
        """

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
        running: Running | None = None,
        y: Array | None = None,
    ) -> None:
        """Compute the gradients of `batch_norm` in training.

        With u = (x - mean) / sqrt(var + eps) and M values in a channel, ``grad_shift = sum gy``,
        ``grad_scale = sum gy u`` and, unless it is None,
        ``out = scale / sqrt(var + eps) (gy - grad_shift / M - u grad_scale / M)``. Shapes are those of `batch_norm`.

        Parameters
        ----------
        running : Running, optional
            Its gradients are written, ``grad_mean = rate (running mean - mean)`` and likewise of the variance.
        y : optional
            Output of `batch_norm` with ``relu``, if that made it: gy counts where ``y > 0``, as in `relu_grad`.
        """

    # -- layer and group normalisation -----------------------------------------------------------------------

    def layer_norm(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, with mean and variance of each row.

        Parameters
        ----------
        x, out : (N, D)
        scale, shift : (D,)
        mean, var : (N,)
            Written, for `layer_norm_grad`; float32 where x is bfloat16. The variance divides by D.
        """

    def layer_norm_grad(
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
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `layer_norm`.

        With u = (x - mean) / sqrt(var + eps), ``grad_scale = sum_n gy u`` and ``grad_shift = sum_n gy``, added to what
        is there if ``accumulate``; and, unless it is None,
        ``out = (g - mean_row(g) - u mean_row(g u)) / sqrt(var + eps)`` with ``g = gy scale``.
        Shapes are those of `layer_norm`.
        """

    def group_norm(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array, out: Array, eps: float) -> None:
        """``out = scale (x - mean) / sqrt(var + eps) + shift``, with mean and variance of each group of channels.

        Parameters
        ----------
        x, out : (N, C, H, W)
        scale, shift : (C,)
        mean, var : (N, G)
            Written, for `group_norm_grad`; float32 where x is bfloat16. G divides C: a group is C / G neighbouring
            channels of one image, and the variance divides by C / G H W.
        """

    def group_norm_grad(
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
        accumulate: bool = False,
    ) -> None:
        """Compute the gradients of `group_norm`, as `layer_norm_grad` does with groups for rows."""
