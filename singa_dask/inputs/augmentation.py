"""Augmentation: random changes of the records of a training batch before normalisation.

The random numbers of a record depend only on the seed, the layer, the record and the epoch. So results are the same for
any number of workers and after a resume. A record is mixed with the record in the same row of the next batch. To crop
and mirror images, use `ImagePreprocess`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Field, NonNegative
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.feature import RecordIds
from singa_dask.ops.contract import Array

# keys that apply only to images
IMAGE_KEYS = ("flip", "rotate", "brightness", "contrast", "saturation", "cutout", "cutmix")
# weights of red, green and blue in the luma of a pixel (ITU-R BT.601)
LUMA = np.array([0.299, 0.587, 0.114])
# number of values that are changed at a time
PIECE_VALUES = 1 << 17


class AugmentConf(Conf):
    """``augment``: random changes of records, in training only, in the order of these keys."""

    brightness: NonNegative = 0.0
    """Multiply an image by a factor from [max(0, 1 - brightness), 1 + brightness]. Pixels stay from 0 to 255."""
    contrast: NonNegative = 0.0
    """Multiply the differences of an image from its mean grey by a factor from [max(0, 1 - contrast), 1 + contrast]."""
    saturation: NonNegative = 0.0
    """Multiply the differences of colours from their grey by a factor from [max(0, 1 - saturation), 1 + saturation]."""
    flip: bool = False
    """Turn half of the images upside down. ImagePreprocess mirrors images left to right."""
    rotate: float = Field(default=0.0, ge=0, le=180)
    """Rotate an image about its centre by up to this many degrees, either way, with bilinear interpolation. Pixels
    outside of the image are the mean of the records, which is 0 after normalisation."""
    cutout: Count = 0
    """Side of a square of each image that is set to the mean, in pixels, centred at a random pixel; 0 for none."""
    drop: float = Field(default=0.0, ge=0, lt=1)
    """Probability of setting a value, such as a column of a table, to the mean."""
    noise: NonNegative = 0.0
    """Standard deviation of Gaussian noise added to each normalised value."""
    mixup: NonNegative = 0.0
    """Mix each record x with the record x' in the same row of the next batch, after Zhang et al. (2018): s x + (1 -
    s) x', with s from Beta(mixup, mixup); 0 for no mixing. A SoftmaxLoss mixes the losses. Set this key in all input
    layers."""
    cutmix: NonNegative = 0.0
    """Replace a rectangle of each image by the same rectangle of the image in its row of the next batch, after Yun et
    al. (2019). The rectangle has 1 - s of the area, with s from Beta(cutmix, cutmix), and is clipped to the image.
    With both mixup and cutmix, half of the images are mixed each way."""


class Augmentation:
    """Changes records at random.

    Parameters
    ----------
    conf : AugmentConf
    shape : sequence of int
        Shape of a record; images are (channels, height, width).
    mean, std : ndarray with the shape of a record, a number, or None
        Mean and divisor of the normalisation that follows.
    draw : callable
        Draws four random integers in [0, 2^32) for each row: (4, N) int64. Its arguments are a name and two int64
        arrays (N,). The integers depend only on these arguments.
    """

    def __init__(
        self,
        conf: AugmentConf,
        shape: Sequence[int],
        mean: Array | float | None,
        std: Array | float | None,
        draw: Callable[[str, Array, Array], Array],
    ) -> None:
        self.conf, self.shape, self.draw = conf, tuple(shape), draw
        self.mean = 0.0 if mean is None else mean
        # a constant column has an infinite divisor, and gets no noise
        self.std = 1.0 if std is None else np.where(np.isfinite(std), std, 0.0)

    def __call__(self, values: Array, ids: Array, epochs: Array) -> Array:
        """Return changed copies of records.

        Parameters
        ----------
        values : (N, *shape) uint8 or float
        ids, epochs : (N,) int64
            Index of each record in the store, and its epoch.

        Returns
        -------
        (N, *shape) float
            float64 for float64, else float32.
        """
        is_wide, n_rows = values.dtype == np.float64, max(1, PIECE_VALUES // int(np.prod(self.shape)))
        changed = np.array(values, np.float64 if is_wide else np.float32, order="C")
        highest = 255.0 if values.dtype == np.uint8 else None
        for first in range(0, len(values), n_rows):
            part = slice(first, first + n_rows)
            if len(self.shape) == 3:
                self._change_images(changed[part], ids[part], epochs[part], highest)
            self._change_values(changed[part], ids[part], epochs[part])
        return changed

    def _change_images(self, x: Array, ids: Array, epochs: Array, highest: float | None) -> None:
        conf, (height, width) = self.conf, self.shape[1:]
        factors = self.draw("colour", ids, epochs)[:3] / 2**32
        for name, factor in zip(("brightness", "contrast", "saturation"), factors, strict=True):
            if strength := getattr(conf, name):
                low = max(0.0, 1 - strength)
                factor = (low + (1 + strength - low) * factor).astype(x.dtype)[:, None, None, None]
                towards: Array | float = 0.0
                if name != "brightness":
                    towards = _grey(x)
                if name == "contrast":
                    # compute the mean of each image separately, so that the order of summation does not depend on the
                    # number of images
                    grey = np.ascontiguousarray(towards).reshape(len(x), -1)
                    towards = np.array([each.mean(dtype=np.float64) for each in grey], x.dtype)[:, None, None, None]
                np.clip(towards + factor * (x - towards), 0 if highest else None, highest, out=x)
        turn, *centre, upside = self.draw("place", ids, epochs)
        if conf.flip:
            flipped = upside >> 31 == 1
            x[flipped] = x[flipped, :, ::-1]
        if conf.rotate:
            x[...] = rotated(x, conf.rotate * (turn / 2**31 - 1), self.mean)
        if conf.cutout:
            inside = [
                (np.arange(size) - (at * size >> 32)[:, None] + conf.cutout // 2) // conf.cutout == 0
                for at, size in zip(centre, (height, width), strict=True)
            ]
            np.copyto(x, self.mean, where=inside[0][:, None, :, None] & inside[1][:, None, None, :], casting="unsafe")

    def _change_values(self, x: Array, ids: Array, epochs: Array) -> None:
        if self.conf.drop:
            dropped = self._words("drop", ids, epochs) < self.conf.drop * 2**32
            np.copyto(x, self.mean, where=dropped.reshape(x.shape), casting="unsafe")
        if self.conf.noise:
            # Box-Muller transform of pairs of neighbours; adding 2**-32 keeps the argument of the logarithm in (0, 1]
            words = self._words("noise", ids, epochs, n_values=x[0].size + x[0].size % 2).reshape(len(x), -1, 2) / 2**32
            radius, angle = np.sqrt(-2 * np.log(words[..., 0] + 2.0**-32)), 2 * np.pi * words[..., 1]
            normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(len(x), -1)
            x += (self.conf.noise * self.std * normal[:, : x[0].size].reshape(x.shape)).astype(x.dtype)

    def _words(self, name: str, ids: Array, epochs: Array, n_values: int = 0) -> Array:
        """Draw ``n_values`` random integers for each record: (N, n_values).

        By default, one integer is drawn for each value of a record.
        """
        n_values = n_values or int(np.prod(self.shape))
        n = -(-n_values // 4)
        low = (ids[:, None] * n + np.arange(n)).reshape(-1)
        words = self.draw(name, low, np.repeat(epochs, n)).reshape(4, len(ids), n)
        return words.transpose(1, 2, 0).reshape(len(ids), -1)[:, :n_values]


class Mixing:
    """Mixes pairs of records, by mixup or CutMix.

    Parameters
    ----------
    conf : AugmentConf
    shape : sequence of int
        Shape of the features of a record; images are (channels, height, width).
    draw : callable
        Draws four random integers in [0, 2^32) for each record: (4, N) int64. All layers get the same integers.
    """

    def __init__(self, conf: AugmentConf, shape: Sequence[int], draw: Callable[..., Array]) -> None:
        self.mixup, self.cutmix = conf.mixup, conf.cutmix
        self.size, self.draw = np.array(shape[-2:]), draw

    def __call__(self, x: Array, other: Array, records: RecordIds) -> tuple[Array, Array]:
        """Return mixed copies of records, and the weight of ``x`` in each copy.

        Parameters
        ----------
        x, other : (N, *shape) float
            The records to mix. If the values are not images but, for example, targets of images, they are mixed with
            the same weights as the images.
        records : RecordIds
            Indices and epochs of ``x``.

        Returns
        -------
        (N, *shape) float
            The mixed records.
        (N,) float64
            Weight of each record of ``x`` in the mixture, from 0 to 1.
        """
        words = self.draw(records.ids, records.epochs)
        is_cut = np.full(len(x), self.cutmix > 0)
        if self.mixup and self.cutmix:
            is_cut = words[0] & 1 == 1
        mix_weights = symmetric_beta(np.where(is_cut, self.cutmix, self.mixup), words)
        if self.cutmix:
            half = (np.sqrt(1 - mix_weights)[:, None] * self.size / 2).astype(np.int64)
            centre = words[2:].T * self.size >> 32
            low, high = np.maximum(centre - half, 0), np.minimum(centre + half, self.size)
            mix_weights = np.where(is_cut, 1 - np.prod(high - low, axis=1) / np.prod(self.size), mix_weights)
        # this form of the weighted mean returns equal values unchanged
        mixed = other + mix_weights.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1)) * (x - other)
        for row in np.flatnonzero(is_cut) if x.ndim == 4 else ():
            rows, columns = map(slice, low[row], high[row])
            mixed[row] = x[row]
            mixed[row, :, rows, columns] = other[row, :, rows, columns]
        return mixed, mix_weights


def symmetric_beta(alpha: Array | float, words: Array) -> Array:
    """Draw (N,) float64 from Beta(alpha, alpha).

    The random numbers are computed from the first two rows of ``words``, integers in [0, 2^32).

    Notes
    -----
    Bailey (1994) draws from Student's distribution with 2 alpha degrees of freedom, from a radius and an angle. A
    change of variable turns this into Beta(alpha, alpha).
    """
    near = ((words[0] + 1) / 2**32) ** (1 / np.asarray(alpha))
    cosine = np.cos(2 * np.pi / 2**32 * words[1])
    far = (1 - near) * cosine**2
    drawn: Array = (1 + np.copysign(np.sqrt(far / (near + far)), cosine)) / 2
    return drawn


def check_augment(conf: AugmentConf, shape: Sequence[int]) -> None:
    """Raise a ConfigError for keys that do not apply to records of this shape.

    Paths in the error are relative to the layer.
    """
    wrong = {}
    if len(shape) != 3:
        message = f"for images only: expected a shape [channels, height, width], got {list(shape)}."
        wrong = {key: message for key in IMAGE_KEYS if getattr(conf, key)}
    elif conf.saturation and shape[0] != 3:
        wrong["saturation"] = f"for images of three channels only, got {shape[0]} channels."
    elif conf.cutout > max(shape[1:]):
        wrong["cutout"] = (
            f"expected at most {max(shape[1:])}, as images are {shape[1]} x {shape[2]}, got {conf.cutout}."
        )
    if wrong:
        raise ConfigError([Problem(("store_conf", "augment", key), message) for key, message in wrong.items()])


def _grey(x: Array) -> Array:
    """Return the luma of images with three channels, else the mean of the channels: (N, 1, H, W)."""
    weights = LUMA if x.shape[1] == 3 else np.full(x.shape[1], 1 / x.shape[1])
    grey: Array = np.multiply(x[:, :1], weights[0], dtype=x.dtype)
    for channel in range(1, len(weights)):
        grey += np.multiply(x[:, channel : channel + 1], weights[channel], dtype=x.dtype)
    return grey


def rotated(x: Array, degrees: Array, mean: Array | float) -> Array:
    """Rotate images counter-clockwise about their centres, with bilinear interpolation.

    Parameters
    ----------
    x : (N, C, H, W) float
    degrees : (N,) float
        Angle of each image.
    mean : (C, H, W), or a number
        Value of pixels outside of the original image.
    """
    n, _, height, width = x.shape
    angle, middle = np.deg2rad(degrees)[:, None, None], ((height - 1) / 2, (width - 1) / 2)
    down, right = np.arange(height)[:, None] - middle[0], np.arange(width) - middle[1]
    row = np.cos(angle) * down + np.sin(angle) * right + middle[0]
    column = np.cos(angle) * right - np.sin(angle) * down + middle[1]
    top, left = np.floor(row), np.floor(column)
    pixels, out = x.reshape(n, -1, height * width), np.zeros_like(x)
    inside: Any = 0.0
    for i, j in np.ndindex(2, 2):
        at = (top + i, left + j)
        weight = (1 - abs(row - at[0])) * (1 - abs(column - at[1]))
        weight *= (at[0] >= 0) & (at[0] < height) & (at[1] >= 0) & (at[1] < width)
        index = np.clip(at[0], 0, height - 1) * width + np.clip(at[1], 0, width - 1)
        found = np.take_along_axis(pixels, index.astype(np.int64).reshape(n, 1, -1), axis=2).reshape(x.shape)
        out += weight.astype(x.dtype)[:, None] * found
        inside = inside + weight
    out += ((1 - inside)[:, None] * mean).astype(x.dtype)
    return out
