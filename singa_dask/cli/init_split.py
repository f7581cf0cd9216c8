"""The test set that ``init`` splits off: the records of it, and the files, lists of pictures or copies of arrays."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
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


def split_store(store: Store, reading: Mapping[str, Any], given: Options, folder: str, wide: bool) -> dict[str, Any]:
    """Return the fields of `Records` that a test set changes; none if records are too few, or too large to copy.

    Pictures in files of their own stay where they are. ``wide``: numbers of 64 bits keep them, for `standardise`.
    """
    files, n_bytes = store.record_files(0, store.count), store.count * store.record_bytes
    if store.count < MIN_SPLIT or "label" not in store.schema or (not files and n_bytes > MAX_COPIED):
        return {}
    labels = np.concatenate([store.read_labels(block.id) for block in store.blocks])
    train, test, how = stratify(labels, given)
    if not len(test):
        return {}
    if files:
        kept = {key: reading[key] for key in ("resize", "channels")}
        kept |= {"user_conf": {"classes": list(store.class_names)}} if store.class_names else {}
    else:
        # of the pictures in it a copy has the size; the label has its name in new records
        kept = {key: reading[key] for key in ("layout",) if key in reading}
        label = reading.get("user_conf", {}).get("label")
        kept |= {"user_conf": {"label": label}} if label else {}
    parts = {f"{name}.{'txt' if files else 'arrow'}": rows for name, rows in (("train", train), ("test", test))}

    def write(place: str) -> None:
        fs.makedirs(place)
        for name, rows in parts.items():
            if not files:
                _copy(store, rows, fs.join(place, name), wide)
                continue
            classes = [store.class_names[label] if store.class_names else label for label in labels[rows]]
            lines = [f"{fs.absolute(files[row])}\t{each}\n" for row, each in zip(rows, classes, strict=True)]
            fs.write_atomic(fs.join(place, name), "".join(lines).encode())

    train_url, test_url = (fs.join(folder, name) for name in parts)
    backend, what = (
        ("image-list", "a list of pictures") if files else ("arrow", f"a copy, {n_bytes / 1e6:.1f} MB in all")
    )
    changed = {"url": train_url, "test_url": test_url, "backend": backend, "reading": kept}
    return {**changed, "n_records": len(train), "n_test": len(test), "split": f"{how}, {what}", "write": write}


def _copy(closed: Store, rows: Rows, url: str, wide: bool) -> None:
    # opened again
    with copy.copy(closed) as store:
        if wide:
            store.widen()
        facts = store.table_facts.to_dict() if store.table_facts else None
        ArrowStore.write(url, _chosen(store, rows), **write_options(ArrowStore, store.class_names, facts))


def _chosen(store: Store, rows: Rows) -> Iterator[Arrays]:
    """Yield some records, given by their numbers in order."""
    cuts = np.searchsorted(rows, store.starts)
    for block in np.flatnonzero(np.diff(cuts)).tolist():
        yield store.read_rows(block, rows[cuts[block] : cuts[block + 1]] - store.starts[block])
