"""PictureLayout: how the values of a record form a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.types import Field
from singa_dask.shown import by_shape

CHANNELS = (1, 3, 4)
# minimum side of an image whose values are stored in a row; a smaller one may be a matrix of other numbers
MIN_SIDE = 8


@dataclass(frozen=True)
class PictureLayout:
    """How the values of a field form a picture.

    Attributes
    ----------
    order : {"NCHW", "NHWC", "NHW"}
    shape : tuple of int
        Shape of a record.
    text : str
        The layout in words, and how to train with such pictures.
    is_guess : bool
        Whether the values are in a row, so that other shapes are possible.
    """

    field: str
    order: str
    shape: tuple[int, ...]
    text: str
    is_guess: bool = False

    def pictures(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return records as (n, height, width, channels)."""
        values = values.reshape(len(values), *self.shape)
        if self.order == "NHW":
            return values[..., None]
        return np.moveaxis(values, 1, -1) if self.order == "NCHW" else values


def guess_layout(schema: Mapping[str, Field], shape: Sequence[int] = ()) -> PictureLayout | None:
    """Return the layout of the first field whose values can be pictures; None if there is none.

    Parameters
    ----------
    shape : sequence of int
        Shape in which a record is displayed, if the store contains it as a row of values.
    """
    for name, field in schema.items():
        if name not in ("pixel", "data"):
            continue
        fits = shape and math.prod(shape) == math.prod(field.shape)
        if layout := _of_shape(name, tuple(shape) if fits else field.shape):
            return layout
    return None


def _of_shape(field: str, shape: tuple[int, ...]) -> PictureLayout | None:
    if len(shape) == 3 and shape[0] in CHANNELS:
        doubt = ", or channels last" if shape[2] in CHANNELS else ""
        return PictureLayout(field, "NCHW", shape, f"{by_shape(shape)}: channels, height, width (NCHW){doubt}")
    if len(shape) == 3 and shape[2] in CHANNELS:
        text = (
            f"{by_shape(shape)}: height, width, channels (NHWC). For shape: {[shape[2], *shape[:2]]} in a job set "
            "layout: NHWC, or store array.transpose(0, 3, 1, 2)"
        )
        return PictureLayout(field, "NHWC", shape, text)
    if len(shape) == 2 and min(shape) >= MIN_SIDE:
        return PictureLayout(
            field, "NHW", shape, f"{by_shape(shape)}: grey pictures of height {shape[0]}, width {shape[1]}"
        )
    if len(shape) != 1:
        return None
    for channels in (1, 3):
        side = math.isqrt(shape[0] // channels)
        if channels * side * side == shape[0] and side >= MIN_SIDE:
            guess = (side, side) if channels == 1 else (channels, side, side)
            text = f"{shape[0]} values in a row: perhaps pictures of {by_shape(guess)}"
            return PictureLayout(field, "NHW" if channels == 1 else "NCHW", guess, text, is_guess=True)
    return None
