"""Decodes images to (channels, height, width) with Pillow, the extra ``singa-dask[images]``.

If simplejpeg is installed, it decodes most JPEG files, because it is faster. Pillow and simplejpeg give the same
pixels.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import posixpath
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Many, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import DataError, MissingPackageError
from singa_dask.lazy import LazyModule

if TYPE_CHECKING:
    import PIL
    from PIL import Image, ImageOps
else:
    PIL, Image, ImageOps = LazyModule("PIL"), LazyModule("PIL.Image"), LazyModule("PIL.ImageOps")
try:
    import simplejpeg
except ImportError:
    simplejpeg = None

logger = logging.getLogger(__name__)

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
HEAD_BYTES = 12
"""Number of bytes that `is_image` needs."""
SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
JPEG = SIGNATURES[1]
SPACES = {"YCbCr": "RGB", "Gray": "GRAY"}
"""Colour space of the file -> colour space that simplejpeg decodes to."""
MIN_JPEG = 8
"""Minimum height and width of a JPEG that simplejpeg decodes. In smaller files, the size after scaling does not
determine the scale."""
MODES = {1: "L", 3: "RGB"}
WIDE_MODES = ("I", "F")
GREY_MODES = ("1", "L", "LA", "I;16", "I;16B", *WIDE_MODES)
ORIENTATION = 0x0112
"""EXIF key of the orientation. For values from `TURNED` on, width and height are exchanged."""
TURNED = 5
MARGIN = 2
"""Minimum ratio of the size at which a JPEG is decoded to the size that it is scaled to. Larger ratios change pixels
less."""


class ImageOptions(Conf):
    """Options for decoding images; see `decode_image`."""

    resize: Many[Size] | None = None
    """Height and width to which image files are scaled and cropped, for image-folder, image-list, image-parquet,
    parquet, tfrecord, webdataset and Caffe's encoded images in lmdb. A JPEG of at least four times the size is decoded
    at a half, a quarter or an eighth of its size, and then scaled; values differ by about 0.4 of 255 on average."""
    channels: Literal[1, 3] = 3
    """Channels of image files, for the same stores: grey (1) or colour (3)."""

    def rules(self) -> Iterator[Finding]:
        """Check that a size has a height and a width."""
        if len(self.resize or ()) not in (0, 2):
            yield ("resize",), "expected two numbers, height and width."


def is_image(data: bytes) -> bool:
    """Return whether bytes begin with the signature of an image."""
    is_bmp = data[:2] == b"BM" and data[6:10] == bytes(4)
    return data.startswith(SIGNATURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or is_bmp


def image_size(data: bytes, where: str) -> tuple[int, int, int]:
    """Return channels (1 if the image is grey, else 3), height and width of an encoded image.

    Raises a `DataError` if the image is damaged, or Pillow is not installed.
    """
    with _named_errors(where), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        size = (image.height, image.width) if _orientation(image) < TURNED else image.size
        return 1 if image.mode in GREY_MODES else 3, *size


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an image without decoding it; 1 if it is missing or damaged."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, TypeError, ZeroDivisionError, struct.error):
        value = image.getexif().get(ORIENTATION) if "exif" in image.info else None
        if isinstance(value, int) and value in range(1, 9):
            return value
    return 1


@contextlib.contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Convert errors of Pillow to `DataError`; raise one if Pillow is not installed."""
    try:
        # Pillow raises the last two for an image with more pixels than PIL.Image.MAX_IMAGE_PIXELS
        damage = (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning)
    except ImportError:
        message = f"{where}: Pillow is needed to decode images. Install it: pip install 'singa-dask[images]'."
        raise MissingPackageError(message) from None
    try:
        yield
    except PIL.UnidentifiedImageError as error:
        raise DataError(f"{where}: not an image, or a damaged one. Expected one of {', '.join(FORMATS)}.") from error
    except DataError:
        raise
    except damage as error:
        raise DataError(f"{where}: not an image, or a damaged one: {error}.") from error


def decode_image(
    data: bytes | memoryview, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Decode the first frame of an image. 16-bit grey becomes 8-bit.

    The image is rotated according to its EXIF data.

    Parameters
    ----------
    where : str
        URL and record, for errors.
    resize : (height, width), optional
        Size of the result: the image is scaled to cover this size, then cropped at the centre. A JPEG is first decoded
        at a half, a quarter or an eighth of its size, if that is at least `MARGIN` times the new size.
    channels : {3, 1}
        Number of channels of the result: 3 for RGB, 1 for grey.

    Returns
    -------
    (channels, height, width) uint8

    Raises
    ------
    DataError
        The image is damaged or has 32-bit values, or Pillow is not installed.
    """
    with _named_errors(where), _decode_jpeg(data, resize) or Image.open(io.BytesIO(data), formats=FORMATS) as image:
        if resize and image.format:
            # formats other than JPEG ignore `draft`, and are decoded in full
            height, width = resize if _orientation(image) < TURNED else resize[::-1]
            image.draft(None, (MARGIN * width, MARGIN * height))
        return _pixels(image, where, resize, channels)


def _decode_jpeg(data: bytes | memoryview, resize: Sequence[int] | None) -> Image.Image | None:
    """Decode a plain JPEG with simplejpeg, to the same pixels as Pillow; return None for other files.

    Pillow has to decode files with EXIF data, which may have to be rotated, and some damaged files that simplejpeg
    refuses.
    """
    if simplejpeg is None or bytes(data[: len(JPEG)]) != JPEG or b"Exif" in (data := bytes(data)):
        return None
    most = Image.MAX_IMAGE_PIXELS or math.inf
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        if space not in SPACES or min(height, width) < MIN_JPEG or height * width > most:
            return None
        scale = min(height // (MARGIN * resize[0]), width // (MARGIN * resize[1])) if resize else 1
        # choose the scale as `Image.draft` does
        scale = next((each for each in (8, 4, 2) if scale >= each), 1)
        least = {"min_height": -(-height // scale), "min_width": -(-width // scale)}
        pixels = simplejpeg.decode_jpeg(data, SPACES[space], fastdct=False, fastupsample=False, **least)
    except ValueError:
        return None
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def image_pixels(
    image: Image.Image, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image of Pillow; see `decode_image`."""
    with _named_errors(where):
        return _pixels(image, where, resize, channels)


def _pixels(image: Image.Image, where: str, resize: Sequence[int] | None, channels: int) -> npt.NDArray[np.uint8]:
    if channels not in MODES:
        raise DataError(f"{where}: the image has {channels} channels, expected 3 (colour) or 1 (grey).")
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PNG"):
        # convert 16-bit values here, because Pillow would clip values over 255; older versions of Pillow open 16-bit
        # PNG files with 32 bits per pixel
        values = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    elif image.mode in WIDE_MODES:
        raise DataError(
            f"{where}: the image has values of 32 bits, whose range is unknown. Store them with 8 or 16 bits."
        )
    if image.has_transparency_data:
        image = _over_white(image, where)
    image = image.convert(MODES[channels])
    if resize:
        image = ImageOps.fit(image, (resize[1], resize[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def _over_white(image: Image.Image, where: str) -> Image.Image:
    """Draw an image over white, because its transparent parts are often black."""
    image = image.convert("RGBA")
    if image.getchannel("A").getextrema() != (255, 255):
        folder = posixpath.dirname(where) or "the records"
        warn_once(logger, f"{folder}: some images are transparent. They are drawn on a white background.")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
