"""convert: convert files of other formats to stores, and shuffle, split or shard their records.

A conversion is planned and divided into tasks. A function ``run`` executes the tasks, e.g. on a cluster. The written
bytes depend only on the sources and the arguments. Until all tasks are done, results stay in a directory next to the
target, the plan's directory. So a killed conversion can be resumed, and a target is never incomplete.
"""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.convert.plan import (
    SOURCES,
    ConversionPlan,
    TargetFile,
    first_change,
    make_plan,
    part_url,
    source_versions,
)
from singa_dask.data.convert.request import ConvertRequest, backend_of, check_request, key_options
from singa_dask.data.convert.source_kinds import open_source
from singa_dask.data.convert.tasks import (
    ORDER,
    POSITIONS,
    Task,
    keep_source,
    release_session,
    release_source,
    staged_url,
    write_arrays,
)
from singa_dask.data.stores.label_match import check_label
from singa_dask.data.stores.store import STORES, Store
from singa_dask.errors import DataError
from singa_dask.fs.outputs import check_folder, check_output

# files in the plan's directory: the hash that identifies the plan; the mean record; a mark that the output is
# complete
PLAN_FILE, MEAN, DONE = "plan.json", "mean", "done"

Run = Callable[[Sequence[Task]], Iterable[int]]


def run_here(tasks: Sequence[Task]) -> Iterable[int]:
    """Execute tasks sequentially in this thread."""
    return (task() for task in tasks)


def convert(
    request: ConvertRequest,
    *,
    verify: bool = False,
    storage_options: fs.Options = None,
    run: Run = run_here,
    log: Callable[[str], None] = lambda text: None,
    before_replacing: Callable[[Sequence[str]], None] = lambda urls: None,
    everywhere: Callable[[Callable[[], None]], None] = lambda call: call(),
) -> dict[str, int]:
    """Write the records of some files as one store, or as one store for each part of a split.

    To resume a conversion that was interrupted or killed, call the function with the same arguments.

    Parameters
    ----------
    request : ConvertRequest
    verify : bool
        Whether to read the written records and compare them with the sources.
    storage_options : mapping, optional
        Options of the filesystems of all URLs.
    run : function
        Function that is called once per step: it executes the tasks of the step in any order, and yields their
        results.
    log : function
        Function that is called with each message.
    before_replacing : function
        Function that is called with the existing URLs that will be replaced, before anything is written. To stop the
        conversion, it may raise an error.
    everywhere : function
        Function that calls another function, without arguments, in each process that executes tasks. At the end of
        the conversion, the sources are closed in this way.

    Returns
    -------
    dict of str to int
        Number of records written to each URL.

    Raises
    ------
    ConfigError
        The request is invalid.
    DataError
        A source cannot be read, or the verification failed.
    """
    # check the directories now, because a vocabulary next to the destination is written before the plan is known
    folders = [part_url(request.destination, part) for part in request.split] or [request.destination]
    folders += [request.mean] if request.mean else []
    request = request.resolved()
    check_request(request)
    for url in folders:
        check_folder(url)
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
    """Open the sources, and log their warnings.

    A missing vocabulary is created, which is logged, too.
    """
    vocabulary = request.reading.get("vocabulary", "")
    is_new = bool(vocabulary) and not fs.exists(vocabulary, storage_options)
    source = open_source(request.kind, request.sources, storage_options, **request.reading)
    for text in source.warnings():
        log(text)
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
    """Create the plan's directory, or resume a conversion in it.

    If the directory belongs to another plan, it is replaced. A directory that no conversion has made is an error.
    """
    options, plan_file = plan.storage_options, fs.join(plan.folder, PLAN_FILE)
    is_there = fs.exists(plan.folder, options)
    left = fs.ls(plan.folder, options) if is_there else []
    if PLAN_FILE in left and json.loads(fs.read_bytes(plan_file, storage_options=options))["digest"] == plan.digest:
        log(f"{plan.folder}: resuming a conversion that was stopped.")
        if SOURCES not in left:
            _write_sources(plan, versions)
        return
    if PLAN_FILE not in left and not all(name[0] == "." for name in left):
        raise DataError(f"{plan.folder}: the folder exists, but was not made by a conversion. Move it away.")
    # if a conversion was killed just after `before_replacing`, the directory is empty
    if left or not is_there:
        urls = [*filter(None, [*(shard.url for shard in plan.shards), plan.request.mean])]
        for url in urls:
            check_output(
                url, versions, overwrite=True, by="--overwrite", may_be_directory=True, storage_options=options
            )
        there = [url for url in urls if fs.exists(url, options)]
        if there:
            before_replacing(there)
    if PLAN_FILE in left:
        changed = _changed_source(plan, versions) if SOURCES in left else ""
        what = f", as {changed} has changed" if changed else " with other sources or arguments"
        log(f"{plan.folder}: removing an unfinished conversion{what}.")
    _remove(plan)
    fs.write_atomic(plan_file, json.dumps({"digest": plan.digest, **vars(plan.request)}, indent=1), options)
    _write_sources(plan, versions)


def _write_sources(plan: ConversionPlan, versions: Mapping[str, str]) -> None:
    fs.write_atomic(fs.join(plan.folder, SOURCES), json.dumps(versions, indent=0), plan.storage_options)


def _changed_source(plan: ConversionPlan, versions: Mapping[str, str]) -> str:
    """Return the URL of a source that has changed since an earlier, unfinished conversion; else empty."""
    before = json.loads(fs.read_bytes(fs.join(plan.folder, SOURCES), storage_options=plan.storage_options))
    return first_change(before, versions) if before.keys() == versions.keys() else ""


def _remove(plan: ConversionPlan) -> None:
    """Remove the plan's directory. The file that identifies the plan is removed last."""
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
    """Execute the remaining tasks of a step; ``sizes`` has the number of records of each task."""
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
    """Write the mean record of the first part of the split, computed from the sums of the part's shards."""
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
    """Move the results to their URLs. Missing results have already been moved."""
    options = plan.storage_options
    moves = [(staged_url(plan, i), shard.url) for i, shard in enumerate(plan.shards)]
    moves += [(fs.join(plan.folder, MEAN), plan.request.mean)] if plan.request.mean else []
    for staged, url in moves:
        if fs.exists(staged, options):
            fs.move(staged, url, options)
