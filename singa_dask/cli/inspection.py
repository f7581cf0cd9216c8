"""Inspection: what a store says of itself, and what its records, or a sample of them, show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from singa_dask.cli.findings import FieldStatistics, Ids, Repeats, label_findings, value_findings
from singa_dask.cli.layouts import Layout, guess_layout
from singa_dask.cli.tasks import counted
from singa_dask.data import STORES, Arrays, Store
from singa_dask.data.codecs.record import show_schema
from singa_dask.data.stores.class_names import find_label, has_several_labels, label_columns, show_names
from singa_dask.data.stores.manifest_writer import check_manifests
from singa_dask.data.types import TableColumn
from singa_dask.errors import DataError

# a sample has about so many bytes of decoded records
SAMPLE_BYTES = 1 << 26
MAX_BAD_BLOCKS = 3


class Collector(Protocol):
    """Keeps some records of a sample."""

    def add(self, arrays: Arrays) -> None:
        """Take what it wants of a block."""


@dataclass(frozen=True)
class FieldFacts:
    """A field of the records; the statistics are None if its values are no numbers to a reader, e.g. text."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    nan: int | None = None


@dataclass(frozen=True)
class ClassCount:
    """Number of records of one class; ``column`` is the name of the label, if records have several."""

    label: int
    name: str
    count: int
    column: str = ""


@dataclass(frozen=True)
class Inspection:
    """What is known of a store.

    Attributes
    ----------
    url, format, fingerprint, manifest : str
    n_files, n_records, n_blocks, n_bytes : int
    record : str
        Fields of a record.
    label : str
        Name of the column, key or array that the label is from; empty if it has none.
    block_rows : str
    n_seen : int
        Number of records that were looked at.
    fields : tuple of FieldFacts
    classes : tuple of ClassCount
        Of the labels that were looked at; empty without integer labels.
    n_labels : int
        Number of records whose labels were counted.
    class_names : tuple of str
    columns : tuple of TableColumn
    layout : Layout or None
    trouble : tuple of str
    moments : tuple of dict
        Of each column, if it has a value of its own: ``mean`` and ``std``.
    """

    url: str
    format: str
    n_files: int
    n_records: int
    n_blocks: int
    n_bytes: int
    record: str
    label: str
    block_rows: str
    fingerprint: str
    manifest: str
    n_seen: int
    fields: tuple[FieldFacts, ...]
    classes: tuple[ClassCount, ...]
    n_labels: int
    class_names: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    layout: Layout | None
    trouble: tuple[str, ...]
    moments: tuple[Mapping[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values of JSON."""
        return {
            "url": self.url,
            "format": self.format,
            "files": self.n_files,
            "record": self.record,
            **({"label": self.label} if self.label else {}),
            "records": self.n_records,
            **({"classes": show_names(self.class_names)} if self.class_names else {}),
            "blocks": self.n_blocks,
            "block_rows": self.block_rows,
            "bytes": self.n_bytes,
            "fingerprint": self.fingerprint,
            "manifest": self.manifest,
            "records_seen": self.n_seen,
            "fields": [asdict(each) for each in self.fields],
            "labels_seen": self.n_labels,
            "class_counts": [asdict(each) for each in self.classes],
            "columns": [{**asdict(each), **more} for each, more in zip(self.columns, self.moments, strict=True)],
            "layout": self.layout and asdict(self.layout),
            "trouble": list(self.trouble),
        }


def inspect_store(
    store: Store, shape: Sequence[int] = (), whole: bool = False, collector: Collector | None = None
) -> Inspection:
    """Inspect a store.

    Parameters
    ----------
    store : Store
    shape : sequence of int
        Shape of a record, where the store has its values in a row.
    whole : bool
        Look at all records, not at a sample.
    collector : Collector, optional
        Gets each block that is looked at.

    Raises
    ------
    DataError
        No block can be read.
    """
    sample = _Sample(store)
    sample.read(_chosen(store, whole), collector)
    sizes = [block.n for block in store.blocks]
    layout = guess_layout(store.schema, shape)
    return Inspection(
        store.url,
        next(name for name in STORES.names() if STORES.find(name) is type(store)),
        _n_files(store),
        store.count,
        len(sizes),
        sum(block.length for block in store.blocks),
        show_schema(store.schema),
        store.label_name,
        f"{min(sizes)} to {max(sizes)}",
        store.fingerprint,
        _manifest(store),
        sample.n,
        tuple(sample.facts(name) for name in store.schema),
        sample.classes(),
        max((sum(counts.values()) for counts in sample.labels), default=0),
        store.class_names,
        store.table_columns,
        layout,
        tuple(sample.findings(layout)),
        tuple(map(sample.moments, store.table_columns)),
    )


def _chosen(store: Store, whole: bool) -> list[int]:
    """Return the blocks to look at: all, or evenly spaced ones."""
    n_blocks = len(store.blocks)
    total = store.count * store.record_bytes
    if whole or total <= SAMPLE_BYTES:
        return list(range(n_blocks))
    n = max(1, n_blocks * SAMPLE_BYTES // total)
    return sorted(set(np.linspace(0, n_blocks - 1, n).astype(int).tolist()))


def _n_files(store: Store) -> int:
    own_files = len(store.record_files(0, store.count))
    return own_files or len({block.file for block in store.blocks})


def _manifest(store: Store) -> str:
    n_sums = sum(block.crc is not None for block in store.blocks)
    try:
        check_manifests(store)
    except DataError:
        return "does not fit the data; see data verify"
    return f"checksums of {n_sums} blocks" if n_sums else "none"


class _Sample:
    """Statistics of the blocks of a store that were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.n = 0
        label = store.schema.get("label")
        self._has_classes = label is not None and len(label.shape) < 2 and label.dtype.kind in "iu"
        # of several labels, the name of each
        self._columns = label_columns(store) if has_several_labels(store) else [""]
        self._has_classes &= label is not None and len(self._columns) == math.prod(label.shape)
        self.labels: list[Counter[int]] = [Counter() for _ in self._columns]
        counted_fields = [name for name in store.schema if not (name == "label" and self._has_classes)]
        self._statistics = {
            name: FieldStatistics(store.schema[name])
            for name in counted_fields
            if name != "line" and store.schema[name].dtype.kind in "biuf"
        }
        self.repeats = Repeats()
        self._ids = Ids({column.index: column.name for column in store.table_columns if column.field == "data"})
        self._bad: list[str] = []

    def read(self, blocks: Sequence[int], collector: Collector | None) -> None:
        """Read blocks."""
        store = self._store
        with counted("read", sum(store.blocks[block].n for block in blocks)) as shown:
            for block in blocks:
                try:
                    arrays = store.read_block(block)
                except DataError as error:
                    self._bad.append(str(error).rstrip("."))
                    if len(self._bad) == len(blocks):
                        raise
                    continue
                self._add(arrays)
                if collector is not None:
                    collector.add(arrays)
                shown.advance(store.blocks[block].n)
        if self._has_classes and store.labels_apart:
            self.labels = [Counter() for _ in self._columns]
            for block in range(len(store.blocks)):
                self._count(store.read_labels(block))

    def _add(self, arrays: Arrays) -> None:
        for name, statistics in self._statistics.items():
            statistics.add(arrays[name])
        if self._has_classes:
            self._count(arrays["label"])
        self.repeats.add(arrays)
        if "data" in arrays:
            self._ids.add(arrays["data"])
        self.n += len(next(iter(arrays.values())))

    def _count(self, labels: npt.NDArray[Any]) -> None:
        for counter, column in zip(self.labels, labels.reshape(len(labels), -1).T, strict=True):
            values, counts = np.unique(column, return_counts=True)
            counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def facts(self, name: str) -> FieldFacts:
        """Return the facts of a field."""
        field = self._store.schema[name]
        known: Mapping[str, Any] = {}
        if name in self._statistics:
            known = self._statistics[name].summary()
        elif any(self.labels) and name == "label":
            known = {"min": min(map(min, self.labels)), "max": max(map(max, self.labels))}
        return FieldFacts(name, str(field.dtype), field.shape, **known)

    def moments(self, column: TableColumn) -> Mapping[str, float]:
        """Return mean and standard deviation of a column that has a value of its own, where they are known."""
        known = self._statistics.get(column.field)
        if known is None or not known.by_feature or column.categories or not known.counts[column.index]:
            return {}
        return {"mean": float(known.mean[column.index]), "std": float(np.sqrt(known.variance[column.index]))}

    def classes(self) -> tuple[ClassCount, ...]:
        """Return the number of records of each class that was seen, or has a name."""
        found = []
        for column, counts in zip(self._columns, self.labels, strict=True):
            names = find_label(self._store, column)[1]
            for label in sorted({*counts, *range(len(names))}) if counts else ():
                name = names[label] if 0 <= label < len(names) else ""
                found.append(ClassCount(label, name, counts[label], column))
        return tuple(found)

    def findings(self, layout: Layout | None) -> list[str]:
        """Return what is likely to make trouble."""
        store = self._store
        found = [f"cannot be read: {text}" for text in self._bad[:MAX_BAD_BLOCKS]]
        if self._bad[MAX_BAD_BLOCKS:]:
            found.append(f"{len(self._bad) - MAX_BAD_BLOCKS} more blocks cannot be read")
        for column, counts in zip(self._columns, self.labels, strict=True):
            told = label_findings(counts, find_label(store, column)[1], store.count) if counts else []
            found += [f"label {column!r}: {text}" if column else text for text in told]
        for name, statistics in self._statistics.items():
            names = {column.index: column.name for column in store.table_columns if column.field == name}
            found += value_findings(name, statistics, names, layout is not None and layout.field == name)
        if like_ids := self._ids.found():
            found.append(f"data: another whole number in each record, like ids: {like_ids}. Leave them out of features")
        return found + self.repeats.findings()
