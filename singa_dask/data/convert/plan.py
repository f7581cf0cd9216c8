"""ConversionPlan: a complete description of what a conversion writes. It is the same in every process.

A plan assigns the records of the sources to files. The order of the records is stored in a file. Everything else is
computed from the arguments and the number of records.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.convert.request import ConvertRequest
from singa_dask.data.convert.source_kinds import open_source, source_files
from singa_dask.data.random import permutation
from singa_dask.data.stores.label_match import has_several_labels
from singa_dask.data.stores.shards import shard_url
from singa_dask.data.stores.store import STORES, Store
from singa_dask.errors import DataError
from singa_dask.fs.versions import versions

VERSION = 3
# file in the plan's directory with the version of each source file
SOURCES = "sources.json"
# maximum total bytes to read if shuffled shards are written directly; above this, records are first sorted into
# buckets
DIRECT_BYTES = 1 << 28
# approximate memory of a task, which reads either a run (consecutive source blocks) or a bucket. For large sources,
# runs and buckets are larger, by a factor up to MAX_RUNS. The records of one run in one bucket then have at least
# RUN_BYTES / MIN_SHARE bytes, which are read at once
RUN_BYTES = 1 << 26
MIN_SHARE, MAX_RUNS = 64, 8

Rows = npt.NDArray[np.int64]


class TargetFile(NamedTuple):
    """A file to write, with the records at positions ``start`` to ``stop`` of the order of the plan."""

    url: str
    start: int
    stop: int


@dataclass(frozen=True)
class ConversionPlan:
    """A planned conversion.

    Attributes
    ----------
    request : ConvertRequest
    storage_options : dict
    count : int
        Number of records in the sources.
    record_bytes : int
    labelled : bool
    fingerprint : str
        Fingerprint of the sources.
    class_names : tuple of str
    table_facts : mapping or None
        For sources with named columns: `TableFacts.to_dict` of the columns.
    versions : str
        Hash of the versions of all source files; see `source_versions`.
    direct_bytes, run_bytes : int
        Memory limits in bytes. The output does not depend on them.
    """

    request: ConvertRequest
    storage_options: Mapping[str, Any]
    count: int
    record_bytes: int
    labelled: bool
    fingerprint: str
    class_names: tuple[str, ...]
    table_facts: Mapping[str, Any] | None
    versions: str
    direct_bytes: int = DIRECT_BYTES
    run_bytes: int = RUN_BYTES

    @cached_property
    def digest(self) -> str:
        """Hash of everything that determines the output and the intermediate results."""
        identity = (
            VERSION,
            vars(self.request),
            self.count,
            self.fingerprint,
            self.class_names,
            *([self.table_facts] if self.table_facts else []),
            self.versions,
            self.direct_bytes,
            self.run_bytes,
        )
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=dict).encode()).hexdigest()

    @cached_property
    def parts(self) -> dict[str, int]:
        """Number of records of each part, by its URL."""
        n = min(self.count, self.request.limit or self.count)
        if not self.request.split:
            return {self.request.destination: n}
        parts, left = {}, n
        for name, share in self.request.split.items():
            parts[part_url(self.request.destination, name)] = size = min(round(share * n), left)
            left -= size
        return parts

    @cached_property
    def shards(self) -> tuple[TargetFile, ...]:
        """All files to write, part by part."""
        count, files, start = self.request.shards, [], 0
        for url, size in self.parts.items():
            if size < count:
                raise DataError(f"{url}: {size} records remain for this file, expected at least {count}.")
            for i in range(count):
                # divide as numpy.array_split does
                stop = start + size // count + (i < size % count)
                files.append(TargetFile(url if count == 1 else shard_url(url, i, count), start, stop))
                start = stop
        return tuple(files)

    @property
    def folder(self) -> str:
        """URL of the directory for results of the conversion."""
        parent, name = posixpath.split(next(iter(self.parts)))
        return fs.join(parent, f".{name}.convert")

    @property
    def needs_labels(self) -> bool:
        """Whether the order depends on the labels."""
        return bool(self.request.split) and self.labelled

    @property
    def by_buckets(self) -> bool:
        """Whether records are first sorted into buckets, from which the shards are written."""
        read = self.count * self.record_bytes * len(self.shards)
        return self.request.shuffle is not None and read > self.direct_bytes

    @cached_property
    def buckets(self) -> Rows:
        """Positions, in the order of the plan, at which buckets begin, and the end of the last bucket.

        A shard has one or more buckets.
        """
        rows = max(1, self.run_bytes // max(self.record_bytes, 1))
        starts = [np.arange(shard.start, shard.stop, rows) for shard in self.shards]
        return np.concatenate([*starts, [self.shards[-1].stop]]).astype(np.int64)

    def runs(self, starts: Rows) -> list[tuple[int, int]]:
        """Group source blocks into runs (first block, last block) of about ``run_bytes``.

        ``starts`` has the index of the first record of each block.
        """
        last = (starts[1:] - 1) * self.record_bytes // max(self.run_bytes, self.record_bytes, 1)
        cuts = [0, *(np.flatnonzero(np.diff(last)) + 1).tolist(), len(last)]
        return list(itertools.pairwise(cuts))

    def select(self, labels: npt.NDArray[np.int32] | None) -> Rows:
        """Return the indices of the records in the order in which they are written."""
        request = self.request
        rows = np.arange(self.count) if request.shuffle is None else permutation(self.count, request.shuffle, "convert")
        rows = rows[: request.limit]
        if not request.split:
            return rows
        left = permutation(len(rows), request.shuffle or 0, "split")
        if labels is not None:
            left = left[np.argsort(labels[rows][left], kind="stable")]
        parts = []
        for size in self.parts.values():
            # the records are sorted by label, so evenly spaced records have all labels in proportion
            chosen = np.arange(size) * len(left) // max(size, 1)
            parts.append(rows[np.sort(left[chosen])])
            left = np.delete(left, chosen)
        return np.concatenate(parts)

    def open_source(self) -> Store:
        """Open the sources; raise a `DataError` if they have changed since the plan was made."""
        store = open_source(self.request.kind, self.request.sources, self.storage_options, **self.request.reading)
        try:
            self.check_source(store)
        except DataError:
            store.close()
            raise
        return store

    def check_source(self, store: Store) -> None:
        """Raise a `DataError` that names the source if a source has changed since the plan was made."""
        versions_now = source_versions(self.request, self.storage_options, store)
        identity = hash_of(versions_now), store.fingerprint, store.class_names
        if identity != (self.versions, self.fingerprint, self.class_names):
            content = fs.read_bytes(fs.join(self.folder, SOURCES), storage_options=self.storage_options)
            changed = first_change(json.loads(content), versions_now) or store.url
            raise DataError(f"{changed}: the file changed during the conversion. Convert it again.")


def source_versions(request: ConvertRequest, storage_options: fs.Options, source: Store) -> dict[str, str]:
    """Return the version of each file that a conversion reads; empty if the filesystem has no versions."""
    # in a directory of images, each image is a file
    files = source.record_files(0, source.count) or source_files(request.sources, storage_options, request.kind)
    vocabulary = [request.reading["vocabulary"]] if "vocabulary" in request.reading else []
    return versions((*files, *vocabulary), storage_options)


def hash_of(versions_of_files: Mapping[str, str]) -> str:
    """Return a hash of the versions of files."""
    return hashlib.sha256(json.dumps(versions_of_files, sort_keys=True).encode()).hexdigest()


def first_change(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the first file whose version has changed, or that is in only one mapping; else empty."""
    return next((url for url in sorted({*before, *after}) if before.get(url) != after.get(url)), "")


def make_plan(
    request: ConvertRequest, storage_options: fs.Options, source: Store, versions_of_files: Mapping[str, str]
) -> ConversionPlan:
    """Plan a conversion of open sources; ``versions_of_files`` is the result of `source_versions`."""
    _check_labels(request, source)
    return ConversionPlan(
        request,
        dict(storage_options or {}),
        source.count,
        source.record_bytes,
        "label" in source.schema,
        source.fingerprint,
        source.class_names,
        source.table_facts.to_dict() if source.table_facts else None,
        hash_of(versions_of_files),
        DIRECT_BYTES,
        _run_bytes(source.count * source.record_bytes),
    )


def _check_labels(request: ConvertRequest, source: Store) -> None:
    """Raise a `DataError` if the format cannot store the targets, weights or several labels of records."""
    if "table_facts" in STORES.find(request.backend).write_options:
        return
    for field, texts in {"target": "targets", "weight": "weights"}.items():
        if field in source.schema:
            raise DataError(
                f"{request.destination}: {request.backend} cannot store {texts}, which the records of {source.url} "
                f"have. Write arrow or parquet, or leave the {field} out."
            )
    if has_several_labels(source):
        raise DataError(
            f"{request.destination}: {request.backend} stores one label for each record, but {source.url} has "
            f"several. Write "
            "arrow or parquet, or choose one label."
        )


def _run_bytes(total: int) -> int:
    """Return the size of runs and buckets, in bytes, for sources of ``total`` bytes."""
    return max(RUN_BYTES, min(math.isqrt(total * RUN_BYTES // MIN_SHARE), MAX_RUNS * RUN_BYTES))


def part_url(destination: str, name: str) -> str:
    """Return the URL of the store for one part of a split."""
    if "{split}" in destination:
        return destination.replace("{split}", name)
    stem, suffix = posixpath.splitext(destination)
    return f"{stem}-{name}{suffix}"
