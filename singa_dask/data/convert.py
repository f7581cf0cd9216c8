"""Convert: files of other formats -> a store of ours, shuffled and split on the way.

The result depends on nothing but the sources and the arguments; a target is written whole or not at all.
"""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.shuffle import permutation
from singa_dask.data.sources import KINDS
from singa_dask.data.store import STORES, Arrays
from singa_dask.errors import ConfigError, DataError
from singa_dask.registry import suggest

__all__ = ["convert", "parse_split"]

KEYS = {"cifar": "%05d"}
# what a reader or writer is always given
BASICS = ("urls", "url", "records", "storage_options")


def convert(
    kind: str,
    sources: Sequence[str],
    destination: str,
    *,
    to: str | None = None,
    shuffle: int | None = None,
    split: Mapping[str, float] | None = None,
    limit: int | None = None,
    mean: str | None = None,
    storage_options: fs.Options = None,
    reading: Mapping[str, Any] | None = None,
    writing: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Write the records of some files as one store, or as one for each part of a split.

    Parameters
    ----------
    kind : {"idx", "cifar", "csv", "npz"}
        What the sources are.
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
    mean : str, optional
        Where to write the mean record of the first part, as a store of one record without label.
    storage_options : mapping, optional
        For all URLs.
    reading, writing : mapping, optional
        Of the source's reader (csv: separator, has_label, shape) and of the store's writer (arrow: compression,
        block_bytes; kvfile, lmdb: keys; lmdb: records_per_value; csv: separator).

    Returns
    -------
    dict of str to int
        Records written to each URL.

    Raises
    ------
    ConfigError
        An argument makes no sense.
    DataError
        A source cannot be read.
    """
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of source {kind!r}. {suggest(kind, KINDS)}")
    target = STORES.find(to or _backend_of(destination))
    options = {"keys": KEYS.get(kind, "%08d"), **(writing or {})}
    _check_options(KINDS[kind], reading or {}, f"sources of kind {kind}")
    _check_options(target.write, options, f"what is written to {destination}")
    records = KINDS[kind](list(sources), storage_options, **(reading or {}))
    parts = _select(records, shuffle, split, limit)
    urls = {name: _part_url(destination, name) if split else destination for name in parts}
    for name, rows in parts.items():
        if not len(rows):
            raise DataError(f"{urls[name]}: no records are left for it.")
    if mean:
        first = next(iter(parts.values()))
        _write_mean(mean, {name: array[first] for name, array in records.items()}, storage_options)
    for name, rows in parts.items():
        target.write(urls[name], {field: array[rows] for field, array in records.items()}, storage_options, **options)
    return {urls[name]: len(rows) for name, rows in parts.items()}


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
    _check_shares(shares)
    return shares


def _check_shares(shares: Mapping[str, float]) -> None:
    if not all(share > 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise ConfigError(f"split {dict(shares)}: shares must be above 0 and make at most 1.")


def _check_options(function: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    known = [name for name in inspect.signature(function).parameters if name not in BASICS]
    for name in options:
        if name not in known:
            raise ConfigError(f"{name!r} says nothing about {what}. {suggest(name, known)}")


def _backend_of(destination: str) -> str:
    for name in STORES.names():
        if destination.lower().endswith(STORES.find(name).suffixes):
            return name
    raise ConfigError(
        f"{destination}: cannot tell the format to write by its suffix. Say which. Known: {', '.join(STORES.names())}."
    )


def _part_url(destination: str, name: str) -> str:
    if "{split}" in destination:
        return destination.replace("{split}", name)
    stem, suffix = posixpath.splitext(destination)
    return f"{stem}-{name}{suffix}"


def _select(
    records: Arrays, shuffle: int | None, split: Mapping[str, float] | None, limit: int | None
) -> dict[str, npt.NDArray[np.int64]]:
    """Return which records go to which part, in order."""
    n = len(next(iter(records.values())))
    rows = np.arange(n) if shuffle is None else permutation(n, shuffle, "convert")
    rows = rows[:limit]
    if not split:
        return {"": rows}
    _check_shares(split)
    drawn = permutation(len(rows), shuffle or 0, "split")
    if "label" in records:
        drawn = drawn[np.argsort(records["label"][rows][drawn], kind="stable")]
    parts = {}
    left = drawn
    for name, share in split.items():
        # evenly spaced places of a list sorted by label hold every label in proportion
        size = min(round(share * len(rows)), len(left))
        places = np.arange(size) * len(left) // max(size, 1)
        parts[name] = rows[np.sort(left[places])]
        left = np.delete(left, places)
    return parts


def _write_mean(url: str, records: Arrays, storage_options: fs.Options) -> None:
    values = records["data"] if "data" in records else records["pixel"]
    image = values.mean(axis=0, dtype=np.float64).astype(np.float32)
    STORES.find(_backend_of(url)).write(url, {"data": image[None]}, storage_options, keys="mean")
