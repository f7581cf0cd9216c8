"""Let all Dask workers of a job scan its large tables of text, each file once, before their processes open them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from distributed import Client

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf
from singa_dask.data.stores.tables.table_scan import TableScan, UnscannedError, scans_apart
from singa_dask.data.types import RecordRun
from singa_dask.errors import SingaError
from singa_dask.inputs import StoreInput
from singa_dask.runtime.job.client.dask_tasks import Runner, check_wanted, on_each_worker
from singa_dask.runtime.planning.nets import build_nets, store_of
from singa_dask.shown import plural

MIN_BYTES = 1 << 28
"""A smaller table is scanned by each host: that takes a second."""
BACKENDS = ("", "table", "csv", "jsonl")


def share_scans(
    client: Client, job: JobConf, sources: Sequence[modules.Source], run: Runner, say: Callable[[str], None]
) -> None:
    """Scan large tables of text that a job reads, and keep what was found in the cache of each Dask worker.

    A host without that, such as one that comes later, scans them again.

    Parameters
    ----------
    client : distributed.Client
    job : JobConf
    sources : sequence of Source
        The user's own modules.
    run : Runner
        Runs tasks on the Dask workers of the job.
    say : callable
        Tells the user what is done.

    Raises
    ------
    DataError
        A file cannot be read.
    """
    stores = [store for layer in job.neuralnet.layer if (store := store_of(layer))]
    if not any(store.backend in BACKENDS for store in stores):
        return
    (scans,) = run([partial(_unscanned, job.to_json(), sources, MIN_BYTES)])
    for scan in scans:
        n = len(scan.files)
        say(f"{scan.url}: the Dask workers look where records begin in {plural(n, 'file')}")
        found = dict(run([partial(_scan, scan, file) for file in range(n)]))
        on_each_worker(client)(partial(scan.keep, [found[file] for file in range(n)]))


def _unscanned(job: str, sources: Sequence[modules.Source], least_bytes: float) -> list[TableScan]:
    """Return the scans of large tables that a job needs, as far as this host knows."""
    found = dict[str, TableScan]()
    # the processes of the job report what is wrong
    with suppress(SingaError):
        modules.load(sources, REGISTRIES.values())
        nets = build_nets(JobConf.from_json(job, REGISTRIES)).values()
        for layer in [layer for net in nets for layer in net.layers if isinstance(layer, StoreInput)]:
            with suppress(SingaError, OSError), scans_apart(least_bytes):
                try:
                    if layer.store_conf.backend in BACKENDS:
                        layer.open_checked().close()
                except UnscannedError as error:
                    found.setdefault(error.scan.name, error.scan)
    return list(found.values())


def _scan(scan: TableScan, file: int) -> tuple[int, list[RecordRun]]:
    return file, scan.runs(file, check_wanted)
