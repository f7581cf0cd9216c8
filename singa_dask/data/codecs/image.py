"""Decodes images to (channels, height, width) with Pillow (the extra ``singa-dask[images]``)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.conf.model import Conf, Finding, Many, Size, as_list, raw_value
from singa_dask.errors import DataError, MissingPackageError

try:
    from PIL import Image, ImageOps, UnidentifiedImageError
except ImportError:
    Image = None  # type: ignore[assignment]

# errors of Pillow; the last ones say that an image has more pixels than PIL.Image.MAX_IMAGE_PIXELS allows
DAMAGE: tuple[type[Exception], ...] = (OSError, SyntaxError, ValueError)
if Image is not None:
    DAMAGE += (Image.DecompressionBombError, Image.DecompressionBombWarning)

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
HEAD_BYTES = 12
"""Number of bytes that `is_image` looks at."""
SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
MODES = {1: "L", 3: "RGB"}
WIDE_MODES = ("I", "F")
GREY_MODES = ("1", "L", "LA", "I;16", "I;16B", *WIDE_MODES)
ORIENTATION = 0x0112
"""Key of EXIF; from `TURNED` on, width and height are exchanged."""
TURNED = 5


class ImageOptions(Conf):
    """How images are decoded; see `decode_image`."""

    resize: Many[Size] | None = None
    """Height and width to which image files are scaled and cropped, for image-folder, image-list, image-parquet,
    parquet, tfrecord and webdataset."""
    channels: Literal[1, 3] = 3
    """Read image files as grey (1) or colour (3), for the same stores."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Refuse a size that is not height and width."""
        if len(as_list(raw_value(data, "resize", object, None))) not in (0, 2):
            yield ("resize",), "expected two numbers, height and width."


def is_image(data: bytes) -> bool:
    """Return whether bytes begin with the signature of an image."""
    is_bmp = data[:2] == b"BM" and data[6:10] == bytes(4)
    return data.startswith(SIGNATURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP") or is_bmp


def image_size(data: bytes, where: str) -> tuple[int, int, int]:
    """Return channels (1 if the image is grey, else 3), height and width of an encoded image.

    Raises
    ------
    DataError
        The image is damaged, or Pillow is not installed.
    """
    with _named_errors(where), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        size = (image.height, image.width) if _orientation(image) < TURNED else image.size
        return 1 if image.mode in GREY_MODES else 3, *size


def _orientation(image: Image.Image) -> int:
    """Return how an image has to be turned or mirrored, 1 if not at all; this does not decode it."""
    return int(image.getexif().get(ORIENTATION, 1)) if "exif" in image.info else 1


@contextlib.contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Convert errors of Pillow to `DataError`s, also that it is not installed."""
    if Image is None:
        message = f"{where}: Pillow is needed to decode images. Install it: pip install 'singa-dask[images]'."
        raise MissingPackageError(message)
    try:
        yield
    except UnidentifiedImageError as error:
        raise DataError(f"{where}: not an image, or a damaged one. Expected one of {', '.join(FORMATS)}.") from error
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(f"{where}: not an image, or a damaged one: {error}.") from error


def decode_image(
    data: bytes | memoryview, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Decode one image, as EXIF turns it; of several frames the first.

    Grey values of 16 bits are scaled to 8.

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
        The image is damaged, has values of 32 bits, or Pillow is not installed.
    """
    with _named_errors(where), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        return _pixels(image, where, resize, channels)


def image_pixels(
    image: Image.Image, where: str, resize: Sequence[int] | None = None, channels: int = 3
) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image of Pillow; see `decode_image`."""
    with _named_errors(where):
        return _pixels(image, where, resize, channels)


def _pixels(image: Image.Image, where: str, resize: Sequence[int] | None, channels: int) -> npt.NDArray[np.uint8]:
    if channels not in MODES:
        raise DataError(f"{where}: {channels} channels, expected 3 (colour) or 1 (grey).")
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PNG"):
        # Pillow would cut off what is over 255; older versions open PNG files of 16 bits with 32
        values = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    elif image.mode in WIDE_MODES:
        raise DataError(f"{where}: an image with values of 32 bits. Expected 8 or 16: their range is not known.")
    image = image.convert(MODES[channels])
    if resize:
        image = ImageOps.fit(image, (resize[1], resize[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1))


def image_columns(schema: pa.Schema) -> list[str]:
    """Return the names of columns of structs with ``bytes``."""
    return [
        column.name
        for column in schema
        if pa.types.is_struct(column.type)
        and column.type.get_field_index("bytes") >= 0
        and column.type.field("bytes").type in (pa.binary(), pa.large_binary())
    ]


def decode_images(
    column: pa.StructArray, where: str, resize: Sequence[int] | None, channels: int, first: int = 0
) -> list[npt.NDArray[np.uint8]]:
    """Decode a column of images.

    Parameters
    ----------
    where : str
        URL, for errors.
    resize, channels
        See `image.decode_image`.
    first : int
        Index of the first record, for errors.

    Returns
    -------
    list of (channels, height, width) uint8

    Raises
    ------
    DataError
        An image is missing or damaged.
    """
    images = []
    for i, data in enumerate(column.field("bytes"), first):
        if not data.is_valid:
            raise DataError(
                f"{where}, record {i}: has no bytes of an image, at most its path. Write the images themselves, as "
                "Dataset.push_to_hub and datasets.table.embed_table_storage do."
            )
        images.append(decode_image(data.as_buffer(), f"{where}, record {i}", resize, channels))
    return images
