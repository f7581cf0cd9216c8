"""Scan the large text tables of a job on its Dask workers. Each file is scanned once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from distributed import Client

from singa_dask.data.tables.shared_scan import TableScan
from singa_dask.data.types import RecordRun
from singa_dask.runtime.job.dask_tasks import Runner, check_wanted, on_each_worker
from singa_dask.shown import plural


def scan_tables(client: Client, scans: Iterable[TableScan], run: Runner, say: Callable[[str], None]) -> None:
    """Find the positions of records in large text tables, and cache them on each Dask worker.

    Dask workers that join the cluster later scan the tables themselves.

    Parameters
    ----------
    run : Runner
        Runs tasks on the Dask workers of the job.
    say : callable
        Called with messages for the user.

    Raises
    ------
    DataError
        A file cannot be read.
    """
    for scan in scans:
        n = len(scan.files)
        say(f"{scan.url}: the Dask workers look where records begin in {plural(n, 'file')}")
        found = dict(run([partial(_scan, scan, file) for file in range(n)]))
        on_each_worker(client)(partial(scan.keep, [found[file] for file in range(n)]))


def _scan(scan: TableScan, file: int) -> tuple[int, list[RecordRun]]:
    return file, scan.runs(file, check_wanted)
