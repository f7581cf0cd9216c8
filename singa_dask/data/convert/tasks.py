"""Tasks of a conversion: idempotent units of work.

Any process can execute the tasks, in any order within a step. A task reads the sources, and the results of earlier
steps in the plan's directory. It writes its own result there atomically. A resumed conversion executes the tasks whose
results are missing.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.blocks import rows_per_block
from singa_dask.data.convert.plan import ConversionPlan
from singa_dask.data.stores.manifest_writer import forget_manifest, write_manifest
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.rechunker import Rechunker
from singa_dask.data.stores.store import STORES, Store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

# names of two files: ORDER has the source index of each output record; POSITIONS has the output position of each
# source record, or -1 if the record is not written
ORDER, POSITIONS = "order", "places"
# floats are summed in chunks of this number of records, so that a mean does not depend on the blocks of the source
SUM_ROWS = 4096


@dataclass(frozen=True)
class Task:
    """A unit of work of a conversion. Call the task to execute it.

    Attributes
    ----------
    plan : ConversionPlan
    step : str
        "labels": collect the labels of a run of source blocks. "scatter": sort the records of a run into buckets.
        "shard": write a shard. "verify": read a shard and compare it with the sources. "manifest": write the manifest
        of a shard.
    index : int
        Index of the run or the shard.
    session : str
        Name of a call of `convert`. The tasks of a session share open sources.
    n_records : int
        Number of records that the task reads; 0 if unknown.
    """

    plan: ConversionPlan
    step: str
    index: int
    session: str
    n_records: int = 0

    @property
    def result(self) -> str:
        """Name of the result file, which exists only if the task is done."""
        return f"{self.step}-{self.index:05d}"

    def __call__(self) -> int:
        """Execute the task; return its index."""
        STEPS[self.step](self)
        _, source = _KEPT.get(threading.get_ident(), ("", None))
        if source is not None:
            source.check_unchanged()
        return self.index

    def source(self) -> Store:
        """Return the sources, which are opened once per session and thread."""
        kept = _KEPT.get(threading.get_ident())
        if kept is not None and kept[0] == self.session:
            return kept[1]
        source = self.plan.open_source()
        keep_source(self.session, source)
        return source

    def url(self, name: str = "") -> str:
        """Return the URL of a file in the plan's directory; by default the result of the task."""
        return fs.join(self.plan.folder, name or self.result)


_HERE = threading.local()
# thread -> session and sources; one store per thread, because not all stores support reads by several threads
_KEPT: dict[int, tuple[str, Store]] = {}


def keep_source(session: str, source: Store) -> None:
    """Keep an open store for the tasks of a session in this thread; close the store of an earlier session."""
    release_source()
    _KEPT[threading.get_ident()] = session, source


def release_source() -> None:
    """Close the sources of this thread."""
    _, source = _KEPT.pop(threading.get_ident(), ("", None))
    if source is not None:
        source.close()


def release_session(session: str) -> None:
    """Close the sources of a session in all threads of this process.

    No task of the session may be running.
    """
    for thread, (kept, source) in list(_KEPT.items()):
        if kept == session:
            del _KEPT[thread]
            source.close()


@contextlib.contextmanager
def reporting(on_records: Callable[[float], None]) -> Iterator[None]:
    """Call ``on_records`` with the progress of tasks in this thread.

    Reading a record counts as half a record, and writing it as the other half.
    """
    _HERE.on_records = on_records
    try:
        yield
    finally:
        del _HERE.on_records


def report(n: float) -> None:
    """Report that ``n`` more records are done, if `reporting` is active in this thread."""
    on_records = getattr(_HERE, "on_records", None)
    if on_records is not None:
        on_records(n)


def gather_labels(task: Task) -> None:
    """Write the labels of a run of source blocks."""
    source = task.source()
    first, last = task.plan.runs(source.starts)[task.index]
    labels = []
    for block in range(first, last):
        block_labels = source.read_labels(block)
        # if records have several labels, use the first
        labels.append(np.ascontiguousarray(block_labels[:, 0]) if block_labels.ndim > 1 else block_labels)
        report(len(labels[-1]))
    write_arrays(task.url(), labels, task.plan.storage_options)


def scatter(task: Task) -> None:
    """Write the records of a run of source blocks, sorted by bucket.

    The file contains the start of each bucket in the file, and then, bucket by bucket, the positions and the fields of
    the records.
    """
    plan, source = task.plan, task.source()
    first, last = plan.runs(source.starts)[task.index]
    start, stop = int(source.starts[first]), int(source.starts[last])
    positions = read_numbers(task.url(POSITIONS), start, stop, plan.storage_options)
    order = np.argsort(positions, kind="stable")
    order = order[int(np.searchsorted(positions[order], 0)) :]
    offsets = np.searchsorted(positions[order], plan.buckets)
    records = _gather(source, start + order)
    sorted_arrays = [positions[order], *records.values()]
    pieces = [array[low:high] for low, high in pairwise(offsets.tolist()) if high > low for array in sorted_arrays]
    write_arrays(task.url(), [offsets, *pieces], plan.storage_options)
    report(len(order) / 2)


def write_shard(task: Task) -> None:
    """Write a shard. If the mean is wanted, also write the sum of the shard's records."""
    plan = task.plan
    sums: list[npt.NDArray[Any]] = []
    records = _reported(_records(task))
    if plan.request.mean and task.index < plan.request.shards:
        records = _summed(Rechunker(plan.shards[task.index].url, records), sums)
    target = STORES.find(plan.request.backend)
    options = {**plan.request.writing, **target.naming_options(plan.class_names, plan.table_facts)}
    target.write(staged_url(plan, task.index), records, plan.storage_options, **options)
    # write the sums last: this file marks the task as complete, because the store itself can have several files
    write_arrays(task.url(), sums, plan.storage_options)


def verify(task: Task) -> None:
    """Compare a shard with its sources, block by block.

    In a text file, shapes and the dtype uint8 are not compared, because the format does not store them.
    """
    plan = task.plan
    url, start, stop = plan.shards[task.index]
    backend, options = plan.request.backend, _as_written(plan)
    expected = Rechunker(url, _records(task))
    try:
        with open_store(staged_url(plan, task.index), backend, plan.storage_options, **options) as store:
            if store.count != stop - start:
                raise DataError(f"{url}: {store.count} records were written, expected {stop - start}.")
            for block in store.blocks:
                _compare(store.read_block(block.id), expected, block.n, f"{url}, block {block.id}")
                report(block.n / 2)
    except DataError:
        # delete the shard, so that a resumed conversion writes it again
        fs.remove_tree(task.url(f"shard-{task.index:05d}"), plan.storage_options)
        raise


def _as_written(plan: ConversionPlan) -> dict[str, Any]:
    """Return the options to open a shard: for text, whether its lines begin with a label."""
    if plan.request.backend not in ("csv", "textfile"):
        return {}
    return {"has_label": plan.labelled, "separator": plan.request.writing.get("separator", ","), "header": False}


def _compare(stored: Arrays, expected: Rechunker, n: int, where: str) -> None:
    written = expected.take(n) or {}
    values = next(array for name, array in written.items() if name != "label")
    for name, array in stored.items():
        # a format may store values under another name
        other = written.get(name, values)
        here, there = array.reshape(n, -1), other.reshape(n, -1)
        wrong = ((here != there) & ~(np.isnan(here) & np.isnan(there))).any(axis=1)
        if wrong.any():
            raise DataError(f"{where}, record {expected.taken - n + int(wrong.argmax())}: {name} differs.")


def make_manifest(task: Task) -> None:
    """Write the manifest of a shard at its final URL."""
    plan = task.plan
    url = plan.shards[task.index].url
    # delete an older manifest, because it has the class names of the replaced records
    forget_manifest(url, plan.storage_options)
    write_manifest(url, plan.request.backend, plan.storage_options, plan.class_names, **_as_written(plan))


STEPS = {"labels": gather_labels, "manifest": make_manifest, "scatter": scatter, "shard": write_shard, "verify": verify}


def _records(task: Task) -> Iterator[Arrays]:
    """Yield the records of a shard in order."""
    plan, shard, source = task.plan, task.plan.shards[task.index], task.source()
    if plan.by_buckets:
        first, last = np.searchsorted(plan.buckets, [shard.start, shard.stop]).tolist()
        runs = [task.url(f"scatter-{i:05d}") for i in range(len(plan.runs(source.starts)))]
        starts = [read_numbers(url, first, last + 1, plan.storage_options).tolist() for url in runs]
        for i in range(last - first):
            pieces = [(url, at[i], at[i + 1]) for url, at in zip(runs, starts, strict=True)]
            yield _bucket(task, source, first + i, pieces)
        return
    rows = read_numbers(task.url(ORDER), shard.start, shard.stop, plan.storage_options)
    if plan.request.shuffle is not None:
        yield _gather(source, rows)
        return
    inner = np.searchsorted(source.starts, [rows[0], rows[-1]], side="right")
    for piece in np.split(rows, np.searchsorted(rows, source.starts[inner[0] : inner[1]])):
        if len(piece):
            yield _gather(source, piece)


def _gather(source: Store, rows: npt.NDArray[np.int64]) -> Arrays:
    """Read records by index; each block of the source is read once."""
    order = np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order], source.starts)
    taken = {name: np.empty((len(rows), *field.shape), field.dtype) for name, field in source.schema.items()}
    for block in np.flatnonzero(np.diff(cuts)).tolist():
        chosen = order[cuts[block] : cuts[block + 1]]
        records = source.read_rows(block, rows[chosen] - source.starts[block])
        for name, array in taken.items():
            array[chosen] = records[name]
        report(len(chosen) / 2)
    return taken


def _bucket(task: Task, source: Store, bucket: int, pieces: list[tuple[str, int, int]]) -> Arrays:
    """Collect the records of a bucket. ``pieces`` has URL, first and last record for each run."""
    buckets, options = task.plan.buckets, task.plan.storage_options
    start, stop = buckets[bucket : bucket + 2].tolist()
    taken = {name: np.empty((stop - start, *field.shape), field.dtype) for name, field in source.schema.items()}
    kinds = [np.dtype(np.int64), *(np.dtype((field.dtype, field.shape)) for field in source.schema.values())]
    size = sum(kind.itemsize for kind in kinds)
    for url, first, last in pieces:
        if first == last:
            continue
        data, at = fs.read_bytes(url, 8 * len(buckets) + first * size, (last - first) * size, options), 0
        arrays = []
        for kind in kinds:
            arrays.append(np.frombuffer(data, kind, last - first, at))
            at += (last - first) * kind.itemsize
        for name, values in zip(taken, arrays[1:], strict=True):
            taken[name][arrays[0] - start] = values
    report((stop - start) / 2)
    return taken


def _reported(chunks: Iterator[Arrays]) -> Iterator[Arrays]:
    """Yield the records in small chunks. A chunk is reported as written when the next one is requested."""
    for chunk in chunks:
        n = len(next(iter(chunk.values())))
        n_rows = rows_per_block(sum(array.nbytes for array in chunk.values()) // n)
        for first in range(0, n, n_rows):
            yield {name: array[first : first + n_rows] for name, array in chunk.items()}
            report(min(n_rows, n - first) / 2)


def _summed(rows: Rechunker, sums: list[npt.NDArray[Any]]) -> Iterator[Arrays]:
    """Yield the records, and add them to ``sums``. The sum of uint8 values is exact."""
    for records in rows.chunks(SUM_ROWS):
        values = records["data"] if "data" in records else records["pixel"]
        total = values.sum(axis=0, dtype=np.int64 if values.dtype == np.uint8 else np.float64)
        sums[:] = [sums[0] + total if sums else total]
        yield records


def staged_url(plan: ConversionPlan, index: int) -> str:
    """Return the temporary URL of a shard, in the plan's directory."""
    name = plan.shards[index].url.rpartition("/")[2]
    return fs.join(plan.folder, f"{index:05d}-{name}")


def write_arrays(url: str, arrays: list[npt.NDArray[Any]], storage_options: fs.Options) -> None:
    """Write the bytes of arrays, one after the other, to a file."""
    with fs.staged(url, storage_options) as path, path.open("wb") as file:
        for array in arrays:
            file.write(np.ascontiguousarray(array).data)  # the errors of `tofile` have no errno


def read_numbers(url: str, start: int, stop: int, storage_options: fs.Options) -> npt.NDArray[np.int64]:
    """Read the elements from ``start`` to ``stop`` of a file of int64."""
    return np.frombuffer(fs.read_bytes(url, 8 * start, 8 * (stop - start), storage_options), np.int64)
