"""Convert: files of other formats -> a store of ours, shuffled, split and cut into shards on the way.

A conversion is planned, cut into tasks, and run by whoever is given to run them: the bytes written depend on nothing
but the sources and the arguments. What is done is kept beside the target until all is done, so that a killed
conversion goes on, and a target is never half written.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.convert.plan import ConvertRequest, Plan, Shard, make_plan
from singa_dask.data.convert.sources import KINDS, kind_options, open_source
from singa_dask.data.convert.tasks import ORDER, POSITIONS, Task, keep_source, release_source, staged_url, write_arrays
from singa_dask.data.stores.store import STORES, Store
from singa_dask.errors import ConfigError, DataError
from singa_dask.registry import suggest

__all__ = ["Run", "backend_of", "convert", "parse_split", "run_here"]

KEYS = {"cifar": "%05d"}
# what a writer is always given
BASICS = ("url", "records", "storage_options", "class_names", "_", "options")
# files of a plan's directory: whose it is; the mean record; that all is done, and may be moved
PLAN_FILE, MEAN, DONE = "plan.json", "mean", "done"

Run = Callable[[Sequence[Task]], Iterable[int]]


def run_here(tasks: Sequence[Task]) -> Iterable[int]:
    """Do tasks one after the other in this thread."""
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
) -> dict[str, int]:
    """Write the records of some files as one store, or as one for each part of a split.

    Called again with the same arguments after it was stopped, however that was, it goes on.

    Parameters
    ----------
    kind : str
        What the sources are, one of KINDS: idx, cifar, csv, npz, image-folder, webdataset, ...
    sources, destination : URLs
        With a split, ``{split}`` in the destination stands for the part's name; without it the name is put
        before the suffix.
    to : str, optional
        A store backend; told by the destination's suffix when it is not given.
    shuffle : int, optional
        Seed of a random order; the order of the sources when it is not given.
    split : mapping of name to share, optional
        Shares of the records, stratified by label where there are labels, e.g. ``{"train": 0.8, "test": 0.2}``.
    limit : int, optional
        Most records in all.
    shards : int
        Cut each part into so many stores, ``name-00000-of-00004.suffix``, which are one by a pattern for a URL.
    mean : str, optional
        Where to write the mean record of the first part, as a store of one record without label; SINGA's
        ``image_mean.bin``, if it ends in .bin.
    verify : bool
        Read what was written, and compare.
    storage_options : mapping, optional
        For all URLs.
    reading, writing : mapping, optional
        Of the source's reader (csv: separator, has_label, shape; images: resize, channels; text: vocabulary, window;
        words: vocabulary, class_size)
        and of the store's writer (arrow, parquet: compression, block_bytes; kvfile: keys; lmdb: records_per_value;
        csv: separator).
    run : function
        Given the tasks of one step, does them in any order and yields what they return; the next step's come then.
    log : function
        Called with a text that says that a conversion goes on, and where the vocabulary is.
    before_replacing : function
        Called with the URLs that are there and will be replaced, before anything is written; it may raise.

    Returns
    -------
    dict of str to int
        Records written to each URL.

    Raises
    ------
    ConfigError
        An argument makes no sense.
    DataError
        A source cannot be read, or what was written is not what was read.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of source {kind!r}. {suggest(kind, KINDS)}")
    backend = to or backend_of(destination)
    request = ConvertRequest(
        kind,
        tuple(map(fs.absolute, sources)),
        fs.absolute(destination),
        backend,
        shuffle,
        dict(split or {}),
        limit,
        shards,
        fs.absolute(mean or ""),
        _reading(kind, reading or {}, fs.absolute(destination)),
        {**_keys(backend, KEYS.get(kind, "%08d")), **(writing or {})},
    )
    _check(request)
    session = secrets.token_hex(8)
    vocabulary = request.reading.get("vocabulary", "")
    is_new = bool(vocabulary) and not fs.exists(vocabulary, storage_options)
    try:
        keep_source(session, source := open_source(kind, request.sources, storage_options, **request.reading))
        if vocabulary:
            log(f"{vocabulary}: the vocabulary, {'made of this text' if is_new else 'as it was'}")
        plan = make_plan(request, storage_options, source)
        counts = {shard.url: shard.stop - shard.start for shard in plan.shards}
        _begin(plan, log, before_replacing)
        if not fs.exists(fs.join(plan.folder, DONE), storage_options):
            _make(plan, source, session, run, verify)
        _move(plan)
        _do(plan, "manifest", _sizes(plan.shards), session, run)
        _remove(plan)
    finally:
        release_source()
    return counts


def _check(request: ConvertRequest) -> None:
    if request.shards < 1:
        raise ConfigError(f"{request.shards} shards, expected 1 or more.")
    _check_options(request.reading, kind_options(request.kind), f"sources of kind {request.kind}")
    options = _writer_options(STORES.find(request.backend))
    _check_options(request.writing, options, f"what is written to {request.destination}")
    _check_shares(request.split)
    if request.mean:
        backend_of(request.mean)


def _reading(kind: str, options: Mapping[str, Any], destination: str) -> dict[str, Any]:
    """Return the options of the reader; a vocabulary lies beside the destination if none is named."""
    if "vocabulary" not in kind_options(kind):
        return dict(options)
    beside = fs.join(posixpath.dirname(destination.partition("{split}")[0]), "vocab.txt")
    return {**options, "vocabulary": fs.absolute(options.get("vocabulary", beside))}


# -- the plan's directory ------------------------------------------------------------------------------


def _begin(plan: Plan, log: Callable[[str], None], before_replacing: Callable[[Sequence[str]], None]) -> None:
    """Make the plan's directory; what another plan has left in its place is removed, and nothing else."""
    options, plan_file = plan.storage_options, fs.join(plan.folder, PLAN_FILE)
    is_there = fs.exists(plan.folder, options)
    left = fs.ls(plan.folder, options) if is_there else []
    if PLAN_FILE in left and json.loads(fs.read_bytes(plan_file, storage_options=options))["digest"] == plan.digest:
        log(f"{plan.folder}: a conversion that was stopped, it goes on.")
        return
    if PLAN_FILE not in left and not all(name[0] == "." for name in left):
        raise DataError(f"{plan.folder}: is in the way, no conversion has made it. Move it away.")
    # what is empty was left by a conversion that had called it before, and was stopped as it began or ended
    if left or not is_there:
        urls = filter(None, [*(shard.url for shard in plan.shards), plan.request.mean])
        there = [url for url in urls if fs.exists(url, options)]
        if there:
            before_replacing(there)
    if PLAN_FILE in left:
        log(f"{plan.folder}: a conversion of other sources, or with other arguments, was stopped here: it is dropped.")
    _remove(plan)
    fs.write_atomic(plan_file, json.dumps({"digest": plan.digest, **vars(plan.request)}, indent=1).encode(), options)


def _remove(plan: Plan) -> None:
    """Remove the plan's directory, last what says whose it is."""
    if fs.exists(plan.folder, plan.storage_options):
        names = fs.ls(plan.folder, plan.storage_options)
        for name in sorted(names, key=lambda name: (name == PLAN_FILE, name == DONE)):
            fs.remove_tree(fs.join(plan.folder, name), plan.storage_options)
        fs.remove_tree(plan.folder, plan.storage_options)


def _make(plan: Plan, source: Store, session: str, run: Run, verify: bool) -> None:
    """Do the tasks that are not done, step by step, until all is there to be published."""
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
    fs.write_atomic(fs.join(plan.folder, DONE), b"", plan.storage_options)


def _sizes(shards: Sequence[Shard]) -> list[int]:
    return [shard.stop - shard.start for shard in shards]


def _do(plan: Plan, step: str, sizes: Sequence[int], session: str, run: Run) -> None:
    """Do the tasks of a step that are not done, each of so many records."""
    there = set(fs.ls(plan.folder, plan.storage_options))
    tasks = [Task(plan, step, i, session, n_records) for i, n_records in enumerate(sizes)]
    for _ in run([task for task in tasks if task.result not in there]):
        pass


def _write_order(plan: Plan, n_runs: int) -> None:
    options = plan.storage_options
    labels: npt.NDArray[np.int32] | None = None
    if plan.needs_labels:
        names = [f"labels-{i:05d}" for i in range(n_runs)]
        parts = [fs.read_bytes(fs.join(plan.folder, name), storage_options=options) for name in names]
        labels = np.frombuffer(b"".join(parts), np.int32)
    order = plan.select(labels)
    if plan.by_buckets:
        places = np.full(plan.count, -1, np.int64)
        places[order] = np.arange(len(order))
        write_arrays(fs.join(plan.folder, POSITIONS), [places], options)
    write_arrays(fs.join(plan.folder, ORDER), [order], options)


def _write_mean(plan: Plan, source: Store) -> None:
    """Write the mean record of the first part, from the sums of its shards."""
    options = plan.storage_options
    field = source.schema.get("data") or source.schema["pixel"]
    total: npt.NDArray[Any] = np.zeros(field.shape, np.int64 if field.dtype == np.uint8 else np.float64)
    for i in range(plan.request.shards):
        data = fs.read_bytes(fs.join(plan.folder, f"shard-{i:05d}"), storage_options=options)
        total += np.frombuffer(data, total.dtype).reshape(total.shape)
    mean = (total / next(iter(plan.parts.values()))).astype(np.float32)
    backend = backend_of(plan.request.mean)
    STORES.find(backend).write(fs.join(plan.folder, MEAN), {"data": mean[None]}, options, **_keys(backend, "mean"))


def _move(plan: Plan) -> None:
    """Move what is done to its place; what is not here was moved before."""
    options = plan.storage_options
    moves = [(staged_url(plan, i), shard.url) for i, shard in enumerate(plan.shards)]
    moves += [(fs.join(plan.folder, MEAN), plan.request.mean)] if plan.request.mean else []
    for place, url in moves:
        if fs.exists(place, options):
            fs.move(place, url, options)


def parse_split(text: str) -> dict[str, float]:
    """Read ``"train=0.8,test=0.2"``.

    Raises
    ------
    ConfigError
        It does not have that form, or the shares are not positive or make more than 1.
    """
    try:
        shares = {name.strip(): float(share) for name, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ConfigError(f"split {text!r}: expected name=share,..., e.g. train=0.8,test=0.2.") from None
    _check_shares(shares, text)
    return shares


def _check_shares(shares: Mapping[str, float], text: str = "") -> None:
    if not all(share > 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise ConfigError(f"split {text or dict(shares)!r}: shares must be above 0 and make at most 1.")


def _check_options(options: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in options:
        if name not in known:
            raise ConfigError(f"{name!r} says nothing about {what}. {suggest(name, known)}")


def _writer_options(target: type[Store]) -> list[str]:
    return [name for name in inspect.signature(target.write).parameters if name not in BASICS]


def _keys(backend: str, pattern: str) -> dict[str, str]:
    """Return the option that names records, where the format gives them names."""
    return {"keys": pattern} if "keys" in _writer_options(STORES.find(backend)) else {}


def backend_of(destination: str) -> str:
    """Return the format to write, told by the suffix of a URL.

    Raises
    ------
    ConfigError
        It tells none.
    """
    for name in STORES.names():
        if destination.lower().endswith(STORES.find(name).suffixes):
            return name
    known = [name for name in STORES.names() if "write" in vars(STORES.find(name))]
    raise ConfigError(
        f"{destination}: cannot tell the format to write by its suffix. Say which. Known: {', '.join(known)}."
    )
