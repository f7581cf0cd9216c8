"""ArrayStore: a store of named arrays that are divided into chunks; the base of HDF5 and Zarr.

Labels are read when the store is opened. Other values are read in blocks of whole chunks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.blocks import even_blocks
from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.codecs.equal_names import NameNumbers, distinct_names
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record_values import as_values, is_rounded, value_name
from singa_dask.data.stores.arrays.npy import check_array
from singa_dask.data.stores.arrays.stored_array import StoredArray
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import StoreOptions, advice_for
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.sources import Range
from singa_dask.wording import listed

VALUE_NAMES = ("images", "image", "pixel", "pixels", "data", "x", "features")
CLASS_NAMES = ("class_names", "classes", "names")
# attributes of arrays that store scaled or shifted values
PACKED = ("scale_factor", "add_offset")
# maximum number of blocks; more mean that the shape is damaged
MAX_BLOCKS = 10_000_000
MAX_CLASSES = 10_000


class ArrayOptions(StoreOptions):
    """Options that name the arrays in a file."""

    features: str = ""
    """Name of the array of images or data, e.g. ``train/images``. By default the only one of images, image, pixel,
    pixels, data, x or features, in upper or lower case."""
    label: str = ""
    """Name of the array of labels. By default the only one beside it called label, labels, y, class, target or
    targets."""


class ArrayStore(RangeStore):
    """Base of stores whose arrays are divided into chunks. Subclasses list and open the arrays.

    An array of uint8 becomes ``pixel``. Other numbers become ``data``, rounded to float32. Labels are integers or text.
    If they are text, the class names are the sorted labels. Otherwise the class names are read from an attribute
    ``class_names``, ``classes`` or ``names`` of the labels or of the file, or from an array with one of these names.
    """

    options_class = ArrayOptions
    block_options = ("features", "label")
    reads_labels_alone = True

    @abstractmethod
    def list_arrays(self) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Open the file; return the names of the arrays, and the attributes of the file.

        The first file that this method opens must be the file whose length is in the manifest.
        """

    @abstractmethod
    def open_array(self, name: str) -> StoredArray:
        """Open an array."""

    def index(self) -> None:
        self._names, self._attributes = self.list_arrays()
        name = self._values_name()
        label = self._label_name(name)
        self._values = self._open(name, False)
        self._labels = self._read_labels(label) if label else None
        field = value_name(self._values.kind)
        kind = np.dtype(np.uint8 if field == "pixel" else np.float32)
        self.schema = {field: Field(kind, self._values.shape[1:])}
        self.rounds_data = is_rounded(self._values.kind)
        if self._labels is not None:
            self.schema["label"] = Field(np.dtype(np.int32))
            if len(self._labels) != self._values.shape[0]:
                lengths = {name: self._values.shape[0], label: len(self._labels)}
                raise DataError(f"{self.url}: the arrays have different lengths: {lengths}.")
        self.mapped = self.is_local and self._values.is_view and self._values.kind == kind
        self.blocks = self._cut()
        self._compare_labels()

    def _cut(self) -> tuple[Block, ...]:
        """Return the blocks. Their offsets and lengths refer to uncompressed values."""
        count, size, n = self._values.shape[0], self._values.row_bytes, self._values.rows_per_block()
        if count > n * MAX_BLOCKS:
            raise DataError(
                f"{self.url}: the array is damaged: its shape is {self._values.shape}, but a chunk has {n} records."
            )
        check_decompressed(f"{self.url}, block 0", min(n, count) * size, limit_of(self.storage_options))
        return even_blocks(self.url, count, n, size)

    def _compare_labels(self) -> None:
        """Compare the labels, which are outside all blocks, with the manifest."""
        if self.manifest_blocks() and self.manifest and self.manifest.opening.get("labels") != self._labels_crc():
            raise DataError(f"{self.url}: the labels differ from those in its manifest. {advice_for(self.url)}")

    def _labels_crc(self) -> int | None:
        return None if self._labels is None else checksum_of(memoryview(self._labels).cast("B"))

    def manifest_info(self) -> dict[str, Any]:
        return {**super().manifest_info(), "labels": self._labels_crc()}

    # -- arrays by name ----------------------------------------------------------------------------------

    def _values_name(self) -> str:
        """Return the name of the array of images or data."""
        wanted, names = str(self.options["features"]).strip("/"), self._names
        if names == [""] and not wanted:
            # the file is a single array without a name
            return ""
        matches = [name for name in names if name == wanted or (not wanted and name.lower() in VALUE_NAMES)]
        if len(matches) == 1:
            return matches[0]
        fault = f"there is no array called {repr(wanted) if wanted else ' or '.join(VALUE_NAMES)}"
        fault = f"{' and '.join(matches)} could each be the images or data" if matches else fault
        hint = "" if wanted else " Set the options features and label to names of arrays."
        raise DataError(f"{self.url}: {fault}. Arrays: {listed(names) or 'none'}.{hint}")

    def _label_name(self, values: str) -> str:
        """Return the name of the array of labels; empty if there is none.

        It is the option ``label``, or an array in the same group as the values.
        """
        wanted = str(self.options["label"]).strip("/")
        if wanted:
            if wanted in self._names:
                self.label_name = wanted
                return wanted
            raise DataError(f"{self.url}: there is no array called {wanted!r}. Arrays: {listed(self._names)}.")
        folder = f"{values.rpartition('/')[0]}/".lstrip("/")
        beside = [name[len(folder) :] for name in self._names if name.startswith(folder) and name != values]
        self.other_fields = tuple(name for name in beside if "/" not in name)
        label = self.choose_label(self.other_fields)
        return label and folder + label

    def _open(self, name: str, is_label: bool) -> StoredArray:
        array = self.open_array(name)
        packed = [each for each in PACKED if each in array.attributes]
        if packed:
            raise DataError(
                f"{self.url}: {name}: the values are packed with {packed[0]}, which is not supported. Store them "
                f"unpacked."
            )
        check_array(self.url, name or "the array", array.kind, array.shape, is_label)
        if 0 in array.shape:
            raise DataError(f"{self.url}: {name}: the array is empty: its shape is {array.shape}.")
        return array

    # -- labels ------------------------------------------------------------------------------------------

    def _read_labels(self, name: str) -> npt.NDArray[np.int32]:
        texts = self.open_array(name).texts()
        if texts is not None:
            names, labels = np.unique(texts.reshape(-1), return_inverse=True)
            if len(names) > MAX_CLASSES:
                raise DataError(
                    f"{self.url}: {name}: there are {len(names)} different labels, too many for names of classes."
                )
            self.class_names = tuple(sorted(distinct_names(map(str, names))))
            numbers = NameNumbers(self.class_names)
            return np.array([numbers[str(name)] for name in names], np.int32)[labels]
        array = self._open(name, True)
        self._find_class_names(name, array)
        where = f"{self.url}, {name}"
        check_decompressed(where, array.shape[0] * array.row_bytes, limit_of(self.storage_options))
        parts, first = [], 0
        for piece in array.pieces():
            parts.append(as_labels(piece.reshape(len(piece)), where, first))
            first += len(piece)
        return np.ascontiguousarray(np.concatenate(parts))

    def _find_class_names(self, label: str, array: StoredArray) -> None:
        candidates = [each.get(name) for each in (array.attributes, self._attributes) for name in CLASS_NAMES]
        folder, slash, _ = label.rpartition("/")
        beside = f"{folder}{slash}{CLASS_NAMES[0]}"
        candidates += [self.open_array(beside).texts()] if beside in self._names else []
        self.class_names = next(filter(None, map(_as_names, candidates)), ())

    # -- reading -----------------------------------------------------------------------------------------

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        return self._values.ranges(int(self.starts[block_id]), self.blocks[block_id].n)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        values = self._values.decode(first, n, data)
        name, field = next(iter(self.schema.items()))
        arrays = {name: as_values(values, self.url, first, field.dtype)}
        return arrays if self._labels is None else {**arrays, "label": self._labels[first : first + n]}

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        if self._labels is None:
            return super().read_labels(block_id)
        return self._labels[int(self.starts[block_id]) : int(self.starts[block_id + 1])]


def _as_names(value: Any) -> tuple[str, ...]:
    """Return class names from an attribute or array of text; empty if the value has none."""
    plain = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
    if isinstance(plain, (list, tuple)):
        plain = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in plain]
    return parse_names(plain)
