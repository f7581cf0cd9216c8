"""TableScan: find the runs of a large table of text; several processes share the work for all hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from singa_dask.data.tables.block_index import write_cached
from singa_dask.data.tables.files.table_part import TablePart
from singa_dask.data.types import RecordRun

_LEAST_BYTES: ContextVar[float] = ContextVar("least_bytes", default=float("inf"))


@dataclass(frozen=True)
class TableScan:
    """Description of a table, from which other processes can scan it and store the result.

    Attributes
    ----------
    url : str
        URL of the table.
    files : tuple of str
        URLs of the files of the table, in order.
    open_part : callable
        Takes the URL of a file, and opens it.
    block_bytes : int
        Approximate length of a block.
    folder : callable
        Returns the directory for table indices in the cache of the calling process's host.
    name : str
        Name of the file with the runs, in that directory.
    """

    url: str
    files: tuple[str, ...]
    open_part: Callable[[str], TablePart]
    block_bytes: int
    folder: Callable[[], Path]
    name: str

    def runs(self, file: int, check: Callable[[], None] = lambda: None) -> list[RecordRun]:
        """Return the runs of a file, given its index; ``check`` is called after each run.

        Raises a `DataError` if the file cannot be read.
        """
        part, runs = self.open_part(self.files[file]), list[RecordRun]()
        for run in part.runs(self.block_bytes, 0):
            runs.append(run)
            check()
        return runs

    def keep(self, runs: Sequence[Sequence[RecordRun]]) -> None:
        """Store the runs of all files in the cache of this host, where `TableStore` looks for them."""
        rows = [(file, *run) for file, of_file in enumerate(runs) for run in of_file]
        write_cached({self.folder() / self.name: rows}, self.url)


class UnscannedError(Exception):
    """Raised instead of scanning a large table, if `forbid_scans` forbids scans."""

    def __init__(self, scan: TableScan) -> None:
        super().__init__(f"{scan.url}: not scanned")
        self.scan = scan


@contextlib.contextmanager
def forbid_scans(least_bytes: float) -> Iterator[None]:
    """Return a context in which this thread does not scan a table of text of ``least_bytes`` or more.

    Opening such a table raises `UnscannedError`, unless the result of its scan is in the cache.
    """
    token = _LEAST_BYTES.set(least_bytes)
    try:
        yield
    finally:
        _LEAST_BYTES.reset(token)


def refuse_scan(n_bytes: int, scan: Callable[[], TableScan]) -> None:
    """Raise `UnscannedError` if this thread must not scan a table of ``n_bytes``; see `forbid_scans`."""
    if n_bytes >= _LEAST_BYTES.get():
        raise UnscannedError(scan())
