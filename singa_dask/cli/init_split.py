"""The test set that ``init`` splits off: the records of it, and the files, lists of pictures or copies of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.cli.init_records import Options, Rows
from singa_dask.data import Arrays, Store, fs
from singa_dask.data.stores.arrow import ArrowStore
from singa_dask.data.stores.class_names import write_options

__all__ = ["MIN_SPLIT", "split_store", "stratify"]

# fewer records are not split, and arrays with more bytes not copied
MIN_SPLIT = 10
MAX_COPIED = 1 << 30


def stratify(labels: npt.NDArray[Any], options: Options) -> tuple[Rows, Rows, str]:
    """Return rows to train and to test on, as many of each class, and how they were chosen."""
    random, codes = np.random.default_rng(options.seed), np.unique(labels, return_inverse=True)[1]
    ends = np.cumsum(np.bincount(codes))[:-1]
    chosen = [random.permutation(rows) for rows in np.split(np.argsort(codes, kind="stable"), ends)]
    # of a class with one record, it is learned
    counts = [min(round(options.test_split * len(each)), len(each) - 1) for each in chosen]
    test = np.sort(np.concatenate([each[:k] for each, k in zip(chosen, counts, strict=True)]))
    how = f"{len(test)} at random, as many of each class, seed {options.seed}"
    return np.setdiff1d(np.arange(len(codes)), test), test, how


def split_store(
    store: Store, reading: Mapping[str, Any], given: Options, folder: str, reopen: Callable[[], Store]
) -> dict[str, Any]:
    """Return the fields of `Records` that a test set changes; none if records are too few, or too large to copy."""
    files, n_bytes = store.record_files(0, store.count), store.count * store.record_bytes
    if store.count < MIN_SPLIT or "label" not in store.schema or (not files and n_bytes > MAX_COPIED):
        return {}
    labels = np.concatenate([store.read_labels(block.id) for block in store.blocks])
    train, test, how = stratify(labels, given)
    if not len(test):
        return {}
    suffix, known = ("txt", {"classes": list(store.class_names)}) if files else ("arrow", reading.get("user_conf", {}))
    parts = {f"train.{suffix}": train, f"test.{suffix}": test}
    # a copy has the size that pictures were scaled to; new records have the label that these had
    kept = {key: reading[key] for key in (("resize", "channels") if files else ("layout",)) if key in reading}
    if user_conf := {key: value for key, value in known.items() if value and key in ("classes", "label")}:
        kept["user_conf"] = user_conf

    def write(place: str) -> None:
        fs.makedirs(place)
        if files:
            classes = [store.class_names[label] if store.class_names else label for label in labels]
            lines = [f"{fs.absolute(file)}\t{each}\n" for file, each in zip(files, classes, strict=True)]
            for name, rows in parts.items():
                fs.write_atomic(fs.join(place, name), "".join(lines[row] for row in rows).encode())
            return
        with reopen() as source:
            facts = source.table_facts.to_dict() if source.table_facts else None
            options = write_options(ArrowStore, source.class_names, facts)
            for name, rows in parts.items():
                ArrowStore.write(fs.join(place, name), _chosen(source, rows), **options)

    return {
        "url": fs.join(folder, f"train.{suffix}"),
        "test_url": fs.join(folder, f"test.{suffix}"),
        "backend": "image-list" if files else "arrow",
        "n_records": len(train),
        "n_test": len(test),
        "reading": kept,
        "split": how,
        "written": "lists of the pictures, which stay where they are" if files else f"{n_bytes / 1e6:.1f} MB in all",
        "write": write,
    }


def _chosen(store: Store, rows: Rows) -> Iterator[Arrays]:
    """Yield some records, given by their numbers in order."""
    cuts = np.searchsorted(rows, store.starts)
    for block in np.flatnonzero(np.diff(cuts)).tolist():
        yield store.read_rows(block, rows[cuts[block] : cuts[block + 1]] - store.starts[block])
