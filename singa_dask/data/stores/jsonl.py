"""Records in JSON lines: an object per line, e.g. ``{"features": [0.5, 1.5], "label": 3}``."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Sequence

from singa_dask.data import fs
from singa_dask.data.codecs.json_lines import records_like
from singa_dask.data.codecs.record import salvage_rows
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.stores.block_sizes import BLOCK_BYTES, cut_lines
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.stores.store import STORES
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["JsonLinesStore"]

BOM = codecs.BOM_UTF8


@STORES.register("jsonl")
class JsonLinesStore(RangeStore):
    """Records of a file of JSON lines, gzipped or not.

    All lines have the same keys as the first. Values become ``data`` (float32), or ``pixel`` (uint8). Labels are
    integers, or text: then the ``class_names`` are all labels of the file, sorted.

    Parameters
    ----------
    url : str
    storage_options : mapping, optional
    features : str or sequence of str
        Key of a list of numbers, nested for records of several dimensions; or keys of numbers. By default features,
        data, x, pixel, pixels, image or images, or else all keys if they are of numbers.
    label : str
        Key of the label; by default the only one of label, labels, y, class, target or targets.
    dtype : {"uint8", "float32"}
        By default uint8 for the keys pixel, pixels, image and images if the first line has integers from 0 to 255,
        and float32 otherwise.
    classes : sequence of str
        Names of the classes, by label, if labels are text. By default the file is searched for them at opening, unless
        a manifest lists them.
    block_bytes : int
        Approximate length of a block.

    Raises
    ------
    DataError
        The file is missing or empty, or its first line is not such a record. `read_block` names the line of a wrong
        record.
    """

    title = "a file of JSON lines"
    suffixes = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
    gzipped = True
    block_options = ("block_bytes",)
    decodes_ahead = True

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        features: str | Sequence[str] = (),
        label: str = "",
        dtype: str = "",
        classes: Sequence[str] = (),
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        features = (features,) if isinstance(features, str) and features else tuple(features)
        if dtype not in ("", "uint8", "float32"):
            raise DataError(f"{url}: dtype {dtype!r}, expected uint8 or float32.")
        super().__init__(
            url,
            storage_options,
            features=features,
            label=label,
            dtype=dtype,
            classes=tuple(classes),
            block_bytes=block_bytes,
        )

    def index(self) -> None:
        source, options = self.open_source(), self.options
        start = len(BOM) if bytes(source.read(0, min(len(BOM), source.size))) == BOM else 0
        self.blocks = self.manifest_blocks() or cut_lines(source, start, options["block_bytes"])
        if not self.blocks:
            raise DataError(f"{self.url}: no lines. The file is empty.")
        first = bytes(source.read(self.blocks[0].offset, self.blocks[0].length)).split(b"\n", 1)[0]
        try:
            self._records = records_like(
                first, options["features"], options["label"], options["dtype"], options["classes"]
            )
        except ValueError as error:
            raise DataError(f"{self.url}, line 1: {error}.") from None
        self.schema = self._records.schema
        if self._records.is_row:
            # the order of keys is that of the first line
            self.set_table_facts(TableFacts(self._records.keys).to_dict())
        if self._records.text:
            stored = self.manifest.class_names if self.manifest else ()
            self.class_names = options["classes"] or stored or self._find_classes()
            self._records = dataclasses.replace(self._records, classes=self.class_names)

    def _find_classes(self) -> tuple[str, ...]:
        """Return all labels of the file, sorted."""
        found = set[str]()
        for block in self.blocks:
            text = self.sources[0].scan(block.offset, block.length)
            names = self._records.names_in(text, block.n)
            if names is None:
                # a wrong line is an error when it is read, or tolerated
                lines = bytes(text).split(b"\n")
                names = {name for line in lines if (name := self._records.name_in(line)) is not None}
            found |= names
        return tuple(sorted(found))

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        arrays = self._records.decode(data[0], self.blocks[block_id].n)
        return arrays if arrays is not None else self._decode_lines(block_id, bytes(data[0]))

    def _decode_lines(self, block_id: int, text: bytes) -> Arrays:
        """Decode a block line by line, and raise the error of the first wrong one."""
        arrays, bad = self._rows(block_id, text)
        if bad:
            row = min(bad)
            raise DataError(f"{self.url}, line {int(self.starts[block_id]) + row + 1}: {bad[row]}.")
        return arrays

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        return self._rows(block_id, bytes(self.fetch(block_id)[0]))

    def _rows(self, block_id: int, text: bytes) -> tuple[Arrays, dict[int, str]]:
        lines = text.split(b"\n")
        return salvage_rows(self.blocks[block_id].n, self.schema, lambda row: self._records.decode_line(lines[row]))
