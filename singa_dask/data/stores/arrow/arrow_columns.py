"""Convert Arrow columns of fixed-size binary to arrays. Metadata of the schema has dtype and shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record_schema import describe_fields
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError, Remedy
from singa_dask.shown import plural

METADATA = b"singa_dask"


def schema_for(
    fields: Mapping[str, Field],
    class_names: Sequence[str] = (),
    table_facts: Mapping[str, Any] | None = None,
    class_type: str = "",
) -> pa.Schema:
    """Return the schema of records to write, with the metadata that describes them.

    Parameters
    ----------
    fields : mapping of str to Field
    class_names : sequence of str
    table_facts : mapping, optional
        `TableFacts.to_dict` of the original table.
    class_type : str
        See `Store`.
    """
    columns = [
        pa.field(name, pa.binary(field.size_bytes) if field.shape else pa.int32(), nullable=False)
        for name, field in fields.items()
    ]
    metadata: dict[str, Any] = {"version": 1, "fields": describe_fields(fields)}
    if class_names:
        metadata["class_names"] = list(class_names)
    if class_type:
        metadata["class_type"] = class_type
    if table_facts:
        metadata["table"] = dict(table_facts)
    return pa.schema(columns, {METADATA: json.dumps(metadata, sort_keys=True)})


def record_batch(rows: Arrays, schema: pa.Schema) -> pa.RecordBatch:
    """Return arrays of records as a batch with this schema."""
    columns = []
    for field in schema:
        array = rows[field.name]
        buffer = pa.py_buffer(np.ascontiguousarray(array, np.int32 if array.ndim == 1 else None))
        columns.append(pa.Array.from_buffers(field.type, len(array), [None, buffer]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """Return the metadata of a converted file; empty for other files."""
    return json.loads((schema.metadata or {}).get(METADATA, b"{}"))  # type: ignore[no-any-return]


def describe(store: Store, schema: pa.Schema) -> dict[str, Any]:
    """Set the attributes of a store from the metadata of a conversion in the schema; return the metadata."""
    described = metadata_of(schema)
    store.is_converted = bool(described)
    store.class_names, store.class_type = parse_names(described.get("class_names")), described.get("class_type", "")
    store.set_table_facts(described.get("table"))
    return described


def check_described(url: str, schema: pa.Schema, fields: Mapping[str, Field]) -> None:
    """Raise a `DataError` if the width of a column differs from its metadata."""
    for name, field in fields.items():
        kind = schema.field(name).type
        if field.shape and getattr(kind, "byte_width", 0) != field.size_bytes:
            raise DataError(f"{url}: column {name} of {kind} is described as {field.shape} {field.dtype}.")


def column_array(column: pa.Array, field: Field, where: str, first: int = 0) -> npt.NDArray[Any]:
    """Return a column of integers or binary as an array.

    ``first`` is the index of the first record, for errors.
    """
    if column.null_count:
        raise DataError(f"{where}: {plural(column.null_count, 'record is', 'records are')} null.")
    if not field.shape:
        # do not use column.to_numpy(), because it imports pandas if pandas is installed
        return as_labels(np.from_dlpack(column), where, first)
    values = np.frombuffer(
        column.buffers()[1],
        field.dtype,
        count=len(column) * (field.size_bytes // field.dtype.itemsize),
        offset=column.offset * field.size_bytes,
    )
    return values.reshape(len(column), *field.shape)


def check_label_type(url: str, column: pa.Field) -> None:
    """Raise a `DataError` if a column cannot be the label because its type is not numeric."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(
            f"{url}: the label {column.name!r} is of type {column.type}, expected integers: write the index of the "
            f"class, as pandas.factorize returns it. Or name another column: user_conf: {{label: ...}}.",
            remedy=Remedy("label"),
        )
