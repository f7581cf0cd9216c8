"""The test set that ``init`` splits off: the records of it, and the files, lists of pictures or copies of arrays."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.cli.init_records import Options, Records, Rows
from singa_dask.data import Store, fs
from singa_dask.data.stores.arrow import ArrowStore
from singa_dask.data.stores.class_names import write_options

# fewer records are not split, and arrays with more bytes not copied
MIN_SPLIT = 10
MAX_COPIED = 1 << 28
Split = tuple[Rows, Rows, str]
"""Rows to train and to test on, and how they were chosen."""


def stratify(labels: npt.NDArray[Any], options: Options) -> Split:
    """Choose as many records of each class."""
    random, codes = np.random.default_rng(options.seed), np.unique(labels, return_inverse=True)[1]
    ends = np.cumsum(np.bincount(codes))[:-1]
    chosen = [random.permutation(rows) for rows in np.split(np.argsort(codes, kind="stable"), ends)]
    # of a class with one record, it is learned
    counts = [min(round(options.test_split * len(each)), len(each) - 1) for each in chosen]
    test = np.sort(np.concatenate([each[:k] for each, k in zip(chosen, counts, strict=True)]))
    how = f"{len(test)} at random, as many of each class, seed {options.seed}"
    return np.setdiff1d(np.arange(len(codes)), test), test, how


def with_split(found: Records, folder: str, suffix: str, split: Split, write: Callable[[str, Rows], None]) -> Records:
    """Return what was found with a test set; ``write`` writes some records to a URL."""
    (train, test, how), names = split, (f"train{suffix}", f"test{suffix}")

    def write_both(place: str) -> None:
        fs.makedirs(place)
        for name, rows in zip(names, (train, test), strict=True):
            write(fs.join(place, name), rows)

    url, test_url = (fs.join(folder, name) for name in names)
    found = replace(found, url=url, test_url=test_url, n_records=len(train), n_test=len(test))
    return replace(found, split=how, write=write_both)


def split_store(found: Records, closed: Store, given: Options, folder: str) -> Records:
    """Return what was found with a test set, but if records are too few, or too large to copy."""
    with copy.copy(closed) as store:
        if found.values == "columns" and len(found.shape) == 1:
            # as `standardise` reads them
            store.widen()
        # pictures, which stay where they are
        files, n_bytes = store.record_files(0, store.count), store.count * store.record_bytes
        if store.count < MIN_SPLIT or (not files and n_bytes > MAX_COPIED):
            return found
        blocks = [{"label": store.read_labels(i)} if files else store.read_block(i) for i in range(len(store.blocks))]
        records = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    train, test, how = stratify(records["label"], given)
    if not len(test):
        return found
    classes, reading = closed.class_names, dict(found.reading)
    if files:
        names = [classes[i] if classes else i for i in records["label"]]
        lines = [f"{fs.absolute(file)}\t{name}\n" for file, name in zip(files, names, strict=True)]
        backend, suffix, how = "image-list", ".txt", f"{how}, a list of pictures"
        reading |= {"user_conf": {"classes": list(classes)}} if classes else {}
    else:
        backend, suffix, how = "arrow", ".arrow", f"{how}, a copy, {n_bytes / 1e6:.1f} MB in all"
        # what new records take: a copy has the size that pictures were scaled to, and no other name of the label
        label = reading.get("user_conf", {}).get("label")
        reading = {"layout": reading.get("layout"), "user_conf": label and {"label": label}}

    def write(url: str, rows: Rows) -> None:
        if files:
            fs.write_atomic(url, "".join(lines[row] for row in rows).encode())
            return
        facts = closed.table_facts.to_dict() if closed.table_facts else None
        options = write_options(ArrowStore, classes, facts)
        ArrowStore.write(url, {name: values[rows] for name, values in records.items()}, **options)

    found = replace(found, backend=backend, reading={key: value for key, value in reading.items() if value})
    return with_split(found, folder, suffix, (train, test, how), write)
