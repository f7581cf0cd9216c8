"""Inspection: what a store says of itself, what its records show, and likely trouble; this as text, and as pictures."""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.cli.init_numbers import say_forms
from singa_dask.cli.printing import TextColumn, table
from singa_dask.cli.tasks import counted
from singa_dask.data.codecs.record import show_schema
from singa_dask.data.codecs.tokens import MIN_WORDS, TextMeasure
from singa_dask.data.stores import STORES, Store
from singa_dask.data.stores.class_names import find_label, has_several_labels, label_columns
from singa_dask.data.stores.opening import check_manifests
from singa_dask.data.stores.table import TableStore
from singa_dask.data.types import Arrays, Field, TableColumn
from singa_dask.errors import DataError, MissingPackageError, listed
from singa_dask.shown import plural

# Pictures of records: how the values of a record make one, and a sheet of them, a row for each class, by Pillow.


try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError:
    Image = None  # type: ignore[assignment]

CHANNELS = (1, 3, 4)
# least side of a picture whose values are in a row, or that may be a matrix of other numbers
MIN_SIDE = 8


@dataclass(frozen=True)
class PictureLayout:
    """How the values of a field make a picture.

    Attributes
    ----------
    field : str
    order : {"NCHW", "NHWC", "NHW"}
    shape : tuple of int
        Shape of a record.
    text : str
        The same in words, and what to do to train with such pictures.
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
    """Return the layout of the first field that can be pictures; None if there is none.

    Parameters
    ----------
    schema : mapping of str to Field
    shape : sequence of int
        Shape of a record, if values in a row are to be seen so.
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


def by_shape(shape: Sequence[int]) -> str:
    """Show a shape as ``28 x 28``."""
    return " x ".join(map(str, shape))


# -- a sheet ----

PER_CLASS, MAX_ROWS = 12, 40
# small pictures are scaled up by a whole number to about this side, large ones down to it
SIDE, MAX_SIDE = 56, 128
GAP, FONT, NAME = 6, 15, 24


class Pictures:
    """The first pictures of each class among the records that were looked at.

    Parameters
    ----------
    store : Store
    shape : sequence of int
        Shape of a record, if it has its values in a row.

    Raises
    ------
    DataError
        The records are no pictures, or Pillow is not installed.
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
                "(height, width). Give --shape if values in a row are pictures."
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
        """What the sheet shows, in words."""
        n = sum(map(len, self.by_class.values()))
        shape = " x ".join(map(str, self.layout.shape))
        guess = " (a guess; --shape says otherwise)" if self.layout.is_guess else ""
        return f"{plural(n, 'picture')} of {shape}{guess}"


def draw_sheet(pictures: Pictures, facts: Mapping[str, Any]) -> bytes:
    """Return a PNG: a row of pictures for each class, its label, name and number of records before them."""
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
    """Return one picture; numbers from the least to the largest of the field become black to white."""
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


# labels up to the number of distinct ones times this are class numbers
MAX_SPARSE = 10
# ratio of standard deviations from which on features are of very different scales
MAX_RATIO = 1000.0
MAX_NAMED = 5
MAX_COMPARED = 1 << 14
# of so many records nearly all have another number, if they are numbered: float32 makes some of large numbers equal
MIN_NUMBERED, NUMBERED = 20, 0.99
# fields of more values have one range for all of them
MAX_FEATURES = 1 << 12

Values = npt.NDArray[Any]


class FieldStatistics:
    """Statistics of each value of a field; of all of them together if there are many.

    Attributes
    ----------
    low, high, mean, variance : (n_features,) float64
        NaN where a feature has no finite value. Infinite values and NaN do not count.
    counts : (n_features,) int64
        Number of finite values.
    n_nan, n_infinite : int
    """

    def __init__(self, field: Field) -> None:
        size = int(np.prod(field.shape, dtype=np.int64))
        n = size if size <= MAX_FEATURES else 1
        self.by_feature = n == size
        self.low, self.high = np.full(n, np.inf), np.full(n, -np.inf)
        self.mean, self._squares = np.zeros(n), np.zeros(n)
        self.counts = np.zeros(n, np.int64)
        self.n_nan = self.n_infinite = 0

    def add(self, block: Values) -> None:
        """Add the values of some records, (n, *shape)."""
        values = block.reshape(-1, len(self.counts)).astype(np.float64)
        finite = np.isfinite(values)
        n_nan = int(np.isnan(values).sum())
        self.n_nan += n_nan
        self.n_infinite += int((~finite).sum()) - n_nan
        self.low = np.minimum(self.low, values.min(axis=0, where=finite, initial=np.inf))
        self.high = np.maximum(self.high, values.max(axis=0, where=finite, initial=-np.inf))
        self._merge(np.where(finite, values, 0.0), finite, finite.sum(axis=0))

    def _merge(self, values: Values, finite: Values, counts: Values) -> None:
        """Merge means and sums of squared differences (Chan, Golub and LeVeque 1979)."""
        some, total = np.maximum(counts, 1), np.maximum(self.counts + counts, 1)
        mean = values.sum(axis=0) / some
        squares = (np.square(values - mean) * finite).sum(axis=0)
        step = mean - self.mean
        self._squares += squares + np.square(step) * self.counts * counts / total
        self.mean += np.where(counts > 0, step * counts / total, 0.0)
        self.counts += counts

    @property
    def variance(self) -> Values:
        """Variance of each feature."""
        return np.asarray(self._squares / np.maximum(self.counts, 1))

    def summary(self) -> dict[str, Any]:
        """Return ``min``, ``max``, ``mean`` of all values, None if none is finite, and ``nan``, their number."""
        n = int(self.counts.sum())
        if not n:
            return {"nan": self.n_nan}
        mean = float((self.mean * self.counts).sum() / n)
        return {"min": float(self.low.min()), "max": float(self.high.max()), "mean": mean, "nan": self.n_nan}


def label_findings(labels: Mapping[int, int], names: Sequence[str], n_records: int) -> list[str]:
    """Return what is wrong with labels.

    Parameters
    ----------
    labels : mapping of int to int
        Number of records of each label that was looked at.
    names : sequence of str
        Class names, may be empty.
    n_records : int
        Number of records of the store.
    """
    low, high, n_seen = min(labels), max(labels), sum(labels.values())
    if n_seen >= MIN_NUMBERED and len(labels) >= NUMBERED * n_seen:
        return [f"{len(labels)} different labels in {n_seen} records: like ids, which number records. Set label"]
    if low < 0:
        return [f"labels from {low} on. Expected classes from 0 on"]
    if names and high >= len(names):
        return [f"label {high} has no class name: there are names for 0 to {len(names) - 1}"]
    if high >= max(MAX_SPARSE * len(labels), 100):
        return [f"{len(labels)} different labels from {low} to {high}. Expected classes from 0 on, without gaps"]
    if len(labels) == 1:
        return [f"all labels are {low}"]
    if low and not names:
        return [f"labels from {low} to {high}. Expected classes from 0 on: subtract {low}, or have {high + 1} outputs"]
    absent = [label for label in range(max(high + 1, len(names))) if label not in labels]
    if not absent:
        return []
    shown = listed([f"{label} ({names[label]})" if names else str(label) for label in absent])
    if n_seen < n_records:
        return [f"not among the {n_seen} records looked at: class {shown}"]
    return [f"no record of class {shown}"]


def value_findings(field: str, statistics: FieldStatistics, names: Mapping[int, str], is_picture: bool) -> list[str]:
    """Return what is wrong with the values of a field.

    Parameters
    ----------
    field : str
    statistics : FieldStatistics
    names : mapping of int to str
        Names of features, by index, where they have some.
    is_picture : bool
        Whether values are pixels: some of these may well be constant.
    """
    texts = []
    if statistics.n_nan:
        texts.append(f"{field}: {plural(statistics.n_nan, 'value is', 'values are')} NaN")
    if statistics.n_infinite:
        texts.append(f"{field}: {plural(statistics.n_infinite, 'value is', 'values are')} infinite")
    empty = np.flatnonzero(statistics.counts == 0)
    if len(empty):
        texts.append(f"{field}: no numbers in {_features(empty, names)}")
    constant = np.flatnonzero((statistics.low == statistics.high) & (statistics.counts > 1))
    if len(constant) == len(statistics.counts):
        return [*texts, f"{field}: all records are equal"] if statistics.by_feature else texts
    if is_picture or not statistics.by_feature:
        return texts
    if len(constant):
        texts.append(f"{field}: constant: {_features(constant, names)}")
    deviations = np.sqrt(statistics.variance)
    varied = np.flatnonzero((deviations > 0) & (statistics.low < statistics.high))
    if len(varied) and deviations[varied].max() > MAX_RATIO * deviations[varied].min():
        least, most = (varied[pick(deviations[varied])] for pick in (np.argmin, np.argmax))
        texts.append(
            f"{field}: very different scales: standard deviation {deviations[least]:.3g} of {_name(least, names)}, "
            f"{deviations[most]:.3g} of {_name(most, names)}. Scale features: standardise: true in store_conf"
        )
    return texts


def _features(indices: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]], names: Mapping[int, str]) -> str:
    return listed([_name(int(index), names) for index in indices], MAX_NAMED)


def _name(index: int, names: Mapping[int, str]) -> str:
    return names.get(int(index), f"value {index}")


class Ids:
    """Finds features that are another whole number in nearly each record, as ids are; of many records, in the first.

    Parameters
    ----------
    names : mapping of int to str
        Names of features, by index, where they have some.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names, self._blocks, self._n = names, list[npt.NDArray[Any]](), 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Look at the values of some records, (n, *shape)."""
        if values.ndim == 2 and self._n < MAX_COMPARED:
            self._blocks.append(values[: MAX_COMPARED - self._n])
            self._n += len(self._blocks[-1])

    def names(self) -> str:
        """Return the names of such features; empty if there are none."""
        if self._n < MIN_NUMBERED:
            return ""
        columns = np.concatenate(self._blocks).T
        like_ids = [
            i
            for i, values in enumerate(columns)
            if (values == values.round()).all() and len(np.unique(values)) >= NUMBERED * len(values)
        ]
        return _features(like_ids, self._names) if like_ids else ""


class Repeats:
    """Counts records that are equal to an earlier one. Of many records, the first ones are compared."""

    def __init__(self) -> None:
        self._labels: dict[bytes, int] = {}
        self._n = self._n_equal = self._n_relabelled = 0

    def add(self, arrays: Arrays) -> None:
        """Compare the records of a block with all earlier ones."""
        values = next((array for name, array in arrays.items() if name != "label"), None)
        if values is None:
            return
        values = np.ascontiguousarray(values[: MAX_COMPARED - self._n])
        labels = arrays.get("label")
        known = [0] * len(values) if labels is None or labels.ndim != 1 else labels.tolist()
        for row, label in zip(values, known, strict=False):
            first = self._labels.setdefault(row.tobytes(), label)
            self._n_relabelled += first != label
        self._n += len(values)
        self._n_equal = self._n - len(self._labels)

    def findings(self) -> list[str]:
        """Return what was found."""
        if not self._n_equal:
            return []
        others = f", {self._n_relabelled} of them with another label" if self._n_relabelled else ""
        return [f"{self._n_equal} of {self._n} records compared are equal to an earlier one{others}"]


# a sample has about so many bytes of decoded records
SAMPLE_BYTES = 1 << 26
MAX_BAD_BLOCKS = 3
# of the text
WIDTH = 80
KEY = 13
MAX_CLASSES = 50
MAX_NAME = 24
MAX_BAR = 40
MAX_CATEGORIES = 6
MAX_COLUMNS = 100
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"


def inspect_store(
    store: Store, shape: Sequence[int] = (), whole: bool = False, pictures: Pictures | None = None
) -> dict[str, Any]:
    """Return what is known of a store, as values of JSON.

    Parameters
    ----------
    store : Store
    shape : sequence of int
        Shape of a record, where the store has its values in a row.
    whole : bool
        Look at all records, not at a sample.
    pictures : Pictures, optional
        Gets each block that is looked at.

    Returns
    -------
    dict
        ``url``, ``format``, ``files``, ``record`` (the fields), ``records``, ``classes`` (their names, if there are
        some), ``blocks``, ``block_rows``, ``bytes``, ``fingerprint``, ``manifest``; ``records_seen``: how many were
        looked at; ``fields`` with their ranges; ``labels_seen``: of how many records labels were counted;
        ``class_counts``; ``columns`` with mean and deviation; ``texts``: words of those of columns; ``layout``: of
        pictures; ``trouble``: what is likely to make some.

    Raises
    ------
    DataError
        No block can be read.
    """
    sample = _Sample(store)
    sample.read(_chosen(store, whole), pictures)
    sizes = [block.n for block in store.blocks]
    has_texts = any(column.kind == "text" for column in store.table_columns)
    layout = None if has_texts else guess_layout(store.schema, shape)
    return {
        "url": store.url,
        "format": STORES.names_of(type(store))[0],
        "files": _n_files(store),
        "record": show_schema(store.schema),
        **({"label": store.label_name} if store.label_name else {}),
        "records": store.count,
        **({"classes": listed(store.class_names)} if store.class_names else {}),
        "blocks": len(sizes),
        "block_rows": f"{min(sizes)} to {max(sizes)}",
        "bytes": sum(block.length for block in store.blocks),
        "fingerprint": store.fingerprint,
        "manifest": _manifest(store),
        "records_seen": sample.n,
        "fields": [sample.field(name) for name in store.schema],
        "labels_seen": max((sum(counts.values()) for counts in sample.labels), default=0),
        "class_counts": sample.classes(),
        "columns": list(map(sample.column, store.table_columns)),
        "texts": _texts(store, _chosen(store, whole)),
        "layout": layout and asdict(layout),
        "trouble": [*sample.findings(layout), *_unread_numbers(store, _chosen(store, whole))],
    }


def _chosen(store: Store, whole: bool) -> list[int]:
    """Return the blocks to look at: all, or evenly spaced ones."""
    n_blocks = len(store.blocks)
    total = store.count * store.record_bytes
    if whole or total <= SAMPLE_BYTES:
        return list(range(n_blocks))
    n = max(1, n_blocks * SAMPLE_BYTES // total)
    return sorted(set(np.linspace(0, n_blocks - 1, n).astype(int).tolist()))


def _texts(store: Store, blocks: Sequence[int]) -> dict[str, dict[str, int]]:
    """Return by column of texts, read or not, what is known of their words."""
    if not isinstance(store, TableStore):
        return {}
    strings = [each for each in store.table_columns if each.kind in ("string", "text") and not each.categories]
    names = [each.name for each in strings if each.field in ("", "data") and each.name]
    # blocks that cannot be read are likely trouble, and said to be
    with contextlib.suppress(DataError):
        found = TextMeasure.of_columns(store.read_texts(block, names) for block in blocks if names)
        return {name: asdict(measure) for name, measure in found.items() if measure.median >= MIN_WORDS}
    return {}


def _unread_numbers(store: Store, blocks: Sequence[int]) -> list[str]:
    """Return which columns that are not read have numbers that are written as text."""
    names = [each.name for each in store.table_columns if each.kind == "string" and not each.field and each.name]
    if not names or not isinstance(store, TableStore):
        return []
    # blocks that cannot be read are said to be
    with contextlib.suppress(DataError):
        found = [store.read_texts(block, names) for block in blocks]
        return [said for name in names if (said := say_forms(name, pa.concat_arrays([each[name] for each in found])))]
    return []


def _n_files(store: Store) -> int:
    own_files = len(store.record_files(0, store.count))
    return own_files or len({block.file for block in store.blocks})


def _manifest(store: Store) -> str:
    n_sums = sum(block.crc is not None for block in store.blocks)
    try:
        check_manifests(store)
    except DataError:
        return "does not fit the data; see data verify"
    return f"checksums of {plural(n_sums, 'block')}" if n_sums else "none"


class _Sample:
    """Statistics of the blocks of a store that were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.n = 0
        label = store.schema.get("label")
        self._has_classes = label is not None and len(label.shape) < 2 and label.dtype.kind in "iu"
        # of several labels, the name of each
        self._columns = label_columns(store) if has_several_labels(store) else [""]
        self._has_classes &= label is not None and len(self._columns) == math.prod(label.shape)
        self.labels: list[Counter[int]] = [Counter() for _ in self._columns]
        counted_fields = [name for name in store.schema if not (name == "label" and self._has_classes)]
        self._statistics = {
            name: FieldStatistics(store.schema[name])
            for name in counted_fields
            if name != "line" and store.schema[name].dtype.kind in "biuf"
        }
        self.repeats = Repeats()
        self._ids = Ids({column.index: column.name for column in store.table_columns if column.field == "data"})
        self._bad: list[str] = []

    def read(self, blocks: Sequence[int], pictures: Pictures | None) -> None:
        """Read blocks."""
        store = self._store
        with counted("read", sum(store.blocks[block].n for block in blocks)) as shown:
            for block in blocks:
                try:
                    arrays = store.read_block(block)
                except DataError as error:
                    self._bad.append(str(error).rstrip("."))
                    if len(self._bad) == len(blocks):
                        raise
                    continue
                self._add(arrays)
                if pictures is not None:
                    pictures.add(arrays)
                shown.advance(store.blocks[block].n)
        if self._has_classes and store.labels_apart:
            self.labels = [Counter() for _ in self._columns]
            for block in range(len(store.blocks)):
                self._count(store.read_labels(block))
        store.check_unchanged()

    def _add(self, arrays: Arrays) -> None:
        for name, statistics in self._statistics.items():
            statistics.add(arrays[name])
        if self._has_classes:
            self._count(arrays["label"])
        self.repeats.add(arrays)
        if "data" in arrays:
            self._ids.add(arrays["data"])
        self.n += len(next(iter(arrays.values())))

    def _count(self, labels: npt.NDArray[Any]) -> None:
        for counter, column in zip(self.labels, labels.reshape(len(labels), -1).T, strict=True):
            values, counts = np.unique(column, return_counts=True)
            counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def field(self, name: str) -> dict[str, Any]:
        """Return the facts of a field; the statistics are None if its values are no numbers to a reader, e.g. text."""
        field = self._store.schema[name]
        facts: dict[str, Any] = {"name": name, "dtype": str(field.dtype), "shape": field.shape}
        facts |= dict.fromkeys(("min", "max", "mean", "nan"))
        if name in self._statistics:
            return {**facts, **self._statistics[name].summary()}
        if any(self.labels) and name == "label":
            return {**facts, "min": min(map(min, self.labels)), "max": max(map(max, self.labels))}
        return facts

    def column(self, column: TableColumn) -> dict[str, Any]:
        """Return a column, with mean and standard deviation if it has a value of its own, and they are known."""
        known = self._statistics.get(column.field)
        has_several = bool(column.categories) or column.kind in ("vector", "text")
        if known is None or not known.by_feature or has_several or not known.counts[column.index]:
            return asdict(column)
        mean, variance = known.mean[column.index], known.variance[column.index]
        return {**asdict(column), "mean": float(mean), "std": float(np.sqrt(variance))}

    def classes(self) -> list[dict[str, Any]]:
        """Return the number of records of each class that was seen, or has a name."""
        classes = []
        for column, counts in zip(self._columns, self.labels, strict=True):
            names = find_label(self._store, column)[1]
            for label in sorted({*counts, *range(len(names))}) if counts else ():
                name = names[label] if 0 <= label < len(names) else ""
                classes.append({"label": label, "name": name, "count": counts[label], "column": column})
        return classes

    def findings(self, layout: PictureLayout | None) -> list[str]:
        """Return what is likely to make trouble."""
        store = self._store
        trouble = [f"cannot be read: {text}" for text in self._bad[:MAX_BAD_BLOCKS]]
        if self._bad[MAX_BAD_BLOCKS:]:
            trouble.append(f"{len(self._bad) - MAX_BAD_BLOCKS} more blocks cannot be read")
        for column, counts in zip(self._columns, self.labels, strict=True):
            texts = label_findings(counts, find_label(store, column)[1], store.count) if counts else []
            trouble += [f"label {column!r}: {text}" if column else text for text in texts]
        for name, statistics in self._statistics.items():
            names = {column.index: column.name for column in store.table_columns if column.field == name}
            trouble += value_findings(name, statistics, names, layout is not None and layout.field == name)
        if like_ids := self._ids.names():
            trouble.append(
                f"data: another whole number in each record, like ids: {like_ids}. Leave them out of features"
            )
        return trouble + self.repeats.findings()


# -- as text ---------------------------------------------------------------------------------------------


def inspection_lines(facts: Mapping[str, Any], width: int | None) -> list[str]:
    """Return what `inspect_store` returns as lines of text.

    ``width`` None: of a terminal of unknown width, nothing is left out or wrapped.
    """
    files = f" in {facts['files']} files" if facts["files"] > 1 else ""
    seen = "all records"
    if facts["records_seen"] < facts["records"]:
        seen = f"{facts['records_seen']} of {facts['records']} records, in blocks evenly spaced; --all for all"
    texts = {
        "url": facts["url"],
        "format": facts["format"],
        "records": f"{facts['records']}{files}",
        "blocks": f"{facts['blocks']} of {facts['block_rows']} records" if facts["blocks"] > 1 else "1",
        "bytes": f"{facts['bytes']} ({_short(facts['bytes'])})",
        "version": facts["fingerprint"],
        "manifest": facts["manifest"],
        **({"label from": facts["label"]} if facts.get("label") else {}),
        **({"layout": facts["layout"]["text"]} if facts["layout"] else {}),
        "looked at": seen,
    }
    lines = [line for name, value in texts.items() for line in _wrapped(f"{name:{KEY}}", value, width)]
    lines += ["", *_field_lines(facts["fields"], width)]
    if facts["columns"]:
        lines += ["", *_column_lines(facts["columns"], width)]
    for name, known in facts["texts"].items():
        suits = f"texts: {{{name}: {{length: {known['length']}, vocab_size: {known['vocab_size']}, lowercase: true}}}}"
        lines += ["", *_wrapped(f"text {name}: ", f"{TextMeasure(**known)}. {suits}", width)]
    for column in dict.fromkeys(each["column"] for each in facts["class_counts"]):
        classes = [each for each in facts["class_counts"] if each["column"] == column]
        lines += ["", *_class_lines(classes, facts["labels_seen"], facts["records"], width)]
    if facts["trouble"]:
        lines += ["", "likely trouble"]
        lines += [line for text in facts["trouble"] for line in _wrapped("- ", text, width)]
    return lines


def _wrapped(start: str, text: str, width: int | None) -> list[str]:
    if width is None:
        return [start + text]
    indent = " " * len(start)
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)


def _field_lines(fields: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    columns = [
        TextColumn("field", [field["name"] for field in fields]),
        TextColumn("type", [field["dtype"] for field in fields]),
        TextColumn("shape", [by_shape(field["shape"]) for field in fields]),
    ]
    for name, rank in (("min", 0), ("max", 0), ("mean", 1), ("nan", 2)):
        columns.append(TextColumn(name, [_number(field[name]) for field in fields], rank, right=True))
    return table(columns, width)


def _column_lines(columns: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    shown = columns[:MAX_COLUMNS]
    cells = [
        TextColumn("column", [each["name"] for each in shown]),
        TextColumn("kind", [each["kind"] for each in shown], 1),
        TextColumn("read as", [f"{each['field']} {each['index']}" if each["field"] else "" for each in shown]),
        TextColumn("mean", [_number(each.get("mean")) for each in shown], 1, True),
        TextColumn("std", [_number(each.get("std")) for each in shown], 1, True),
        TextColumn("missing", [each["missing"] for each in shown], 2),
        TextColumn("categories", [listed(each["categories"], MAX_CATEGORIES) for each in shown], 3),
    ]
    more = [f"and {len(columns) - MAX_COLUMNS} more columns"] if columns[MAX_COLUMNS:] else []
    return [*table(cells, width), *more]


def _class_lines(classes: Sequence[Mapping[str, Any]], n_labels: int, n_records: int, width: int | None) -> list[str]:
    """Return a line with a bar for each class."""
    of = f" of {n_labels} records looked at" if n_labels < n_records else ""
    shown = classes[:MAX_CLASSES]
    names, counts = [each["name"] for each in shown], [each["count"] for each in shown]
    columns = [
        TextColumn("class", [str(each["label"]) for each in shown], right=True),
        TextColumn("name", [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…" for name in names]),
        TextColumn("records", list(map(str, counts)), right=True),
        TextColumn("share", [f"{count / n_labels:.1%}" for count in counts], right=True),
    ]
    lines = table(columns, None)
    pad = max(map(len, lines)) + 2
    room = max(min(MAX_BAR, (width or WIDTH) - pad), 1)
    bars = ["", *(_bar(count / (max(counts) or 1) * room) for count in counts)]
    lines = [f"{line:{pad}}{bar}".rstrip() for line, bar in zip(lines, bars, strict=True)]
    more = [f"and {len(classes) - MAX_CLASSES} more classes"] if len(classes) > MAX_CLASSES else []
    column = classes[0]["column"]
    return [f"{plural(len(classes), 'class', 'classes')}{f' of {column}' if column else ''}{of}", *lines, *more]


def _bar(length: float) -> str:
    whole, part = divmod(round(length * 8), 8)
    return (FULL * whole + PARTS[part]).rstrip() if whole or part else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _short(n: int) -> str:
    size, unit = float(n), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
