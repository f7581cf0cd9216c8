"""Records of SINGA and Caffe: RecordProto, WordRecord and Datum messages <-> arrays.

Messages of the same layout, as records of one shape usually are, are decoded together. Others are grouped by length
first, and decoded one by one only if layouts still differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs import protobuf
from singa_dask.data.codecs.protobuf import BYTES, FIXED32, VARINT, MessageField
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError, listed
from singa_dask.shown import plural

# Labels: which field of records they are, and their conversion to 32-bit integers.


LABEL_NAMES = ("label", "labels", "y", "class", "target", "targets")
"""A field with one of these names, in upper or lower case, is the label, in all formats."""


def labels_among(names: Iterable[str]) -> list[str]:
    """Return the names of fields that say that these are labels."""
    return [name for name in names if name.lower() in LABEL_NAMES]


def is_point(names: Sequence[str]) -> bool:
    """Return whether the only name of a label may be that of a coordinate, with x beside it."""
    return [name.lower() for name in labels_among(names)] == ["y"] and "x" in map(str.lower, names) and len(names) > 2


def label_field(names: Sequence[str], given: str = "") -> str:
    """Return the name of the field with the label: the given one, or the only one of `LABEL_NAMES`; empty if none is.

    Raises
    ------
    ValueError
        There is no field of the given name, or several could be meant.
    """
    if given and given not in names:
        raise ValueError(f"no {given!r} for the label. Fields: {listed(names)}")
    found = labels_among(names)
    if not given and len(found) > 1:
        raise ValueError(f"{' and '.join(found)} could each be the label. Set user_conf: {{label: NAME}}")
    return given or next(iter(found), "")


def as_labels(values: npt.NDArray[Any], where: str, first: int = 0) -> npt.NDArray[np.int32]:
    """Convert numbers to labels; an int32 array is returned as it is.

    Parameters
    ----------
    values : (n,) numbers
    where : str
        URL or layer, for the error.
    first : int
        Index of the first record, for the error.

    Raises
    ------
    DataError
        A number is not an integer, or does not fit in 32 bits.
    """
    found = find_wrong_label(values)
    if found is not None:
        raise DataError(f"{where}, record {first + found[0]}: {found[1]}.")
    return values.astype(np.int32, copy=False)


def find_wrong_label(values: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return index of the first invalid label and the reason; None if all are valid."""
    if values.dtype.kind not in "biuf":
        return 0, f"labels of type {values.dtype}, expected integers"
    if values.dtype.kind in "biu" and np.can_cast(values.dtype, np.int32):
        return None
    with np.errstate(invalid="ignore"):
        wrong = values.astype(np.int32) != values
    if not wrong.any():
        return None
    index = int(wrong.argmax())
    value = values[index]
    if values.dtype.kind == "f" and not float(value).is_integer():
        return index, f"the label {value} is not an integer. Labels are indices of classes"
    return index, f"the label {value} does not fit in 32 bits"


def is_numeric(kind: np.dtype[Any]) -> bool:
    """Return whether values of a dtype are real numbers or booleans."""
    return kind.kind in "biuf"


def is_rounded(kind: np.dtype[Any]) -> bool:
    """Return whether float32 does not have all values of a dtype of numbers."""
    return np.promote_types(kind, np.float32) != np.float32


def value_name(kind: np.dtype[Any]) -> str:
    """Return the field that holds values of a dtype: ``pixel`` for uint8, otherwise ``data``."""
    return "pixel" if kind == np.uint8 else "data"


def as_values(
    values: npt.NDArray[Any], where: str, first: int = 0, dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Convert numbers to the values of records.

    Parameters
    ----------
    values : (n, ...) numbers
    where : str
        URL, for the error.
    first : int
        Index of the first record, for the error.
    dtype : dtype
        Of the result: float32, or float64.

    Returns
    -------
    (n, ...) uint8 or float
        uint8 is returned as it is; others are rounded to the nearest float32, which is exact for integers up to
        2**24.

    Raises
    ------
    DataError
        A finite number is too large for float32, or the values are not numbers.
    """
    if not is_numeric(values.dtype):
        raise DataError(f"{where}: values of type {values.dtype}, expected numbers.")
    if values.dtype == np.uint8:
        return values
    try:
        with np.errstate(over="raise"):
            return values.astype(dtype, copy=False)
    except FloatingPointError:
        limit = np.finfo(np.float32).max
        rows = values.reshape(len(values), -1)
        row = int((np.isfinite(rows) & (abs(rows) > limit)).any(axis=1).argmax())
        value = rows[row][np.isfinite(rows[row]) & (abs(rows[row]) > limit)][:1]
        raise DataError(
            f"{where}, record {first + row}: the value {', '.join(map(str, value))} is too large for float32, "
            f"expected at most {limit:.3g}. Scale the data first."
        ) from None


def find_wrong_weight(weights: npt.NDArray[Any]) -> tuple[int, str] | None:
    """Return the index of the first of (n, ...) weights that is negative or not finite, and what is wrong, or None."""
    wrong = ~((weights >= 0) & (weights <= np.finfo(np.float32).max)).reshape(-1)
    if not wrong.any():
        return None
    row = int(wrong.argmax())
    return row, f"the weight {weights.reshape(-1)[row]:g}, expected a number from 0 on that fits in a float of 32 bits"


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of a type of Arrow are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def holds_numbers(kind: pa.DataType) -> bool:
    """Return whether values of a type of Arrow are fixed-size binary, or lists of numbers, nested or not."""
    leaf = kind
    while is_list(leaf):
        leaf = leaf.value_type
    is_number = pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)
    return bool(pa.types.is_fixed_size_binary(kind) or (is_number and leaf is not kind))


def flat_lists(column: pa.Array, shape: Sequence[int], where: str, first: int = 0) -> pa.Array:
    """Return the values of a column of lists, nested or not, one after another.

    Parameters
    ----------
    column : pyarrow.Array
        (n,) lists.
    shape : sequence of int
        Expected length of the lists of each level.
    where : str
        URL and column, for errors.
    first : int
        Index of the first record, for errors.

    Raises
    ------
    DataError
        A list is of another length, or a list or a value is null.
    """
    flat, n_lists = column, 1
    for size in shape:
        if flat.null_count:
            what = "record" if flat is column else "list"
            raise DataError(f"{where}: {plural(flat.null_count, f'{what} is', f'{what}s are')} null.")
        if not pa.types.is_fixed_size_list(flat.type):
            lengths = np.diff(np.from_dlpack(flat.offsets))
            if wrong := np.flatnonzero(lengths != size).tolist():
                record = first + wrong[0] // n_lists
                raise DataError(f"{where}, record {record}: {lengths[wrong[0]]} values, expected {size}.")
        flat, n_lists = flat.flatten(), n_lists * size
    if flat.null_count:
        raise DataError(f"{where}: {plural(flat.null_count, 'value is', 'values are')} null.")
    return flat


# fields of SINGA's WordRecord: word, word_index, class_index, class_start, class_end
WORD_FIELDS = [(1, BYTES), (2, VARINT), (3, VARINT), (4, VARINT), (5, VARINT)]

Rows = npt.NDArray[np.uint8]
Decoder = Callable[[Rows], "Arrays | None"]
T = TypeVar("T")


def encode_record(
    shape: Sequence[int],
    label: int | None = None,
    pixel: bytes | None = None,
    data: npt.NDArray[np.float32] | None = None,
) -> bytes:
    """Encode one SINGA RecordProto (SingleLabelImageRecord), identical to SINGA's bytes.

    Parameters
    ----------
    shape : sequence of int
    label : int, optional
    pixel : bytes, optional
    data : ndarray of float32, optional
        Written packed.
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
    """Decode SINGA records of the same layout: RecordProto, Record that wraps one, or WordRecord of its rnnlm example.

    Parameters
    ----------
    rows : (n, length) uint8

    Returns
    -------
    dict of str to ndarray, or None
        ``pixel`` (n, *shape) uint8 or ``data`` (n, *shape) float32, and ``label`` (n,) int32 if present; None if the
        layouts differ. For words ``data`` (n, 4), see `words.read_words`.

    Raises
    ------
    ValueError
        A row is not such a record.
    """
    if _is_word(protobuf.columns(rows[:1])):
        return {"data": _decode_words(rows)}
    found = protobuf.columns(rows)
    if found is None:
        return None
    wrapped = [column.values for column in found if (column.number, column.wire) == (5, BYTES)]
    if wrapped:
        return decode_records(wrapped[0])
    if any((column.number, column.wire) == (3, VARINT) for column in found):
        raise ValueError("the third field is a number, as in Caffe's records")
    shape = protobuf.integers(found, 1)
    if shape is None:
        return None
    arrays = _floats(found, 4, shape) or _pixels(found, 3, shape)
    return _with_label(arrays, found, 2)


def _is_word(found: Sequence[MessageField] | None) -> bool:
    """Return whether a message is a WordRecord: the word, its index, its class, start and end of the class."""
    return [(column.number, column.wire) for column in found or ()] == WORD_FIELDS


def _decode_words(rows: Rows) -> npt.NDArray[np.float32]:
    """Decode WordRecords of the same length to (n, 4): index, class, class_start and class_end of each word.

    Raises
    ------
    ValueError
        A row is not such a record.
    """
    # the layout is determined by the length of the word, and by the ends of the varints after it
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
        found = protobuf.columns(rows[indices])
        if found is None or not _is_word(found):
            raise ValueError("not a WordRecord, unlike others")
        words[indices] = np.stack([column.values for column in found[1:]], axis=1)
    return words


def decode_datums(rows: Rows, picture: Callable[[bytes], npt.NDArray[np.uint8]]) -> Arrays | None:
    """Decode Caffe Datum messages of the same layout; see `decode_records`.

    ``picture`` decodes an encoded image to (channels, height, width).

    Raises
    ------
    ValueError
        A row is no such record, or has an image that cannot be decoded.
    """
    found = protobuf.columns(rows)
    if found is None:
        return None
    if holds_pictures(rows):
        images = [picture(row.tobytes()) for column in found if column.number == 4 for row in column.values]
        return _with_label({"pixel": np.stack(images)}, found, 5)
    shape: list[int] = []
    for number in (1, 2, 3):
        extent = protobuf.integers(found, number)
        if extent is None:
            return None
        shape += extent
    arrays = _floats(found, 6, shape) or _pixels(found, 4, shape)
    return _with_label(arrays, found, 5)


def holds_pictures(rows: Rows) -> bool:
    """Return whether Datum messages of the same layout hold encoded images."""
    flags = [column.values.astype(bool) for column in protobuf.columns(rows) or () if column.number == 7]
    return bool(flags) and bool(flags[0].all())


def decode_values(values: Sequence[bytes | memoryview], decode: Decoder) -> Arrays:
    """Decode messages of any lengths and layouts.

    Raises
    ------
    ValueError
        A message is invalid. The text begins with ``record i: ``.
    """
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
                f"record {indices[0]}: holds {show_schema(schema_of(arrays))}, others hold {show_schema(schema)}"
            )
        for name, array in arrays.items():
            merged[name][indices] = array
    return merged


def schema_of(arrays: Arrays) -> dict[str, Field]:
    """Return dtype and shape of one record's arrays."""
    return {name: Field(array.dtype, array.shape[1:]) for name, array in arrays.items()}


def describe_fields(schema: Mapping[str, Field]) -> dict[str, Any]:
    """Return a schema as JSON has it."""
    return {name: {"dtype": field.dtype.str, "shape": field.shape} for name, field in schema.items()}


def fields_of(described: Mapping[str, Any]) -> dict[str, Field]:
    """Return the schema that `describe_fields` described."""
    return {name: Field(np.dtype(each["dtype"]), tuple(each["shape"])) for name, each in described.items()}


def show_schema(schema: Mapping[str, Field]) -> str:
    """Format a schema for a message: ``pixel (28, 28) uint8, label () int32``."""
    return ", ".join(f"{name} {field.shape} {field.dtype}" for name, field in schema.items())


def check_schema(arrays: Arrays, schema: dict[str, Field], where: str) -> Arrays:
    """Return ``arrays``; raise a `DataError` if their schema is not that of the store's first record."""
    if schema_of(arrays) != schema:
        raise DataError(f"{where}: holds {show_schema(schema_of(arrays))}, expected {show_schema(schema)}.")
    return arrays


def salvage_rows(
    n: int, schema: Mapping[str, Field], read_row: Callable[[int], Arrays]
) -> tuple[Arrays, dict[int, str]]:
    """Read the records of a block one by one, skipping bad ones.

    Parameters
    ----------
    n : int
    schema : mapping of str to Field
        Expected schema; a record of any other is bad.
    read_row : callable
        Returns the arrays of one record, without a record axis.

    Returns
    -------
    dict of str to ndarray
        (n, *shape) of each field, zeros for bad records.
    dict of int to str
        Row of each bad record -> what is wrong with it.
    """
    arrays = {name: np.zeros((n, *field.shape), field.dtype) for name, field in schema.items()}
    bad: dict[int, str] = {}
    for row in range(n):
        try:
            record = read_row(row)
        except (DataError, OverflowError, ValueError) as error:
            bad[row] = str(error).rstrip(".")
            continue
        found = {name: Field(array.dtype, array.shape) for name, array in record.items()}
        if found != schema:
            bad[row] = f"holds {show_schema(found)}, expected {show_schema(schema)}"
            continue
        for name, array in record.items():
            arrays[name][row] = array
    return arrays, bad


def salvage_values(
    values: Sequence[bytes | memoryview], schema: Mapping[str, Field], decode: Decoder
) -> tuple[Arrays, dict[int, str]]:
    """Decode messages as `decode_values` does, skipping bad ones; see `salvage_rows`."""

    def read_row(row: int) -> Arrays:
        arrays = decode(np.frombuffer(values[row], np.uint8)[None])
        if arrays is None:
            raise ValueError("not a record")
        return {name: array[0] for name, array in arrays.items()}

    return salvage_rows(len(values), schema, read_row)


def _floats(found: Iterable[MessageField], number: int, shape: Sequence[int]) -> Arrays:
    parts = [column.values for column in found if column.number == number and column.wire in (BYTES, FIXED32)]
    if not parts:
        return {}
    joined = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1))
    return {"data": _shaped(joined.view("<f4"), shape)}


def _pixels(found: Iterable[MessageField], number: int, shape: Sequence[int]) -> Arrays:
    for column in found:
        if column.number == number and column.wire == BYTES:
            return {"pixel": _shaped(column.values, shape)}
    raise ValueError("holds neither pixels nor data")


def _shaped(values: npt.NDArray[np.generic], shape: Sequence[int]) -> npt.NDArray[np.generic]:
    # SINGA also accepts records without a shape: the job defines it
    shape = shape or values.shape[1:]
    if values.shape[1] != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{values.shape[1]} values do not fit the shape {tuple(shape)}")
    return values.reshape(len(values), *shape)


def _with_label(arrays: Arrays, found: Iterable[MessageField], number: int) -> Arrays:
    for column in found:
        if (column.number, column.wire) == (number, VARINT):
            wrong = find_wrong_label(column.values)
            if wrong is not None:
                raise ValueError(wrong[1])
            arrays["label"] = column.values.astype(np.int32)
    return arrays


def bisect_rows(n: int, decode: Callable[[int, int], T]) -> tuple[list[tuple[int, T]], dict[int, str]]:
    """Decode rows in runs as long as possible, where some of the rows are bad.

    Parameters
    ----------
    n : int
        Number of rows.
    decode : callable
        (first, stop) -> the decoded rows; raises an error if one of them is bad. Its text counts if it is of one row.

    Returns
    -------
    list of (int, T)
        First row and result of each run of good rows, in order.
    dict of int to str
        Bad row -> what is wrong with it.
    """
    good: list[tuple[int, T]] = []
    bad: dict[int, str] = {}
    waiting = [(0, n)] if n else []
    while waiting:
        first, stop = waiting.pop()
        try:
            good.append((first, decode(first, stop)))
        except (DataError, pa.ArrowException, ValueError) as error:
            if stop - first == 1:
                bad[first] = str(error).rstrip(".")
                continue
            middle = (first + stop) // 2
            waiting += [(middle, stop), (first, middle)]
    return good, bad
