"""The index of a table: kinds of columns, locations of blocks, and learned facts.

The index is stored in the cache.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from singa_dask import fs
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.types import RecordRun

logger = logging.getLogger(__name__)


# minimum size of tables whose index is stored; scanning shorter tables is fast
MIN_INDEXED_BYTES = 1 << 16
# increase this version when the index of unchanged files changes
INDEX_VERSION = 5
MAX_INDICES = 1000


class TableBlock(NamedTuple):
    """A block of a table.

    Attributes
    ----------
    file : int
        Index of the block's file.
    run : RecordRun
    first : int
        Index in the table of the block's first record.
    n : int
        Number of records in the part to read.
    kept : int
        Number of these records that are kept, because they have no missing values.
    """

    file: int
    run: RecordRun
    first: int
    n: int
    kept: int


@dataclass(frozen=True)
class TableIndex:
    """Result of a pass over a table.

    Attributes
    ----------
    kinds : mapping of str to str
        Kind of each column.
    numbering : tuple of str
        Columns that number the rows.
    pieces : tuple of TableBlock
    facts : TableFacts
    """

    kinds: Mapping[str, str]
    numbering: tuple[str, ...]
    pieces: tuple[TableBlock, ...]
    facts: TableFacts

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> TableIndex:
        """Return the index for a result of `to_dict`."""
        pieces = tuple(TableBlock(file, RecordRun(*run), *counts) for file, run, *counts in described["pieces"])
        return cls(described["kinds"], tuple(described["numbering"]), pieces, TableFacts.from_dict(described["facts"]))

    def to_dict(self) -> dict[str, Any]:
        """Return the index as a dictionary for JSON."""
        return {
            "kinds": dict(self.kinds),
            "numbering": list(self.numbering),
            "pieces": self.pieces,
            "facts": self.facts.to_dict(),
        }


Found = TypeVar("Found")
Runs = Mapping[int, Sequence[RecordRun]]


def runs_from(rows: Sequence[Sequence[int]]) -> Runs:
    """Return the runs of each file, given the content of the cache."""
    runs = defaultdict[int, list[RecordRun]](list)
    for file, *run in rows:
        runs[file].append(RecordRun(*run))
    if not runs:
        raise ValueError("the index has no runs")
    return runs


def read_cached(file: Path, convert: Callable[[Any], Found]) -> Found | None:
    """Return the converted content of a file in the cache; None if it is missing or damaged."""
    try:
        content = convert(json.loads(file.read_bytes()))
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        logger.debug("%s: no index can be read: %s: %s", file, type(error).__name__, error)
        return None
    with contextlib.suppress(OSError):
        os.utime(file)
    return content


def write_cached(contents: Mapping[Path, Any], table: str) -> None:
    """Write files in the cache, and delete the least recently used files. An error is only logged."""
    folder = next(iter(contents)).parent
    try:
        # make the folder accessible only to this user, because names of columns and classes may be confidential
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file, content in contents.items():
            fs.write_atomic(str(file), json.dumps(content, separators=(",", ":")))
    except OSError as error:
        logger.info("%s: its index is not stored, so each process scans the table: %s", table, error)
    with contextlib.suppress(OSError):
        for old in sorted(folder.glob("*.json"), key=lambda each: each.stat().st_mtime)[:-MAX_INDICES]:
            old.unlink()
