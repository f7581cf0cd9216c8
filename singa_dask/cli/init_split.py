"""The test set that ``init`` splits off: the records of it, and the files, lists of pictures or copies of arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.cli.init_records import Options, Records, Rows
from singa_dask.data import Arrays, Store, fs
from singa_dask.data.stores.arrow import ArrowStore
from singa_dask.data.stores.class_names import write_options

__all__ = ["MIN_SPLIT", "split_store", "stratify", "with_split"]

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


def with_split(
    found: Records, folder: str, suffix: str, split: tuple[Rows, Rows, str], write: Callable[[str, Rows], None]
) -> Records:
    """Return what was found with a test set; ``write`` writes some records to a URL."""
    train, test, how = split
    parts = {f"train{suffix}": train, f"test{suffix}": test}

    def write_parts(place: str) -> None:
        fs.makedirs(place)
        for name, rows in parts.items():
            write(fs.join(place, name), rows)

    url, test_url = (fs.join(folder, name) for name in parts)
    found = replace(found, url=url, test_url=test_url, split=how, write=write_parts)
    return replace(found, n_records=len(train), n_test=len(test))


def split_store(found: Records, closed: Store, given: Options, folder: str) -> Records:
    """Return what was found with a test set, but if records are too few, or too large to copy."""

    def reopen() -> Store:
        store = copy.copy(closed)
        if found.values == "columns" and len(found.shape) == 1:
            # as `standardise` reads them
            store.widen()
        return store

    with reopen() as store:
        # pictures, which stay where they are
        files, n_bytes = store.record_files(0, store.count), store.count * store.record_bytes
        if store.count < MIN_SPLIT or (not files and n_bytes > MAX_COPIED):
            return found
        labels = np.concatenate([store.read_labels(block.id) for block in store.blocks])
    train, test, how = stratify(labels, given)
    if not len(test):
        return found
    classes, reading = closed.class_names, dict(found.reading)
    if files:
        lines = [
            f"{fs.absolute(file)}\t{classes[i] if classes else i}\n" for file, i in zip(files, labels, strict=True)
        ]
        reading |= {"user_conf": {"classes": list(classes)}} if classes else {}
        listed = replace(found, backend="image-list", reading=reading)
        return with_split(
            listed,
            folder,
            ".txt",
            (train, test, f"{how}, a list of pictures"),
            lambda url, rows: fs.write_atomic(url, "".join(lines[row] for row in rows).encode()),
        )
    label = reading.get("user_conf", {}).get("label")
    kept = {"layout": reading.get("layout"), "user_conf": label and {"label": label}}
    copied = replace(found, backend="arrow", reading={key: value for key, value in kept.items() if value})

    def write(url: str, rows: Rows) -> None:
        with reopen() as store:
            facts = store.table_facts.to_dict() if store.table_facts else None
            ArrowStore.write(url, _chosen(store, rows), **write_options(ArrowStore, classes, facts))

    how += f", a copy, {n_bytes / 1e6:.1f} MB in all"
    return with_split(copied, folder, ".arrow", (train, test, how), write)


def _chosen(store: Store, rows: Rows) -> Iterator[Arrays]:
    """Yield some records, given by their numbers in order."""
    cuts = np.searchsorted(rows, store.starts)
    for block in np.flatnonzero(np.diff(cuts)).tolist():
        yield store.read_rows(block, rows[cuts[block] : cuts[block + 1]] - store.starts[block])
