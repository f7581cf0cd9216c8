"""Convert: files of other formats -> a store of ours, shuffled, split and cut into shards on the way.

The result depends on nothing but the sources and the arguments; a target is written whole or not at all, and so is
each of its shards.
"""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.shards import shard_url
from singa_dask.data.shuffle import permutation
from singa_dask.data.sources import KINDS, kind_options, read_records
from singa_dask.data.store import STORES, Arrays, Store, open_store
from singa_dask.errors import ConfigError, DataError
from singa_dask.registry import suggest

__all__ = ["convert", "parse_split"]

KEYS = {"cifar": "%05d"}
# what a writer is always given
BASICS = ("url", "records", "storage_options", "_", "options")


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
) -> dict[str, int]:
    """Write the records of some files as one store, or as one for each part of a split.

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
        Of the source's reader (csv: separator, has_label, shape; images: resize, channels; text: vocabulary, window)
        and of the store's writer (arrow, parquet: compression, block_bytes; kvfile: keys; lmdb: records_per_value;
        csv: separator).

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
    if shards < 1:
        raise ConfigError(f"{shards} shards, expected 1 or more.")
    backend = to or _backend_of(destination)
    target = STORES.find(backend)
    options = {"keys": KEYS.get(kind, "%08d"), **(writing or {})}
    _check_options(reading or {}, kind_options(kind), f"sources of kind {kind}")
    _check_options(options, _writer_options(target), f"what is written to {destination}")
    records = read_records(kind, list(sources), storage_options, **(reading or {}))
    parts = _select(records, shuffle, split, limit)
    if mean:
        first = next(iter(parts.values()))
        _write_mean(mean, {name: array[first] for name, array in records.items()}, storage_options)
    written = {}
    for name, rows in parts.items():
        url = _part_url(destination, name) if split else destination
        if len(rows) < shards:
            raise DataError(f"{url}: {len(rows) or 'no'} records are left for it, expected {shards} or more.")
        for shard, shard_rows in _shards(url, rows, shards).items():
            taken = {field: array[shard_rows] for field, array in records.items()}
            target.write(shard, taken, storage_options, **options)
            if verify:
                _verify(shard, backend, taken, storage_options, options.get("separator", ","))
            written[shard] = len(shard_rows)
    return written


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


def _check_options(options: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in options:
        if name not in known:
            raise ConfigError(f"{name!r} says nothing about {what}. {suggest(name, known)}")


def _writer_options(target: type[Store]) -> list[str]:
    return [name for name in inspect.signature(target.write).parameters if name not in BASICS]


def _backend_of(destination: str) -> str:
    for name in STORES.names():
        if destination.lower().endswith(STORES.find(name).suffixes):
            return name
    raise ConfigError(
        f"{destination}: cannot tell the format to write by its suffix. Say which. Known: {', '.join(STORES.names())}."
    )


def _shards(url: str, rows: npt.NDArray[np.int64], count: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return which rows go to which file: all to one, or consecutive parts of nearly one length."""
    if count == 1:
        return {url: rows}
    return {shard_url(url, i, count): part for i, part in enumerate(np.array_split(rows, count))}


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


def _verify(url: str, backend: str, records: Arrays, storage_options: fs.Options, separator: str) -> None:
    """Read a store, block by block, and compare it with what it was made of; text holds no shapes, and no bytes."""
    values = next(array for name, array in records.items() if name != "label")
    # text does not say whether its lines begin with a label
    reading = {"has_label": "label" in records, "separator": separator} if backend in ("csv", "textfile") else {}
    with open_store(url, backend, storage_options, **reading) as store:
        if store.count != len(values):
            raise DataError(f"{url}: {store.count} records were written, expected {len(values)}.")
        for block, first in zip(store.blocks, store.starts.tolist(), strict=False):
            for name, found in store.read_block(block.id).items():
                expected = (records["label"] if name == "label" else values)[first : first + block.n]
                wrong = (found.reshape(block.n, -1) != expected.reshape(block.n, -1)).any(axis=1)
                if wrong.any():
                    raise DataError(f"{url}, block {block.id}, record {first + int(wrong.argmax())}: other {name}.")
