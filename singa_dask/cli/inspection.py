"""Collect metadata of a store, and statistics and likely problems of its records."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.cli.picture_layout import PictureLayout, guess_layout
from singa_dask.cli.picture_sheet import Pictures
from singa_dask.cli.tasks import RecordCounter
from singa_dask.data.codecs.record_schema import show_schema
from singa_dask.data.codecs.tokens import MIN_WORDS, TextMeasure
from singa_dask.data.stores import STORES, Store
from singa_dask.data.stores.label_match import find_label, has_several_labels, label_columns
from singa_dask.data.stores.manifest_writer import check_manifests
from singa_dask.data.stores.tables.part_store import PartStore
from singa_dask.data.types import Arrays, TableColumn
from singa_dask.errors import DataError
from singa_dask.shown import plural
from singa_dask.survey.numbers import say_forms
from singa_dask.survey.statistics import FieldStatistics, Ids, Repeats, label_findings, value_findings
from singa_dask.wording import listed

# bytes of decoded records in a sample
SAMPLE_BYTES = 1 << 26
MAX_BAD_BLOCKS = 3


def inspect_store(
    store: Store, shape: Sequence[int] = (), whole: bool = False, pictures: Pictures | None = None
) -> dict[str, Any]:
    """Return a description of a store that can be written as JSON.

    Parameters
    ----------
    shape : sequence of int
        Shape of a record, if the store contains its values as a row.
    whole : bool
        Whether to read all records instead of a sample.
    pictures : Pictures, optional
        Object that collects pictures from each block that is read.

    Returns
    -------
    dict
        ``url``, ``format``, ``files``, ``record`` (the fields), ``records``, ``classes`` (their names, if any),
        ``blocks``, ``block_rows``, ``bytes``, ``fingerprint``, ``manifest``; ``records_seen`` and ``labels_seen``:
        numbers of records read, and of labels counted; ``fields`` with their ranges; ``class_counts``; ``columns`` with
        mean and deviation; ``texts``: words of text columns; ``layout`` of pictures; ``trouble``: likely problems.

    Raises
    ------
    DataError
        No block can be read.
    """
    sample = _Sample(store)
    sample.read(chosen := _chosen(store, whole), pictures)
    texts, unread = _strings(store, chosen)
    sizes = [block.n for block in store.blocks]
    has_texts = any(column.kind == "text" for column in store.table_columns)
    layout = None if has_texts else guess_layout(store.schema, shape)
    return {
        "url": store.url,
        "format": STORES.names_of(type(store))[0],
        "files": _n_files(store),
        "record": show_schema(store.schema),
        **({"label": store.label_name} if store.label_name else {}),
        "records": store.count,
        **({"classes": listed(store.class_names)} if store.class_names else {}),
        "blocks": len(sizes),
        "block_rows": f"{min(sizes)} to {max(sizes)}",
        "bytes": sum(block.length for block in store.blocks),
        "fingerprint": store.fingerprint,
        "manifest": _manifest(store),
        "records_seen": sample.n,
        "fields": [sample.field(name) for name in store.schema],
        "labels_seen": max((sum(counts.values()) for counts in sample.labels), default=0),
        "class_counts": sample.classes(),
        "columns": list(map(sample.column, store.table_columns)),
        "texts": texts,
        "layout": layout and asdict(layout),
        "trouble": [*sample.findings(layout), *unread],
    }


def _chosen(store: Store, whole: bool) -> list[int]:
    """Return the indices of the blocks to read: all blocks, or some that are evenly spaced."""
    n_blocks = len(store.blocks)
    total = store.count * store.record_bytes
    if whole or total <= SAMPLE_BYTES:
        return list(range(n_blocks))
    n = max(1, n_blocks * SAMPLE_BYTES // total)
    return sorted(set(np.linspace(0, n_blocks - 1, n).astype(int).tolist()))


def _strings(store: Store, blocks: Sequence[int]) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Read the columns of strings of some blocks.

    Returns
    -------
    texts : dict
        The word statistics of each text column, whether features use it or not.
    unread : list of str
        Messages about unused columns with numbers written as text.
    """
    if not isinstance(store, PartStore):
        return {}, []
    strings = [each for each in store.table_columns if each.kind in ("string", "text") and each.name]
    measured = [each.name for each in strings if each.field in ("", "data") and not each.categories]
    unread = {each.name: list[pa.Array]() for each in strings if each.kind == "string" and not each.field}
    names = list(dict.fromkeys([*measured, *unread]))

    def read() -> Iterator[dict[str, pa.Array]]:
        for block in blocks if names else ():
            found = store.read_texts(block, names)
            for name, values in unread.items():
                values.append(found[name])
            yield {name: found[name] for name in measured}

    # unreadable blocks are reported by the check of the data
    with contextlib.suppress(DataError):
        texts = TextMeasure.of_columns(read())
        forms = (say_forms(name, pa.concat_arrays(values)) for name, values in unread.items() if values)
        measures = {name: asdict(each) for name, each in texts.items() if each.median >= MIN_WORDS}
        return measures, list(filter(None, forms))
    return {}, []


def _n_files(store: Store) -> int:
    own_files = len(store.record_files(0, store.count))
    return own_files or len({block.file for block in store.blocks})


def _manifest(store: Store) -> str:
    n_sums = sum(block.crc is not None for block in store.blocks)
    try:
        check_manifests(store)
    except DataError:
        return "does not fit the data; see data verify"
    return f"checksums of {plural(n_sums, 'block')}" if n_sums else "none"


class _Sample:
    """Statistics of the blocks of a store that were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.n = 0
        label = store.schema.get("label")
        self._has_classes = label is not None and len(label.shape) < 2 and label.dtype.kind in "iu"
        # one name for each of several labels
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

    def read(self, blocks: Sequence[int], pictures: Pictures | None) -> None:
        """Read blocks, and add their records to the statistics."""
        store = self._store
        with RecordCounter("read", sum(store.blocks[block].n for block in blocks)) as shown:
            for block in blocks:
                try:
                    arrays = store.read_block(block)
                except DataError as error:
                    self._bad.append(str(error).rstrip("."))
                    if len(self._bad) == len(blocks):
                        raise
                    continue
                self._add(arrays)
                if pictures is not None:
                    pictures.add(arrays)
                shown.advance(store.blocks[block].n)
        if self._has_classes and store.reads_labels_alone:
            self.labels = [Counter() for _ in self._columns]
            for block in range(len(store.blocks)):
                self._count(store.read_labels(block))
        store.check_unchanged()

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

    def field(self, name: str) -> dict[str, Any]:
        """Describe a field; its statistics are None if its values are no numbers, e.g. text."""
        field = self._store.schema[name]
        facts: dict[str, Any] = {"name": name, "dtype": str(field.dtype), "shape": field.shape}
        facts |= dict.fromkeys(("min", "max", "mean", "nan"))
        if name in self._statistics:
            return {**facts, **self._statistics[name].summary()}
        if any(self.labels) and name == "label":
            return {**facts, "min": min(map(min, self.labels)), "max": max(map(max, self.labels))}
        return facts

    def column(self, column: TableColumn) -> dict[str, Any]:
        """Describe a column, with mean and standard deviation if they are known and it has a single value."""
        known = self._statistics.get(column.field)
        has_several = bool(column.categories) or column.kind in ("vector", "text")
        if known is None or not known.by_feature or has_several or not known.counts[column.index]:
            return asdict(column)
        mean, variance = known.mean[column.index], known.variance[column.index]
        return {**asdict(column), "mean": float(mean), "std": float(np.sqrt(variance))}

    def classes(self) -> list[dict[str, Any]]:
        """Return the number of records of each class that was found, or has a name."""
        classes = []
        for column, counts in zip(self._columns, self.labels, strict=True):
            names = find_label(self._store, column)[1]
            for label in sorted({*counts, *range(len(names))}) if counts else ():
                name = names[label] if 0 <= label < len(names) else ""
                classes.append({"label": label, "name": name, "count": counts[label], "column": column})
        return classes

    def findings(self, layout: PictureLayout | None) -> list[str]:
        """Return messages about likely problems."""
        store = self._store
        trouble = [f"cannot be read: {text}" for text in self._bad[:MAX_BAD_BLOCKS]]
        if self._bad[MAX_BAD_BLOCKS:]:
            trouble.append(f"{len(self._bad) - MAX_BAD_BLOCKS} more blocks cannot be read")
        for column, counts in zip(self._columns, self.labels, strict=True):
            texts = label_findings(counts, find_label(store, column)[1], store.count) if counts else []
            trouble += [f"label {column!r}: {text}" if column else text for text in texts]
        for name, statistics in self._statistics.items():
            names = {column.index: column.name for column in store.table_columns if column.field == name}
            trouble += value_findings(name, statistics, names, layout is not None and layout.field == name)
        if like_ids := self._ids.names():
            trouble.append(
                f"data: a different whole number in each record, like ids: {like_ids}. Leave them out of features"
            )
        return trouble + self.repeats.findings()
