"""Images: kernels on images: crops, convolution, pooling."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from singa_dask.ops.contract.device import Array, Pair


class Images(Protocol):
    """Kernels on images (N, C, H, W) of any strides, fastest if they lie in memory as N, H, W, C.

    ``C`` and ``F`` are the channels before and after, ``H, W`` and ``OH, OW`` the sizes;
    ``OH = floor((H + 2 pad - kernel) / stride) + 1``, and the width likewise. ``out`` shares memory with no input.
    """

    def crop_mirror_normalize(
        self,
        x: Array,
        top: Array,
        left: Array,
        mirrored: Array,
        mean: Array | float | None,
        std: Array | float | None,
        scale: float,
        out: Array,
    ) -> None:
        """``out = scale (x - mean) / std`` of a crop of each image, converted from the dtype of the records.

        Parameters
        ----------
        x : (N, C, H, W) uint8 or float
            May be a host array.
        top, left : (N,) integers of the host
            Upper left pixel of each crop.
        mirrored : (N,) bool of the host
            Whether a crop is then mirrored left to right.
        mean, std : (C, H, W), a number, or None
            Cropped as the image is. Steps with None are skipped.
        scale : float
        out : (N, C, h, w) float
        """

    # -- convolution -----------------------------------------------------------------------------------

    def conv2d(
        self, x: Array, w: Array, b: Array | None, out: Array, stride: Pair, pad: Pair, relu: bool = False
    ) -> None:
        """``out[n, f, i, j] = b[f] + sum_{c, k, l} w[f, c, k, l] x[n, c, i stride + k - pad, j stride + l - pad]``.

        Outside of the image x is 0. The kernel is not flipped, as usual in neural nets. With ``relu`` negative values
        of the result become 0; a NaN may, too.

        Parameters
        ----------
        x : (N, C, H, W)
        w : (F, C, kh, kw)
        b : (F,) or None
        out : (N, F, OH, OW)
        """

    def conv2d_grad_input(self, gy: Array, w: Array, out: Array, stride: Pair, pad: Pair) -> None:
        """``out`` (N, C, H, W) = gradient of `conv2d` with respect to x, from ``gy`` (N, F, OH, OW)."""

    def conv2d_grad_weight(
        self, x: Array, gy: Array, out: Array, bias: Array | None, stride: Pair, pad: Pair, accumulate: bool = False
    ) -> None:
        """``out`` (F, C, kh, kw) and ``bias`` (F,), if any, = gradients of `conv2d` with respect to w and b.

        Both are added to what is there if ``accumulate``.
        """

    # -- pooling -----------------------------------------------------------------------------------------

    def place_dtype(self, kernel: Pair) -> np.dtype[Any]:
        """Return the dtype of ``where`` of `max_pool`."""

    def max_pool(self, x: Array, out: Array, where: Array | None, kernel: Pair, stride: Pair, pad: Pair) -> None:
        """``out[n, c, i, j]`` = largest value of x in the window that starts at (i, j) stride - pad.

        Parameters
        ----------
        x : (N, C, H, W)
            Padding never wins; ``pad`` is less than ``kernel``.
        out : (N, C, OH, OW)
        where : (N, C, OH, OW) of dtype `place_dtype`, or None
            Written: the index of that value in its window, row by row; of equal ones the first.
        """

    def max_pool_grad(self, gy: Array, where: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair) -> None:
        """``out`` (N, C, H, W) = sum of ``gy`` (N, C, OH, OW) over the windows that have their largest value there."""

    def max_pool_grad_ties(
        self, x: Array, y: Array, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair
    ) -> None:
        """``out`` (N, C, H, W) = sum of ``gy`` over the windows whose largest value, ``y``, equals x there."""

    def avg_pool(self, x: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        """``out[n, c, i, j]`` = mean of x over the window that starts at (i, j) stride - pad.

        The sum is divided by kh kw if ``count_pad``, else by the number of pixels of the image in the window.
        """

    def avg_pool_grad(self, gy: Array, out: Array, kernel: Pair, stride: Pair, pad: Pair, count_pad: bool) -> None:
        """``out`` (N, C, H, W) = gradient of `avg_pool`, from ``gy`` (N, C, OH, OW)."""

    def global_avg_pool(self, x: Array, out: Array) -> None:
        """``out`` (N, C) = mean of x (N, C, H, W) over its pixels."""

    def global_avg_pool_grad(self, gy: Array, out: Array) -> None:
        """``out`` (N, C, H, W) = gradient of `global_avg_pool`: ``gy`` (N, C) / (H W) for each pixel."""
