"""Records as text: a record a line, numbers parted by separators, the label first.

A block is a range of bytes cut at a line's end, parsed as a whole. Lines are looked at one by one only to say
which of them is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from singa_dask.data import fs
from singa_dask.data.manifest import find_manifest
from singa_dask.data.ranges import Ranges
from singa_dask.data.record import salvage_rows
from singa_dask.data.rows import Rows
from singa_dask.data.store import BLOCK_BYTES, STORES, Arrays, Block, Field, Records, Store, rows_per_block
from singa_dask.errors import DataError

__all__ = ["TextStore"]

NEWLINE = ord("\n")


@STORES.register("csv", "textfile")
class TextStore(Store):
    """Records of a text file.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    separator : str
        Any of these characters parts two numbers, as blanks do; several in a row are one.
    has_label : bool
        The first number of a line is its label, an integer.
    shape : sequence of int
        Of one record; all numbers of the first line in a row when it is not given.
    block_bytes : int
        About how long a block is.
    torn : bool
        Open a file that ends within a line: what is before it is the store, and ``tail`` says what is left out. A
        line whose last number alone is cut short cannot be told from a whole one.

    Raises
    ------
    DataError
        The file is missing or empty. `read_block` names URL and line of what is no record.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".txt", ".tsv")
    takes_torn = True

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        separator: str = ",",
        has_label: bool = True,
        shape: Sequence[int] = (),
        block_bytes: int = BLOCK_BYTES,
        torn: bool = False,
    ) -> None:
        super().__init__(
            url,
            storage_options,
            separator=separator,
            has_label=has_label,
            shape=shape,
            block_bytes=block_bytes,
            torn=torn,
        )
        self._has_label = has_label
        self._ranges = Ranges(url, storage_options)
        self._blanks = bytes.maketrans(separator.encode(), b" " * len(separator.encode()))
        self._block_bytes = block_bytes
        self.blocks = self._noted_blocks() or self._cut(block_bytes)
        if not self.count:
            raise DataError(f"{url}: no lines.")
        if not shape:
            shape = (len(self._first_line()) - has_label,)
        self.schema = {"data": Field(np.dtype(np.float32), tuple(shape))}
        if has_label:
            self.schema["label"] = Field(np.dtype(np.int32))
        self._columns = int(np.prod(shape, dtype=np.int64)) + has_label
        if torn:
            self._leave_out_half_a_line()

    def _noted_blocks(self) -> tuple[Block, ...]:
        """Return the blocks that a manifest knows, none if it has blocks of another size."""
        found = find_manifest(self.url, "csv", self.url, self._ranges.size, self.storage_options)
        self.class_names = found.class_names if found else ()
        return found.blocks if found and found.opening.get("block_bytes") == self._block_bytes else ()

    def stored(self, block_id: int) -> memoryview:
        block = self.blocks[block_id]
        return self.checked(block_id, self._ranges.read(block.offset, block.length))

    def noted(self) -> dict[str, Any]:
        return {"bytes": self._ranges.size, "block_bytes": self._block_bytes}

    def _cut(self, block_bytes: int) -> tuple[Block, ...]:
        """Count the lines, and cut the file at line ends."""
        size = self._text_bytes()
        blocks: list[Block] = []
        start = position = lines = 0
        while position < size:
            data = np.frombuffer(self._ranges.scan(position, min(block_bytes, size - position)), np.uint8)
            ends = np.flatnonzero(data == NEWLINE)
            lines += len(ends)
            cut = position + int(ends[-1]) + 1 if len(ends) else start
            position += len(data)
            if position == size:
                # blanks at the end are cut off, and with them the end of the last line
                blocks.append(Block(len(blocks), lines + 1, self.url, start, size - start))
            elif cut > start:
                blocks.append(Block(len(blocks), lines, self.url, start, cut - start))
                start, lines = cut, 0
        return tuple(blocks)

    def _text_bytes(self) -> int:
        """Return the length of the file without blanks and empty lines at its end."""
        size = self._ranges.size
        while size:
            length = min(BLOCK_BYTES, size)
            tail = len(bytes(self._ranges.scan(size - length, length)).rstrip())
            if tail:
                return size - length + tail
            size -= length
        return 0

    def _first_line(self) -> list[bytes]:
        first = self.blocks[0]
        line = bytes(self._ranges.read(first.offset, first.length)).split(b"\n", 1)[0]
        return line.translate(self._blanks).split()

    def _leave_out_half_a_line(self) -> None:
        last = self.blocks[-1]
        text = bytes(self._ranges.read(last.offset, self._ranges.size - last.offset))
        line = text[: last.length].rpartition(b"\n")[2]
        reason = self._why(line.translate(self._blanks))
        if not reason or text.endswith(b"\n"):
            return
        if self.count == 1:
            raise DataError(f"{self.url}: no whole line.")
        self.tail = f"torn in line {self.count}{reason}"
        rest = dataclasses.replace(last, n=last.n - 1, length=last.length - len(line), crc=None)
        self.blocks = (*self.blocks[:-1], *([rest] if rest.n else []))
        del self.starts

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        n = self.blocks[block_id].n
        lines = bytes(self.stored(block_id)).translate(self._blanks).split(b"\n")

        def read_row(row: int) -> Arrays:
            reason = self._why(lines[row])
            values = None if reason else self._parse(lines[row])
            if values is None or values.size != self._columns:
                raise ValueError(f"line {int(self.starts[block_id]) + row + 1}{reason or ': cannot be parsed'}")
            return {name: array[0] for name, array in self._arrays(values[None]).items()}

        return salvage_rows(n, self.schema, read_row)

    def read_block(self, block_id: int) -> Arrays:
        block = self.blocks[block_id]
        text = bytes(self.stored(block_id)).translate(self._blanks)
        values = self._parse(text)
        fits = values is not None and values.size == block.n * self._columns
        if values is None or not fits or not self._columns_fit(text, block.n):
            raise self._complain(text, int(self.starts[block_id]))
        arrays = self._arrays(values.reshape(block.n, self._columns))
        if self._has_label and not (arrays["label"] == values[:: self._columns]).all():
            raise self._complain(text, int(self.starts[block_id]))
        return arrays

    def _arrays(self, rows: npt.NDArray[np.float64]) -> Arrays:
        if not self._has_label:
            return {"data": self._shaped(rows)}
        return {"data": self._shaped(rows[:, 1:]), "label": rows[:, 0].astype(np.int32)}

    def _shaped(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        return rows.astype(np.float32).reshape(len(rows), *self.schema["data"].shape)

    @staticmethod
    def _parse(text: bytes) -> npt.NDArray[np.float64] | None:
        try:
            return np.fromstring(text, np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            # numpy only warns of what is no number; where warnings are errors it raises
            return None

    def _columns_fit(self, text: bytes, n: int) -> bool:
        """Say whether each line has the right number of numbers."""
        characters = np.frombuffer(text, np.uint8)
        blank = characters <= ord(" ")
        begins = np.flatnonzero(~blank & np.concatenate([[True], blank[:-1]]))
        ends = np.flatnonzero(characters == NEWLINE)[: n - 1]
        before = np.concatenate([[0], np.searchsorted(begins, ends), [len(begins)]])
        return bool((np.diff(before) == self._columns).all())

    def _complain(self, text: bytes, first: int) -> DataError:
        """Find the line that cannot be read."""
        for i, line in enumerate(text.split(b"\n")):
            reason = self._why(line)
            if reason:
                return DataError(f"{self.url}, line {first + i + 1}{reason}.")
        return DataError(f"{self.url}: lines from {first + 1} on cannot be parsed.")

    def _why(self, line: bytes) -> str:
        """Say what is wrong with a line, as it follows the line's number; nothing if it is right."""
        values = line.split()
        if len(values) != self._columns:
            label = "a label and " if self._has_label else ""
            expected = f"{label}{self._columns - self._has_label} numbers"
            return f": {len(values)} columns, expected {self._columns}: {expected}"
        for place, value in enumerate(values):
            if not _is_number(value):
                return f", column {place + 1}: {value.decode(errors='replace')!r} is no number"
        if self._has_label and not float(values[0]).is_integer():
            return f": the label {values[0].decode()} is no integer"
        return ""

    @classmethod
    def write(
        cls,
        url: str,
        records: Records,
        storage_options: fs.Options = None,
        separator: str = ",",
    ) -> None:
        """Write a line for each record; numbers get as many digits as it takes to read them back exactly.

        Parameters
        ----------
        separator : str
            One character.
        """
        rows = Rows(url, records)
        options: Any = pyarrow.csv.WriteOptions(include_header=False, delimiter=separator, quoting_style="none")
        with fs.staged(url, storage_options) as path, path.open("wb") as file:
            for block in rows.cut(rows_per_block(rows.record_bytes)):
                pyarrow.csv.write_csv(_table(block), file, options)

    def close(self) -> None:
        self._ranges.close()


def _table(records: Arrays) -> pa.Table:
    values = records["data"] if "data" in records else records["pixel"]
    columns = list(values.reshape(len(values), -1).T)
    if "label" in records:
        columns.insert(0, records["label"])
    return pa.table({str(i): np.ascontiguousarray(column) for i, column in enumerate(columns)})


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
