"""Columns of encoded images as Hugging Face's datasets write them: structs of ``bytes`` and ``path``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.image import decode_image
from singa_dask.errors import DataError

__all__ = ["decode_images", "image_columns"]


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
