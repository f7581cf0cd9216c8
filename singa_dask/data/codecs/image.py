"""Decodes PNG and JPEG images to (channels, height, width) with Pillow (the extra ``singa-dask[images]``)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError

try:
    from PIL import Image, ImageOps
except ImportError:
    Image = None  # type: ignore[assignment]

# errors of Pillow; the last ones say that an image has more pixels than PIL.Image.MAX_IMAGE_PIXELS allows
DAMAGE: tuple[type[Exception], ...] = (OSError, SyntaxError, ValueError)
if Image is not None:
    DAMAGE += (Image.DecompressionBombError, Image.DecompressionBombWarning)

__all__ = ["IMAGE_SUFFIXES", "decode_image", "image_pixels", "image_size", "is_image"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {1: "L", 3: "RGB"}
GREY_MODES = ("1", "L", "LA", "I", "I;16", "F")


def is_image(data: bytes) -> bool:
    """Return whether bytes begin with the signature of PNG or JPEG."""
    return data[:8] == b"\x89PNG\r\n\x1a\n" or data[:3] == b"\xff\xd8\xff"


def image_size(data: bytes, where: str) -> tuple[int, int, int]:
    """Return channels (1 if the image is grey, else 3), height and width of an encoded image.

    Raises
    ------
    DataError
        The image is damaged, or Pillow is not installed.
    """
    with _opened(data, where) as image:
        return 1 if image.mode in GREY_MODES else 3, image.height, image.width


@contextlib.contextmanager
def _opened(data: bytes | memoryview, where: str) -> Iterator[Image.Image]:
    """Open an encoded image; converts errors of Pillow to `DataError`s."""
    if Image is None:
        raise DataError(f"{where}: Pillow is needed to decode images. Install it: pip install 'singa-dask[images]'.")
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as file:
            yield file
    except DAMAGE as error:
        raise DataError(f"{where}: not a PNG or JPEG image, or a damaged one: {error}.") from error


def decode_image(
    data: bytes | memoryview, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Decode one image.

    Parameters
    ----------
    where : str
        URL and record, for errors.
    resize : (height, width), optional
        Scale to cover this size, then crop at the centre.
    channels : {3, 1}
        Convert to RGB or grey.

    Returns
    -------
    (channels, height, width) uint8

    Raises
    ------
    DataError
        The image is damaged, or Pillow is not installed.
    """
    _check_channels(where, channels)
    with _opened(data, where) as file:
        return _pixels(file, resize, channels)


def image_pixels(
    image: Image.Image, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image of Pillow; see `decode_image`."""
    _check_channels(where, channels)
    try:
        return _pixels(image, resize, channels)
    except DAMAGE as error:
        raise DataError(f"{where}: a damaged image: {error}.") from error


def _check_channels(where: str, channels: int) -> None:
    if Image is not None and channels not in MODES:
        raise DataError(f"{where}: {channels} channels, expected 3 (colour) or 1 (grey).")


def _pixels(image: Image.Image, resize: Sequence[int] | None, channels: int) -> npt.NDArray[np.uint8]:
    image = image.convert(MODES[channels])
    if resize:
        image = ImageOps.fit(image, (resize[1], resize[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))
