"""Records in Parquet: fixed-size binary, lists of numbers of one length, or encoded images.

A row group is a block. Converters write fixed-size binary. Lists of numbers are about 15 times slower to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.blocks import BLOCK_BYTES
from singa_dask.data.codecs.class_lists import hugging_face_names
from singa_dask.data.codecs.record_schema import fields_of
from singa_dask.data.codecs.record_values import as_values
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.stores.arrow.arrow_columns import (
    check_described,
    check_label_type,
    column_array,
    describe,
    record_batch,
    schema_for,
)
from singa_dask.data.stores.images.image_decoding import ImageOptions, decode_image
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, LabelOptions
from singa_dask.data.tables.files.columnar import PARQUET_MAGIC, is_columnar, open_columns
from singa_dask.data.tables.files.row_groups import RowGroups
from singa_dask.data.tables.list_columns import flat_lists, holds_numbers, is_list
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import DataError, Remedy
from singa_dask.fs.decompression import check_decompressed, limit_of
from singa_dask.fs.sources import Range
from singa_dask.lazy import LazyModule
from singa_dask.wording import listed

pq = LazyModule("pyarrow.parquet")
VALUE_NAMES = ("image", "images", "img", "pixel", "data", "x")


class ParquetOptions(LabelOptions, ImageOptions):
    """Options of Parquet files of arrays or images."""

    features: str = ""
    """Column of arrays, or of images. By default the only one, or the only one called image, images, img, pixel, data
    or x."""


@STORES.register("parquet")
class ParquetStore(RangeStore):
    """Records of a Parquet file.

    A column of fixed-size binary has arrays. The metadata of converted files describes them; without metadata they are
    flat arrays of uint8. A column of lists of uint8 becomes ``pixel``, a column of lists of other numbers ``data``. If
    there are no arrays, a column of images as Hugging Face writes them is decoded.

    Feather, other Arrow files and streams, and ORC are read as Parquet in memory.
    """

    options_class = ParquetOptions
    write_options = ("block_bytes", "compression", "class_names", "table_facts")
    magic = PARQUET_MAGIC
    title = "a Parquet file"
    table_format = "parquet"
    decodes_ahead = True
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    damage = (pa.ArrowException, KeyError, OSError, TypeError, ValueError)

    @classmethod
    def matches(cls, url: str, head: bytes) -> bool:
        return super().matches(url, head) or bool(cls.magic and is_columnar(url, head))

    def index(self) -> None:
        self._images, self._axes = "", dict[str, tuple[int, ...]]()
        self.sources.append(open_columns(self.url, self.storage_options))
        # check for an empty file, because pyarrow's error is less clear
        if not self.sources[0].size:
            raise DataError(f"{self.url}: not a Parquet file: it is empty.")
        self._groups = RowGroups(self.sources[0])
        schema, metadata = self._groups.schema, self._groups.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self.blocks = tuple(
            Block(i, group.num_rows, self.url, *self._groups.extent(i)) for i, group in enumerate(groups)
        )
        if not self.count:
            return
        described = describe(self, schema)
        self.schema = self._fields(schema, described.get("fields", {}))
        if "label" in self._columns and not self.class_names:
            self.class_names = hugging_face_names(schema.metadata, self._columns["label"])
        self._ranges = [self._groups.ranges(i, list(self._columns.values())) for i in range(len(groups))]
        self._check_sizes([group.total_byte_size for group in groups])

    def _check_sizes(self, group_bytes: Sequence[int]) -> None:
        """Raise a `DataError` if a row group would decompress or decode to more than the limit."""
        for block, n_bytes in zip(self.blocks, group_bytes, strict=True):
            where = f"{self.url}, block {block.id}"
            check_decompressed(where, max(n_bytes, block.n * self.record_bytes), limit_of(self.storage_options))

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        return self._ranges[block_id]

    def fetch_bytes(self, block_id: int) -> int:
        return sum(each.length for each in self._ranges[block_id])

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        where = f"{self.url}, block {block_id}"
        table = self._table(block_id, data)
        images = self._decoded(table, block_id) if self._images else {}
        first = int(self.starts[block_id])
        return images | {
            name: self._values(_joined(table.column(self._columns[name])), name, where, first)
            for name in self.schema
            if name not in images
        }

    def _values(self, column: pa.Array, name: str, where: str, first: int) -> npt.NDArray[Any]:
        """Return the values of a field."""
        return _array(column, self.schema[name], f"{where}, {self._columns[name]}", first, self._axes.get(name, ()))

    def _table(self, block_id: int, data: Sequence[memoryview]) -> pa.Table:
        is_checked = self.blocks[block_id].crc is not None
        return self._groups.read(block_id, list(self._columns.values()), self._ranges[block_id], data, is_checked)

    # -- encoded images --------------------------------------------------------------------------------

    def _decoded(self, table: pa.Table, block_id: int) -> Arrays:
        """Decode the images of a block."""
        first, (shape, where) = int(self.starts[block_id]), (self.schema["pixel"].shape, self.url)
        images = self._decode_images(table, first)
        for i, image in enumerate(images, first):
            if image.shape != shape:
                remedy = Remedy("resize", "Set resize: [height, width] with backend: image-parquet.")
                said = f"the image has shape {image.shape}, but the first has {shape}. {remedy.text}"
                raise DataError(f"{where}, record {i}: {said}", remedy=remedy)
        return {"pixel": np.stack(images)}

    def _decode_images(self, table: pa.Table, first: int) -> list[npt.NDArray[np.uint8]]:
        """Decode a column of images, whose first record is record ``first`` of the file."""
        images = []
        for i, data in enumerate(_joined(table.column(self._images)).field("bytes"), first):
            where = f"{self.url}, record {i}"
            if not data.is_valid:
                raise DataError(
                    f"{where}: the record has at most the path of an image, not its bytes. Store the images "
                    f"themselves, as "
                    "Dataset.push_to_hub and datasets.table.embed_table_storage do."
                )
            images.append(decode_image(data.as_buffer(), where, self.options["resize"], self.options["channels"]))
        return images

    def _image_field(self) -> Field:
        """Return the field of a column of images, after decoding the first one."""
        batch = next(self._groups.reader().batches([self._images], 1))
        (first,) = self._decode_images(pa.Table.from_batches([batch]), 0)
        return Field(first.dtype, first.shape)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        if not self._images:
            return super().salvage(block_id)
        first, table = int(self.starts[block_id]), self._table(block_id, self.fetch(block_id))

        def read_row(row: int) -> Arrays:
            record: Arrays = {"pixel": self._decode_images(table.slice(row, 1), first + row)[0]}
            if "label" in self.schema:
                column = _joined(table.column(self._columns["label"]).slice(row, 1))
                record["label"] = self._values(column, "label", self.url, first + row)[0]
            return record

        return salvage_rows(self.blocks[block_id].n, self.schema, read_row)

    def _fields(self, schema: pa.Schema, described: Mapping[str, Any]) -> dict[str, Field]:
        """Return the fields, described by a converter or detected, and set the column of each field."""
        if described:
            self._columns = {name: name for name in described}
            fields = fields_of(described)
            check_described(self.url, schema, fields)
            return fields
        arrays = [column.name for column in schema if holds_numbers(_stored(column.type))]
        images = [column.name for column in schema if _is_image(column.type)]
        if self.options["features"] in images or not arrays:
            self._images = value = self._choose_values(images, "images")
        else:
            value = self._choose_values(arrays, "arrays")
        if not value:
            names = ", ".join(schema.names)
            message = f"{self.url}: there is no column of fixed-size binary or lists of numbers. Columns: {names}."
            raise DataError(message, remedy=Remedy("backend"))
        field, axes = (self._image_field(), ()) if self._images else self._field(schema.field(value))
        kept = "pixel" if field.dtype == np.uint8 else "data"
        self._columns, fields, self._axes = {kept: value}, {kept: field}, {kept: axes}
        self.other_fields = tuple(name for name in schema.names if name not in (*arrays, value))
        label = self.choose_label([name for name in schema.names if name != value])
        if label:
            check_label_type(self.url, schema.field(label))
            self._columns["label"], fields["label"] = label, Field(np.dtype(np.int32))
        return fields

    def _choose_values(self, columns: Sequence[str], what: str) -> str:
        """Return the column of arrays or images to read; empty if there is none."""
        wanted = self.options["features"]
        chosen = [name for name in columns if name == wanted or (not wanted and name in VALUE_NAMES)]
        chosen = chosen or ([] if wanted else list(columns))
        if len(chosen) == 1 or (not columns and not wanted):
            return "".join(chosen)
        fault = f"no {what} in {wanted!r}" if wanted else f"{' and '.join(chosen)} are {what}"
        message = f"{self.url}: {fault}. Name one in user_conf: {{features: ...}}. Columns: {listed(list(columns))}."
        raise DataError(message, remedy=Remedy("features"))

    def _field(self, column: pa.Field) -> tuple[Field, tuple[int, ...]]:
        """Return the field of a column of arrays without metadata, and the order of its axes in the file.

        The shape is taken from the Arrow type or, if the type has no shape, from the first record.
        """
        kind = _stored(column.type)
        if pa.types.is_fixed_size_binary(kind):
            return Field(np.dtype(np.uint8), (kind.byte_width,)), ()
        sizes, leaf = list[int](), kind
        while is_list(leaf):
            sizes.append(leaf.list_size if pa.types.is_fixed_size_list(leaf) else 0)
            leaf = leaf.value_type
        self.rounds_data = leaf not in (pa.uint8(), pa.float32())
        dtype = np.dtype(np.uint8 if leaf == pa.uint8() else np.float32)
        if isinstance(column.type, pa.FixedShapeTensorType):
            stored = column.type.shape
            axes = tuple(column.type.permutation or range(len(stored)))
            shapes = [tuple(stored[i] for i in order) for order in (axes, np.argsort(axes))]
            # refuse permuted axes, because pyarrow writes the inverse of the permutation that the specification defines
            if any(axes[axis] != i for i, axis in enumerate(axes)):
                raise DataError(
                    f"{self.url}: column {column.name!r} has permuted axes, {list(axes)}. Its records have shape "
                    f"{shapes[0]} by the specification of Arrow, but {shapes[1]} as pyarrow writes them. Write the "
                    f"axes in order."
                )
            return Field(dtype, shapes[0]), axes
        if 0 in sizes:
            first = _joined(pa.Table.from_batches([next(self._groups.reader().batches([column.name], 1))]).column(0))
            inner = first[0].as_py()
            for i in range(len(sizes)):
                if not inner:
                    raise DataError(
                        f"{self.url}, {column.name}, record 0: the record has no values, so its shape is unknown."
                    )
                sizes[i], inner = len(inner), inner[0]
        return Field(dtype, tuple(sizes)), ()

    @classmethod
    def write_rows(
        cls,
        file: BinaryIO,
        rows: Rechunker,
        block_bytes: int = BLOCK_BYTES,
        compression: str | None = None,
        **described: Any,
    ) -> None:
        """Write records in row groups of ``block_bytes``, with page checksums.

        See `schema_for` for the other options.

        Parameters
        ----------
        compression : {None, "zstd", "snappy", "lz4"}
            Compressed files are smaller, but slower to read.
        """
        schema, n = schema_for(rows.schema, **described), max(1, block_bytes // max(rows.record_bytes, 1))
        pages = {"use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
        with pq.ParquetWriter(file, schema, compression=compression or "none", **pages) as writer:
            for group in rows.chunks(n):
                writer.write_batch(record_batch(group, schema), row_group_size=n)


@STORES.register("image-parquet")
class ImageParquetStore(ParquetStore):
    """Encoded images in a Parquet file, as Hugging Face's datasets write them: structs of bytes and path."""

    holds = "images"
    table_format = ""
    # files are detected by `ParquetStore` alone
    suffixes = ()
    magic = b""

    def index(self) -> None:
        super().index()
        if self.count and not self._images:
            raise DataError(
                f"{self.url}: there is no column of encoded images (structs of bytes and path). Leave backend out."
            )


def _is_image(kind: pa.DataType) -> bool:
    """Return whether values are structs with a field ``bytes``."""
    is_struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return is_struct and kind.field("bytes").type in (pa.binary(), pa.large_binary())


def _stored(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _joined(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _array(column: pa.Array, field: Field, where: str, first: int, axes: tuple[int, ...] = ()) -> npt.NDArray[Any]:
    """Return a column as an array.

    ``first`` is the index of the column's first record. ``axes`` is the order of the axes in the file.
    """
    if not field.shape or pa.types.is_fixed_size_binary(column.type):
        return column_array(column, field, where, first)
    # a tensor is stored as one flat list
    is_tensor = not is_list(column.type.value_type)
    flat = flat_lists(column, [field.size_bytes // field.dtype.itemsize] if is_tensor else field.shape, where, first)
    numbers = flat.cast(pa.uint8()) if pa.types.is_boolean(flat.type) else flat
    shape = [field.shape[axis] for axis in axes] or field.shape
    values = np.from_dlpack(numbers).reshape(len(column), *shape)
    if axes:
        values = np.ascontiguousarray(values.transpose(0, *(axis + 1 for axis in axes)))
    # values that exceed float32 raise an error
    return as_values(values, where, first, np.promote_types(field.dtype, np.float32)).astype(field.dtype, copy=False)
