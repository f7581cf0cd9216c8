"""TableReader: reads the rows of runs from the files of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from singa_dask.data.codecs.csv_records import Run
from singa_dask.data.codecs.table_spec import TableSpec
from singa_dask.data.stores.open_parts import OpenParts
from singa_dask.data.stores.table_files import TableFile, with_keys

__all__ = ["TableReader"]


@dataclass(frozen=True)
class TableReader:
    """Reads the rows of runs, with the columns that directories give.

    Attributes
    ----------
    parts : OpenParts
    files : sequence of TableFile
    spec : TableSpec
    """

    parts: OpenParts
    files: Sequence[TableFile]
    spec: TableSpec

    def wanted(self, kinds: Mapping[str, str], features: Sequence[str]) -> dict[str, str]:
        """Return the kind in which each column is read."""
        named = {name: "string" for name in self.spec.categories}
        return {name: named.get(name, kinds[name]) for name in (*features, *self.spec.outputs)}

    def in_file(self, file: int, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the columns that a file holds, without those that its directories give."""
        keys = dict(self.files[file].keys)
        return {name: kind for name, kind in wanted.items() if name not in keys}

    def decode(self, file: int, run: Run, wanted: Mapping[str, str], data: Sequence[memoryview]) -> pa.Table:
        """Return the rows of a run from its bytes."""
        return with_keys(self.parts(file).decode(run, self.in_file(file, wanted), data), self.files[file], wanted)

    def salvage(
        self, file: int, run: Run, wanted: Mapping[str, str], data: Sequence[memoryview]
    ) -> tuple[pa.Table, dict[int, str]]:
        """Return the rows of a run that can be read, and what is wrong with each other one."""
        table, bad = self.parts(file).salvage(run, self.in_file(file, wanted), data)
        return with_keys(table, self.files[file], wanted), bad
