"""TableIndex: where the blocks of a table are, and what was learned from its columns; kept beside large tables."""

from __future__ import annotations

import hashlib
import json
import logging
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from singa_dask.data import fs
from singa_dask.data.codecs.csv_records import Run
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.fs.host_files import SCHEME
from singa_dask.data.fs.io_threads import io_threads, map_ahead
from singa_dask.data.fs.range_reader import version
from singa_dask.data.stores.store import MANIFEST_DIR
from singa_dask.data.stores.table_files import TableFile
from singa_dask.errors import DataError

__all__ = ["Piece", "TableIndex", "find_index", "index_url", "keep_index"]

LOG = logging.getLogger(__name__)
VERSION = 1
# the index of a smaller table is not kept: it is made again faster than it is read from a remote file system
MIN_BYTES = 1 << 24


class Piece(NamedTuple):
    """A block of a table.

    Attributes
    ----------
    file : int
        Index of its file.
    run : Run
    kept : int
        Number of records that are not left out for missing values.
    """

    file: int
    run: Run
    kept: int


@dataclass(frozen=True)
class TableIndex:
    """What a pass over a table has found.

    Attributes
    ----------
    kinds : mapping of str to str
        Kind of each column.
    numbering : tuple of str
        Columns that number the rows.
    pieces : tuple of Piece
    facts : TableFacts
    """

    kinds: Mapping[str, str]
    numbering: tuple[str, ...]
    pieces: tuple[Piece, ...]
    facts: TableFacts


def index_url(url: str, options: Mapping[str, Any]) -> str:
    """Return where the index of a table is kept: in ``_singa`` beside it, by its name and how it is read."""
    folder, slash, name = url.rstrip("/").rpartition("/")
    key = hashlib.sha256(json.dumps([name, options], sort_keys=True, default=str).encode()).hexdigest()[:16]
    return f"{folder}{slash}{MANIFEST_DIR}/table-{key}.json"


def _versions(files: Sequence[TableFile], storage_options: fs.Options) -> list[list[str]]:
    """Return name and version of each file; empty if a version is not known."""
    threads = io_threads(files[0].url)
    versions = map_ahead(lambda each: version(each.url, storage_options), files, threads, threads.n)
    found = [[posixpath.basename(each.url), known] for each, known in zip(files, versions, strict=True)]
    return found if all(known for _, known in found) else []


def find_index(place: str, files: Sequence[TableFile], storage_options: fs.Options) -> TableIndex | None:
    """Return the index at a URL; None if there is none, or the files have changed."""
    try:
        if not fs.exists(place, storage_options):
            return None
        found = json.loads(fs.read_bytes(place, storage_options=storage_options))
        if found["version"] != VERSION or found["files"] != _versions(files, storage_options):
            return None
        pieces = tuple(Piece(file, Run(*run), kept) for file, run, kept in found["pieces"])
        return TableIndex(found["kinds"], tuple(found["numbering"]), pieces, TableFacts.from_dict(found["facts"]))
    except (DataError, KeyError, TypeError, ValueError) as error:
        LOG.warning("%s: ignored: %s: %s", place, type(error).__name__, error)
        return None


def keep_index(place: str, files: Sequence[TableFile], storage_options: fs.Options, index: TableIndex) -> None:
    """Write the index of a large table; every process reads the whole table once if it cannot be written."""
    # parts of a dataset are there for one job, and cannot be written to
    if place.startswith(SCHEME) or sum(piece.run.length for piece in index.pieces) < MIN_BYTES:
        return
    versions = _versions(files, storage_options)
    if not versions:
        return
    content = {
        "version": VERSION,
        "files": versions,
        "kinds": dict(index.kinds),
        "numbering": list(index.numbering),
        "pieces": index.pieces,
        "facts": index.facts.to_dict(),
    }
    try:
        fs.write_atomic(place, json.dumps(content, separators=(",", ":")).encode() + b"\n", storage_options)
    except DataError as error:
        LOG.warning("%s: not written, so each process reads the whole table when it opens it: %s", place, error)
