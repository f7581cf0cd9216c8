"""Draw a sheet of pictures, a row for each class."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.cli.picture_layout import guess_layout
from singa_dask.data.stores import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError, MissingPackageError
from singa_dask.shown import by_shape, plural

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError:
    Image = None  # type: ignore[assignment]

PER_CLASS, MAX_ROWS = 12, 40
# small images are scaled up by a whole number to about SIDE, large images down to MAX_SIDE
SIDE, MAX_SIDE = 56, 128
GAP, FONT, NAME = 6, 15, 24


class Pictures:
    """The first pictures of each class; ``shape`` is the shape of a record whose values are stored in a row.

    The constructor raises a DataError if the records are no pictures, or Pillow is not installed.
    """

    def __init__(self, store: Store, shape: Sequence[int] = ()) -> None:
        if Image is None:
            message = f"{store.url}: Pillow is needed to draw. Install it: pip install 'singa-dask[images]'."
            raise MissingPackageError(message)
        layout = guess_layout(store.schema, shape)
        if layout is None:
            fields = ", ".join(f"{name} {field.shape}" for name, field in store.schema.items())
            raise DataError(
                f"{store.url}: no pictures: {fields}. Expected (channels, height, width), (height, width, channels) or "
                "(height, width). Pass --shape if values in a row are pictures."
            )
        self.layout = layout
        self.by_class: dict[int | None, list[np.ndarray]] = defaultdict(list)

    def add(self, arrays: Arrays) -> None:
        """Keep the first pictures of each class."""
        values, labels = arrays[self.layout.field], arrays.get("label")
        if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
            chosen = {None: np.arange(len(values))}
        else:
            chosen = {label: np.flatnonzero(labels == label) for label in np.unique(labels).tolist()}
        for label, rows in chosen.items():
            kept = self.by_class[label]
            limit = PER_CLASS * (MAX_ROWS if label is None else 1) - len(kept)
            kept += [picture.copy() for picture in self.layout.pictures(values[rows[:limit]])]

    @property
    def described(self) -> str:
        """Text that says how many pictures there are, and their shape."""
        n = sum(map(len, self.by_class.values()))
        shape = by_shape(self.layout.shape)
        guess = " (a guess; --shape says otherwise)" if self.layout.is_guess else ""
        return f"{plural(n, 'picture')} of {shape}{guess}"


def draw_sheet(pictures: Pictures, facts: Mapping[str, Any]) -> bytes:
    """Return a PNG with a row of pictures for each class, after its label, name and number of records."""
    rows = _rows(pictures, facts)
    images = [[_image(picture, facts, pictures.layout.field) for picture in row] for _, row in rows]
    width, height = images[0][0].size
    font = ImageFont.load_default(FONT)
    title = f"{facts['url'].rstrip('/').rpartition('/')[2]}: {pictures.described}"
    more = len(pictures.by_class) - MAX_ROWS
    title += f", {more} more classes" if more > 0 else ""
    left = int(max(font.getlength(text) for text, _ in rows)) + GAP if rows[0][0] else 0
    step_x, step_y = width + GAP, max(height, FONT + 4) + GAP
    size = left + max(map(len, images)) * step_x + GAP, FONT + 3 * GAP + len(rows) * step_y
    sheet = Image.new("RGB", (max(size[0], int(font.getlength(title)) + 2 * GAP), size[1]), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), title, "black", font)
    for i, ((text, _), row) in enumerate(zip(rows, images, strict=True)):
        top = FONT + 3 * GAP + i * step_y
        draw.text((GAP, top + height // 2), text, "black", font, anchor="lm")
        for j, image in enumerate(row):
            sheet.paste(image, (GAP + left + j * step_x, top))
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


def _rows(pictures: Pictures, facts: Mapping[str, Any]) -> list[tuple[str, list[np.ndarray]]]:
    """Return text and pictures of each row."""
    if None in pictures.by_class:
        kept = pictures.by_class[None]
        return [("", kept[first : first + PER_CLASS]) for first in range(0, len(kept), PER_CLASS)]
    named = {each["label"]: each for each in facts["class_counts"]}
    rows = []
    for label in sorted(label for label in pictures.by_class if label is not None)[:MAX_ROWS]:
        name = named[label]["name"][:NAME]
        rows.append((f"{label} {name} ({named[label]['count']})".replace("  ", " "), pictures.by_class[label]))
    return rows


def _image(values: np.ndarray, facts: Mapping[str, Any], field: str) -> Image.Image:
    """Return a picture; numbers are scaled from black, the field's minimum, to white, its maximum."""
    if values.dtype != np.uint8:
        known = next(each for each in facts["fields"] if each["name"] == field)
        low, high = known["min"] or 0.0, known["max"] or 0.0
        with np.errstate(invalid="ignore"):
            scaled = (values.astype(np.float64) - low) * (255.0 / (high - low) if high > low else 0.0)
        values = np.nan_to_num(scaled, nan=0.0, posinf=255.0, neginf=0.0).clip(0, 255).round().astype(np.uint8)
    channels = values.shape[-1]
    image = Image.fromarray(np.ascontiguousarray(values[..., 0] if channels == 1 else values[..., :3]))
    side = max(image.size)
    if side > MAX_SIDE:
        return image.resize(_scaled(image.size, MAX_SIDE / side))
    return image.resize(_scaled(image.size, max(1, round(SIDE / side))), Image.Resampling.NEAREST)


def _scaled(size: tuple[int, int], factor: float) -> tuple[int, int]:
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
