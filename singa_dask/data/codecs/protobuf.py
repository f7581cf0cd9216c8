"""The protobuf wire format: decode many messages at once, and encode single fields.

Messages with the same length and layout are handled as rows of a matrix, in which each field is a range of columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class MessageField:
    """One field of several messages.

    Attributes
    ----------
    number : int
        Field number.
    wire : int
        Wire type: VARINT, FIXED64, BYTES or FIXED32.
    values : ndarray
        (n,) int64 for varints, otherwise (n, length) uint8, which is a view of the messages.
    """

    number: int
    wire: int
    values: npt.NDArray[Any]


def varint(value: int) -> bytes:
    """Encode an integer as protobuf does. Negative integers are encoded as their 64-bit complement."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def key(number: int, wire: int) -> bytes:
    """Encode the tag of a field."""
    return varint(number << 3 | wire)


def varints_of(data: bytes) -> list[int]:
    """Decode consecutive varints (a packed repeated field)."""
    values, position = [], 0
    while position < len(data):
        value, position = _varint_at(data, position)
        values.append(value)
    return values


def columns(rows: npt.NDArray[np.uint8]) -> list[MessageField] | None:
    """Decode messages of the same length whose fields have the same offsets and lengths.

    Parameters
    ----------
    rows : (n, length) uint8
        One message per row, n >= 1.

    Returns
    -------
    list of MessageField, or None
        Fields in the order of the message; None if the layouts of the rows differ.

    Raises
    ------
    ValueError
        The first row is not a message.
    """
    spans, fixed = layout(rows[0].tobytes())
    # the fast path needs the same tags, lengths and sizes of varints in all rows
    if len(fixed) and not (rows[:, fixed] == rows[0, fixed]).all():
        return None
    fields = []
    for number, wire, start, end in spans:
        part = rows[:, start:end]
        if wire != VARINT:
            fields.append(MessageField(number, wire, part))
        elif (part[:, :-1] >= 0x80).all() and (part[:, -1] < 0x80).all():
            fields.append(MessageField(number, wire, _join_varint(part)))
        else:
            return None
    return fields


def _join_varint(groups: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    if groups.shape[1] == 1:
        return groups[:, 0].astype(np.int64)
    values = np.zeros(len(groups), np.uint64)
    for i in range(groups.shape[1]):
        values |= (groups[:, i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return values.astype(np.int64)


def integers(fields: Iterable[MessageField], number: int) -> list[int] | None:
    """Return the integers in a field, packed or not; None if they differ between messages."""
    values: list[int] = []
    for column in fields:
        if column.number == number:
            if not (column.values == column.values[0]).all():
                return None
            is_one = column.wire == VARINT
            values += [int(column.values[0])] if is_one else varints_of(column.values[0].tobytes())
    return values


def layout(message: bytes) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """Return (number, wire, start, end) of each field's value, and the offsets of tags and lengths."""
    spans, fixed, position = [], list[int](), 0
    while position < len(message):
        start = position
        tag, position = _varint_at(message, position)
        number, wire = tag >> 3, tag & 7
        if wire == BYTES:
            length, position = _varint_at(message, position)
        fixed.extend(range(start, position))
        if wire == VARINT:
            end = _varint_at(message, position)[1]
        elif wire in (BYTES, FIXED32, FIXED64):
            end = position + (length if wire == BYTES else 4 if wire == FIXED32 else 8)
        else:
            raise ValueError(f"not a protobuf message: wire type {wire} at byte {start}")
        if end > len(message) or not number:
            raise ValueError(f"not a protobuf message: field {number} at byte {start} ends at {end} of {len(message)}")
        spans.append((number, wire, position, end))
        position = end
    return spans, fixed


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            # protobuf encodes a negative int32 in ten bytes
            return (value - (1 << 64) if value >> 63 else value), position
        shift += 7
    raise ValueError(f"not a protobuf message: unterminated integer at byte {position}")
