"""Convert RecordProto, WordRecord and Datum messages of SINGA and Caffe to arrays, and back.

Messages of the same layout, such as records of one shape, are decoded together. Other messages are grouped by length.
If layouts in a group still differ, its messages are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs import protobuf
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.data.codecs.protobuf import BYTES, FIXED32, VARINT, MessageField
from singa_dask.data.codecs.record_schema import schema_of, show_schema
from singa_dask.data.codecs.salvage import salvage_rows
from singa_dask.data.types import Arrays, Field

# fields of SINGA's WordRecord: word, word_index, class_index, class_start, class_end
WORD_FIELDS = [(1, BYTES), (2, VARINT), (3, VARINT), (4, VARINT), (5, VARINT)]

Rows = npt.NDArray[np.uint8]
Decoder = Callable[[Rows], "Arrays | None"]


def encode_record(
    shape: Sequence[int],
    label: int | None = None,
    pixel: bytes | None = None,
    data: npt.NDArray[np.float32] | None = None,
) -> bytes:
    """Encode one SINGA RecordProto (SingleLabelImageRecord), with the same bytes as SINGA.

    Parameters
    ----------
    shape : sequence of int
    label : int, optional
    pixel : bytes, optional
    data : ndarray of float32, optional
        Written as a packed field.
    """
    parts = [protobuf.key(1, VARINT) + protobuf.varint(extent) for extent in shape]
    if label is not None:
        parts.append(protobuf.key(2, VARINT) + protobuf.varint(int(label)))
    if pixel is not None:
        parts += [protobuf.key(3, BYTES), protobuf.varint(len(pixel)), pixel]
    if data is not None:
        floats = np.ascontiguousarray(data, "<f4").tobytes()
        parts += [protobuf.key(4, BYTES), protobuf.varint(len(floats)), floats]
    return b"".join(parts)


def decode_records(rows: Rows) -> Arrays | None:
    """Decode records of SINGA with the same layout: RecordProto, Record around one, or WordRecord.

    Parameters
    ----------
    rows : (n, length) uint8

    Returns
    -------
    dict of str to ndarray, or None
        ``pixel`` (n, *shape) uint8 or ``data`` (n, *shape) float32, and ``label`` (n,) int32 if present. For words:
        ``data`` (n, 4); see `vocabulary.read_words`. None if the layouts differ.

    Raises
    ------
    ValueError
        A row is not such a record.
    """
    if _is_word(protobuf.columns(rows[:1])):
        return {"data": _decode_words(rows)}
    fields = protobuf.columns(rows)
    if fields is None:
        return None
    wrapped = [column.values for column in fields if (column.number, column.wire) == (5, BYTES)]
    if wrapped:
        return decode_records(wrapped[0])
    if any((column.number, column.wire) == (3, VARINT) for column in fields):
        raise ValueError("the third field is a number, as in Caffe's records")
    shape = protobuf.integers(fields, 1)
    if shape is None:
        return None
    arrays = _floats(fields, 4, shape) or _pixels(fields, 3, shape)
    return _with_label(arrays, fields, 2)


def _is_word(fields: Sequence[MessageField] | None) -> bool:
    """Return whether a message is a WordRecord: word, index, and class with its start and end."""
    return [(column.number, column.wire) for column in fields or ()] == WORD_FIELDS


def _decode_words(rows: Rows) -> npt.NDArray[np.float32]:
    """Decode WordRecords of one length to (n, 4): index, class, class_start and class_end."""
    # the length of the word, and the positions at which the varints after it end, determine the layout of a record
    keys = (rows >= 0x80) & (np.arange(rows.shape[1]) >= 2 + rows[:, 1:2].astype(np.int64))
    _, firsts, groups = np.unique(
        np.concatenate([rows[:, 1:2], np.packbits(keys, axis=1)], axis=1),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    words = np.empty((len(rows), 4), np.float32)
    for group in range(len(firsts)):
        indices = np.flatnonzero(groups.reshape(-1) == group)
        fields = protobuf.columns(rows[indices])
        if fields is None or not _is_word(fields):
            raise ValueError("not a WordRecord, but other records are")
        words[indices] = np.stack([column.values for column in fields[1:]], axis=1)
    return words


def decode_datums(rows: Rows, picture: Callable[[bytes], npt.NDArray[np.uint8]]) -> Arrays | None:
    """Decode Caffe Datum messages of the same layout; see `decode_records`.

    ``picture`` decodes an encoded image to (channels, height, width).

    Raises a `ValueError` if a row is not such a record, or has an image that cannot be decoded.
    """
    fields = protobuf.columns(rows)
    if fields is None:
        return None
    if holds_pictures(rows):
        images = [picture(row.tobytes()) for column in fields if column.number == 4 for row in column.values]
        return _with_label({"pixel": np.stack(images)}, fields, 5)
    shape: list[int] = []
    for number in (1, 2, 3):
        extent = protobuf.integers(fields, number)
        if extent is None:
            return None
        shape += extent
    arrays = _floats(fields, 6, shape) or _pixels(fields, 4, shape)
    return _with_label(arrays, fields, 5)


def holds_pictures(rows: Rows) -> bool:
    """Return whether Datum messages of the same layout hold encoded images."""
    flags = [column.values.astype(bool) for column in protobuf.columns(rows) or () if column.number == 7]
    return bool(flags) and bool(flags[0].all())


def decode_values(values: Rows | Sequence[bytes | memoryview], decode: Decoder) -> Arrays:
    """Decode messages of any layout. Messages of one length can be an array, (n, length) uint8.

    Raises a `ValueError`, ``record i: ...``, for an invalid message.
    """
    if isinstance(values, np.ndarray):
        return _merge(_decode_group(values, np.arange(len(values)), decode), len(values))
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    parts: list[tuple[npt.NDArray[np.int64], Arrays]] = []
    for length in np.unique(lengths):
        indices = np.flatnonzero(lengths == length)
        rows = np.frombuffer(b"".join([values[index] for index in indices.tolist()]), np.uint8).reshape(
            len(indices), length
        )
        parts += _decode_group(rows, indices, decode)
    return _merge(parts, len(values))


def _decode_group(
    rows: Rows, indices: npt.NDArray[np.int64], decode: Decoder
) -> list[tuple[npt.NDArray[np.int64], Arrays]]:
    try:
        arrays = decode(rows)
    except ValueError:
        arrays = None
    if arrays is not None:
        return [(indices, arrays)]
    return [(indices[i : i + 1], _decode_one(rows[i : i + 1], int(indices[i]), decode)) for i in range(len(indices))]


def _decode_one(row: Rows, index: int, decode: Decoder) -> Arrays:
    try:
        arrays = decode(row)
    except ValueError as error:
        raise ValueError(f"record {index}: {error}") from error
    if arrays is None:
        raise ValueError(f"record {index}: not a record")
    return arrays


def _merge(parts: list[tuple[npt.NDArray[np.int64], Arrays]], n: int) -> Arrays:
    if len(parts) == 1:
        return parts[0][1]
    parts.sort(key=lambda part: int(part[0][0]))
    schema = schema_of(parts[0][1])
    merged = {name: np.empty((n, *field.shape), field.dtype) for name, field in schema.items()}
    for indices, arrays in parts:
        if schema_of(arrays) != schema:
            raise ValueError(
                f"record {indices[0]}: holds {show_schema(schema_of(arrays))}, other records hold {show_schema(schema)}"
            )
        for name, array in arrays.items():
            merged[name][indices] = array
    return merged


def salvage_values(
    values: Sequence[bytes | memoryview], schema: Mapping[str, Field], decode: Decoder
) -> tuple[Arrays, dict[int, str]]:
    """Decode messages like `decode_values`, but skip invalid messages; see `salvage_rows` for the result."""

    def read_row(row: int) -> Arrays:
        arrays = decode(np.frombuffer(values[row], np.uint8)[None])
        if arrays is None:
            raise ValueError("not a record")
        return {name: array[0] for name, array in arrays.items()}

    return salvage_rows(len(values), schema, read_row)


def _floats(fields: Iterable[MessageField], number: int, shape: Sequence[int]) -> Arrays:
    parts = [column.values for column in fields if column.number == number and column.wire in (BYTES, FIXED32)]
    if not parts:
        return {}
    joined = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
    return {"data": _shaped(joined.view("<f4"), shape)}


def _pixels(fields: Iterable[MessageField], number: int, shape: Sequence[int]) -> Arrays:
    for column in fields:
        if column.number == number and column.wire == BYTES:
            return {"pixel": _shaped(column.values, shape)}
    raise ValueError("holds neither pixels nor data")


def _shaped(values: npt.NDArray[np.generic], shape: Sequence[int]) -> npt.NDArray[np.generic]:
    # for records without a shape, SINGA uses the shape in the job
    shape = shape or values.shape[1:]
    if values.shape[1] != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{values.shape[1]} values do not fit the shape {tuple(shape)}")
    return values.reshape(len(values), *shape)


def _with_label(arrays: Arrays, fields: Iterable[MessageField], number: int) -> Arrays:
    for column in fields:
        if (column.number, column.wire) == (number, VARINT):
            wrong = find_wrong_label(column.values)
            if wrong is not None:
                raise ValueError(wrong[1])
            arrays["label"] = column.values.astype(np.int32)
    return arrays
