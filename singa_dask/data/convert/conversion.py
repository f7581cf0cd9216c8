"""convert: converts files of other formats to stores; optionally shuffles, splits and shards the records.

A conversion is planned, divided into tasks, and executed by a function ``run``, e.g. on a cluster. The bytes written
depend only on the sources and the arguments. Results are kept in a directory next to the target until all are done, so
that a killed conversion can be resumed, and a target is never incomplete.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.convert.plan import (
    KEYS,
    SOURCES,
    ConversionPlan,
    ConvertRequest,
    TargetFile,
    backend_of,
    check_request,
    first_change,
    key_options,
    kinds,
    make_plan,
    open_source,
    reader_options,
    source_versions,
)
from singa_dask.data.stores.class_names import check_label, write_options
from singa_dask.data.stores.opening import forget_manifest, open_store, write_manifest
from singa_dask.data.stores.store import STORES, Rechunker, Store, rows_per_block
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.outputs import check_output
from singa_dask.registry import suggest

# Tasks of a conversion: idempotent units of work that any process can execute, in any order within a step.
#
# A task reads the sources and the results of earlier steps in the plan's directory, and writes its own result there
# atomically. A resumed conversion executes the tasks whose results are missing.


# files: source index of each output record, and output position of each source record, -1 if not written
ORDER, POSITIONS = "order", "places"
# floats are summed in chunks of so many records, so that a mean does not depend on the blocks of the source
SUM_ROWS = 4096


@dataclass(frozen=True)
class Task:
    """A unit of work of a conversion; call it to execute it.

    Attributes
    ----------
    plan : ConversionPlan
    step : str
        "labels": gather the labels of a run of source blocks; "scatter": sort the records of a run into buckets;
        "shard": write a shard; "verify": read a shard and compare it; "manifest": write the manifest of a shard.
    index : int
        Index of the run or the shard.
    session : str
        Identifies a call of `convert`. Tasks of a session share open sources.
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
        """Name of the result file, which exists if the task is done."""
        return f"{self.step}-{self.index:05d}"

    def __call__(self) -> int:
        """Execute the task; returns its index."""
        STEPS[self.step](self)
        _, source = _KEPT.get(threading.get_ident(), ("", None))
        if source is not None:
            source.check_unchanged()
        return self.index

    def source(self) -> Store:
        """Return the sources, opened once per session and thread."""
        kept = _KEPT.get(threading.get_ident())
        if kept is not None and kept[0] == self.session:
            return kept[1]
        source = self.plan.open_source()
        keep_source(self.session, source)
        return source

    def url(self, name: str = "") -> str:
        """Return the URL of a file in the plan's directory; the result by default."""
        return fs.join(self.plan.folder, name or self.result)


# -- open sources, by thread: not all stores can be read by several threads ---------------------------

_HERE = threading.local()
# session and sources of each thread
_KEPT: dict[int, tuple[str, Store]] = {}


def keep_source(session: str, source: Store) -> None:
    """Let the tasks of a session in this thread use an open store; closes that of another session."""
    release_source()
    _KEPT[threading.get_ident()] = session, source


def release_source() -> None:
    """Close the sources of this thread."""
    _, source = _KEPT.pop(threading.get_ident(), ("", None))
    if source is not None:
        source.close()


def release_session(session: str) -> None:
    """Close the sources of a session in all threads of this process. None of its tasks may be running."""
    for thread, (kept, source) in list(_KEPT.items()):
        if kept == session:
            del _KEPT[thread]
            source.close()


@contextlib.contextmanager
def reporting(on_records: Callable[[float], None]) -> Iterator[None]:
    """Call ``on_records`` with progress in records of tasks in this thread; a record that is only read counts half."""
    _HERE.on_records = on_records
    try:
        yield
    finally:
        del _HERE.on_records


def report(n: float) -> None:
    """Report that ``n`` records more are done; nothing unless this thread is `reporting`."""
    on_records = getattr(_HERE, "on_records", None)
    if on_records is not None:
        on_records(n)


# -- steps ---------------------------------------------------------------------------------------------


def gather_labels(task: Task) -> None:
    """Write the labels of a run."""
    source = task.source()
    first, last = task.plan.runs(source.starts)[task.index]
    labels = []
    for block in range(first, last):
        found = source.read_labels(block)
        # of several labels the first
        labels.append(np.ascontiguousarray(found[:, 0]) if found.ndim > 1 else found)
        report(len(labels[-1]))
    write_arrays(task.url(), labels, task.plan.storage_options)


def scatter(task: Task) -> None:
    """Write the records of a run by bucket: starts of the buckets; for each its positions, then each field."""
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
    """Write a shard, and the sum of its records if it is needed for the mean."""
    plan = task.plan
    sums: list[npt.NDArray[Any]] = []
    records = _reported(_records(task))
    if plan.request.mean and task.index < plan.request.shards:
        records = _summed(Rechunker(plan.shards[task.index].url, records), sums)
    target = STORES.find(plan.request.backend)
    options = {**plan.request.writing, **write_options(target, plan.class_names, plan.table_facts)}
    target.write(staged_url(plan, task.index), records, plan.storage_options, **options)
    # written last: a store can have several files
    write_arrays(task.url(), sums, plan.storage_options)


def verify(task: Task) -> None:
    """Compare a shard with its sources, block by block. Text formats have no shapes and no uint8."""
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
        # so that a resumed conversion writes the shard again
        fs.remove_tree(task.url(f"shard-{task.index:05d}"), plan.storage_options)
        raise


def _as_written(plan: ConversionPlan) -> dict[str, Any]:
    """Return the options to open a shard. Text files do not contain whether lines begin with a label."""
    if plan.request.backend not in ("csv", "textfile"):
        return {}
    return {"has_label": plan.labelled, "separator": plan.request.writing.get("separator", ","), "header": False}


def _compare(found: Arrays, expected: Rechunker, n: int, where: str) -> None:
    written = expected.take(n) or {}
    values = next(array for name, array in written.items() if name != "label")
    for name, array in found.items():
        # a format can have another name for values
        other = written.get(name, values)
        here, there = array.reshape(n, -1), other.reshape(n, -1)
        wrong = ((here != there) & ~(np.isnan(here) & np.isnan(there))).any(axis=1)
        if wrong.any():
            raise DataError(f"{where}, record {expected.taken - n + int(wrong.argmax())}: {name} differs.")


def make_manifest(task: Task) -> None:
    """Write the manifest of a shard at its final URL."""
    plan = task.plan
    url = plan.shards[task.index].url
    # one of other records, which were there before, has class names of these
    forget_manifest(url, plan.storage_options)
    write_manifest(url, plan.request.backend, plan.storage_options, plan.class_names, **_as_written(plan))


STEPS = {"labels": gather_labels, "manifest": make_manifest, "scatter": scatter, "shard": write_shard, "verify": verify}


# -- records of a shard ----------------------------------------------------------------------------------


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
    """Collect the records of a bucket; ``pieces`` are the URL of each run, and the first and last of its records."""
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
    """Yield the records in small chunks, and report each chunk after it was written."""
    for chunk in chunks:
        n = len(next(iter(chunk.values())))
        n_rows = rows_per_block(sum(array.nbytes for array in chunk.values()) // n)
        for first in range(0, n, n_rows):
            yield {name: array[first : first + n_rows] for name, array in chunk.items()}
            report(min(n_rows, n - first) / 2)


def _summed(rows: Rechunker, sums: list[npt.NDArray[Any]]) -> Iterator[Arrays]:
    """Yield the records, and accumulate their sum, which is exact for uint8."""
    for records in rows.chunks(SUM_ROWS):
        values = records["data"] if "data" in records else records["pixel"]
        total = values.sum(axis=0, dtype=np.int64 if values.dtype == np.uint8 else np.float64)
        sums[:] = [sums[0] + total if sums else total]
        yield records


# -- files of the plan's directory -------------------------------------------------------------------------


def staged_url(plan: ConversionPlan, index: int) -> str:
    """Return the temporary URL of a shard, in the plan's directory."""
    name = plan.shards[index].url.rpartition("/")[2]
    return fs.join(plan.folder, f"{index:05d}-{name}")


def write_arrays(url: str, arrays: list[npt.NDArray[Any]], storage_options: fs.Options) -> None:
    """Write the concatenated bytes of arrays."""
    with fs.staged(url, storage_options) as path, path.open("wb") as file:
        for array in arrays:
            np.ascontiguousarray(array).tofile(file)


def read_numbers(url: str, start: int, stop: int, storage_options: fs.Options) -> npt.NDArray[np.int64]:
    """Read elements ``start`` to ``stop`` of a file of int64."""
    return np.frombuffer(fs.read_bytes(url, 8 * start, 8 * (stop - start), storage_options), np.int64)


# files of a plan's directory: identity of the plan; mean record; marker that all is done and can be moved
PLAN_FILE, MEAN, DONE = "plan.json", "mean", "done"

Run = Callable[[Sequence[Task]], Iterable[int]]


def run_here(tasks: Sequence[Task]) -> Iterable[int]:
    """Execute tasks sequentially in this thread."""
    return (task() for task in tasks)


def convert(
    kind: str,
    sources: Sequence[str],
    destination: str,
    *,
    to: str | None = None,
    shuffle: int | None = None,
    split: Mapping[str, float] | None = None,
    limit: int | None = None,
    shards: int = 1,
    mean: str | None = None,
    verify: bool = False,
    storage_options: fs.Options = None,
    reading: Mapping[str, Any] | None = None,
    writing: Mapping[str, Any] | None = None,
    run: Run = run_here,
    log: Callable[[str], None] = lambda text: None,
    before_replacing: Callable[[Sequence[str]], None] = lambda urls: None,
    everywhere: Callable[[Callable[[], None]], None] = lambda call: call(),
) -> dict[str, int]:
    """Write the records of some files as one store, or as one store per part of a split.

    If it was interrupted or killed, a call with the same arguments resumes it.

    Parameters
    ----------
    kind : str
        Format of the sources, one of `sources.kinds`: idx, cifar, csv, npz, image-folder, ...
    sources, destination : URLs
        With a split, ``{split}`` in the destination is replaced by the name of the part; without ``{split}``, the
        name is inserted before the suffix.
    to : str, optional
        Backend of the store; detected by the suffix of the destination if not given.
    shuffle : int, optional
        Seed of a random order; by default records keep the order of the sources.
    split : mapping of name to share, optional
        Shares of the records, stratified by label if there are labels, by the first of several, e.g.
        ``{"train": 0.8, "test": 0.2}``.
    limit : int, optional
        Maximum number of records.
    shards : int
        Number of stores per part, ``name-00000-of-00004.suffix``, to be opened as one by a pattern as URL.
    mean : str, optional
        URL of the mean record of the first part, written as a store of one record without label; with the suffix
        .bin it is SINGA's ``image_mean.bin``.
    verify : bool
        Whether to read the written records and compare them.
    storage_options : mapping, optional
        For all URLs.
    reading, writing : mapping, optional
        Options of the source's reader (csv: separator, has_label, shape; images: resize, channels; text: vocabulary,
        window; words: vocabulary, class_size) and of the store's writer (arrow, parquet: compression, block_bytes;
        kvfile: keys; lmdb: records_per_value; csv: separator).
    run : function
        Executes the tasks of one step in any order, and yields their results. Called once per step.
    log : function
        Called with messages, e.g. that a conversion is resumed.
    before_replacing : function
        Called with the existing URLs that will be replaced, before anything is written. May raise to stop.
    everywhere : function
        Calls a function without arguments in each process that executes tasks; at the end, to close the sources there.

    Returns
    -------
    dict of str to int
        Number of records written to each URL.

    Raises
    ------
    ConfigError
        An argument is invalid.
    DataError
        A source cannot be read, or the verification failed.
    """
    if kind not in kinds():
        raise ConfigError(f"unknown kind of source {kind!r}. {suggest(kind, kinds())}")
    backend = to or backend_of(destination)
    request = ConvertRequest(
        kind=kind,
        sources=tuple(map(fs.absolute, sources)),
        destination=fs.absolute(destination),
        backend=backend,
        shuffle=shuffle,
        split=dict(split or {}),
        limit=limit,
        shards=shards,
        mean=fs.absolute(mean or ""),
        reading=reader_options(kind, reading or {}, fs.absolute(destination)),
        writing={**key_options(backend, KEYS.get(kind, "%08d")), **(writing or {})},
    )
    check_request(request)
    session = secrets.token_hex(8)
    try:
        keep_source(session, source := _open_source(request, storage_options, log))
        check_label(source, request.reading.get("label", ""))
        versions = source_versions(request, storage_options, source)
        plan = make_plan(request, storage_options, source, versions)
        counts = {shard.url: shard.stop - shard.start for shard in plan.shards}
        _begin(plan, versions, log, before_replacing)
        if not fs.exists(fs.join(plan.folder, DONE), storage_options):
            _make(plan, source, session, run, verify)
        _move(plan)
        _do(plan, "manifest", _sizes(plan.shards), session, run)
        _remove(plan)
        everywhere(functools.partial(release_session, session))
    finally:
        release_source()
    return counts


def _open_source(request: ConvertRequest, storage_options: fs.Options, log: Callable[[str], None]) -> Store:
    """Open the sources. Logs what is left out, and the vocabulary, which this creates if it does not exist."""
    vocabulary = request.reading.get("vocabulary", "")
    is_new = bool(vocabulary) and not fs.exists(vocabulary, storage_options)
    source = open_source(request.kind, request.sources, storage_options, **request.reading)
    if left_out := source.describe_left_out():
        log(left_out)
    if vocabulary:
        log(f"{vocabulary}: the vocabulary, {'created from this text' if is_new else 'unchanged'}")
    return source


# -- the plan's directory ------------------------------------------------------------------------------


def _begin(
    plan: ConversionPlan,
    versions: Mapping[str, str],
    log: Callable[[str], None],
    before_replacing: Callable[[Sequence[str]], None],
) -> None:
    """Create the plan's directory, or resume in it. Only a directory left by another plan is replaced."""
    options, plan_file = plan.storage_options, fs.join(plan.folder, PLAN_FILE)
    is_there = fs.exists(plan.folder, options)
    left = fs.ls(plan.folder, options) if is_there else []
    if PLAN_FILE in left and json.loads(fs.read_bytes(plan_file, storage_options=options))["digest"] == plan.digest:
        log(f"{plan.folder}: resuming a conversion that was stopped.")
        if SOURCES not in left:
            _write_sources(plan, versions)
        return
    if PLAN_FILE not in left and not all(name[0] == "." for name in left):
        raise DataError(f"{plan.folder}: exists, but was not made by a conversion. Move it away.")
    # an empty directory is from a conversion that already called this, and was killed at its beginning or end
    if left or not is_there:
        urls = [*filter(None, [*(shard.url for shard in plan.shards), plan.request.mean])]
        for url in urls:
            check_output(url, versions, overwrite=True, by="--overwrite")
        there = [url for url in urls if fs.exists(url, options)]
        if there:
            before_replacing(there)
    if PLAN_FILE in left:
        changed = _changed_source(plan, versions) if SOURCES in left else ""
        what = f", as {changed} has changed" if changed else " of other sources or with other arguments"
        log(f"{plan.folder}: removing an unfinished conversion{what}.")
    _remove(plan)
    fs.write_atomic(plan_file, json.dumps({"digest": plan.digest, **vars(plan.request)}, indent=1), options)
    _write_sources(plan, versions)


def _write_sources(plan: ConversionPlan, versions: Mapping[str, str]) -> None:
    fs.write_atomic(fs.join(plan.folder, SOURCES), json.dumps(versions, indent=0), plan.storage_options)


def _changed_source(plan: ConversionPlan, versions: Mapping[str, str]) -> str:
    """Return a source that has changed since an unfinished conversion of the same files; empty if there is none."""
    before = json.loads(fs.read_bytes(fs.join(plan.folder, SOURCES), storage_options=plan.storage_options))
    return first_change(before, versions) if before.keys() == versions.keys() else ""


def _remove(plan: ConversionPlan) -> None:
    """Remove the plan's directory; the file that identifies the plan is removed last."""
    if fs.exists(plan.folder, plan.storage_options):
        names = fs.ls(plan.folder, plan.storage_options)
        for name in sorted(names, key=lambda name: (name == PLAN_FILE, name == DONE)):
            fs.remove_tree(fs.join(plan.folder, name), plan.storage_options)
        fs.remove_tree(plan.folder, plan.storage_options)


def _make(plan: ConversionPlan, source: Store, session: str, run: Run, verify: bool) -> None:
    """Execute the remaining tasks, step by step."""
    runs = [int(source.starts[last] - source.starts[first]) for first, last in plan.runs(source.starts)]
    if not fs.exists(fs.join(plan.folder, ORDER), plan.storage_options):
        if plan.needs_labels:
            _do(plan, "labels", runs, session, run)
        _write_order(plan, len(runs))
    if plan.by_buckets:
        _do(plan, "scatter", runs, session, run)
    _do(plan, "shard", _sizes(plan.shards), session, run)
    if verify:
        _do(plan, "verify", _sizes(plan.shards), session, run)
    if plan.request.mean:
        _write_mean(plan, source)
    plan.check_source(source)
    fs.write_atomic(fs.join(plan.folder, DONE), b"", plan.storage_options)


def _sizes(shards: Sequence[TargetFile]) -> list[int]:
    return [shard.stop - shard.start for shard in shards]


def _do(plan: ConversionPlan, step: str, sizes: Sequence[int], session: str, run: Run) -> None:
    """Execute the remaining tasks of a step; ``sizes`` are the records of each task."""
    there = set(fs.ls(plan.folder, plan.storage_options))
    tasks = [Task(plan, step, i, session, n_records) for i, n_records in enumerate(sizes)]
    for _ in run([task for task in tasks if task.result not in there]):
        pass


def _write_order(plan: ConversionPlan, n_runs: int) -> None:
    options = plan.storage_options
    labels: npt.NDArray[np.int32] | None = None
    if plan.needs_labels:
        names = [f"labels-{i:05d}" for i in range(n_runs)]
        parts = [fs.read_bytes(fs.join(plan.folder, name), storage_options=options) for name in names]
        labels = np.frombuffer(b"".join(parts), np.int32)
    order = plan.select(labels)
    if plan.by_buckets:
        positions = np.full(plan.count, -1, np.int64)
        positions[order] = np.arange(len(order))
        write_arrays(fs.join(plan.folder, POSITIONS), [positions], options)
    write_arrays(fs.join(plan.folder, ORDER), [order], options)


def _write_mean(plan: ConversionPlan, source: Store) -> None:
    """Write the mean record of the first part, from the sums of its shards."""
    options = plan.storage_options
    field = source.schema.get("data") or source.schema["pixel"]
    total: npt.NDArray[Any] = np.zeros(field.shape, np.int64 if field.dtype == np.uint8 else np.float64)
    for i in range(plan.request.shards):
        data = fs.read_bytes(fs.join(plan.folder, f"shard-{i:05d}"), storage_options=options)
        total += np.frombuffer(data, total.dtype).reshape(total.shape)
    mean = (total / next(iter(plan.parts.values()))).astype(np.float32)
    backend = backend_of(plan.request.mean)
    STORES.find(backend).write(
        fs.join(plan.folder, MEAN), {"data": mean[None]}, options, **key_options(backend, "mean")
    )


def _move(plan: ConversionPlan) -> None:
    """Move the results to their URLs. Missing ones were moved before."""
    options = plan.storage_options
    moves = [(staged_url(plan, i), shard.url) for i, shard in enumerate(plan.shards)]
    moves += [(fs.join(plan.folder, MEAN), plan.request.mean)] if plan.request.mean else []
    for staged, url in moves:
        if fs.exists(staged, options):
            fs.move(staged, url, options)
