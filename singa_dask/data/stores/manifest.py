"""Manifest: what is known of a store beside its data, in ``<folder>/_singa/<name>.json``.

The blocks with a CRC32C of each, and what saves a scan at opening. One that does not fit the data is left alone.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from singa_dask.data import fs
from singa_dask.data.fs.checksum import checksum_of
from singa_dask.data.stores.class_names import parse_names
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import MANIFEST_DIR, STORES, Store, is_pattern, open_store
from singa_dask.data.types import Block
from singa_dask.errors import DataError

__all__ = ["Manifest", "find_manifest", "forget_manifest", "manifest_url", "write_manifest"]

VERSION = 1
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Manifest:
    """What a manifest says of one file.

    Attributes
    ----------
    url : str
        Its own.
    blocks : tuple of Block
    opening : mapping
        What `Store.manifest_info` gave: ``bytes``, the length of the file, and what the format asked to be noted.
    class_names : tuple of str
    """

    url: str
    blocks: tuple[Block, ...]
    opening: Mapping[str, Any]
    class_names: tuple[str, ...] = ()

    def dismiss(self) -> None:
        """Log that it speaks of other blocks than the data has."""
        LOG.warning("%s: not used: its blocks are not those of the data.", self.url)

    def attach(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Return blocks that were found otherwise with the checksums noted here, if they are the same blocks."""
        if [_place(block) for block in self.blocks] != [_place(block) for block in blocks]:
            self.dismiss()
            return blocks
        pairs = zip(blocks, self.blocks, strict=True)
        return tuple(dataclasses.replace(block, crc=noted.crc) for block, noted in pairs)


def _place(block: Block) -> tuple[int, int, int]:
    return block.n, block.offset, block.length


def manifest_url(url: str) -> str:
    """Return where the manifest of a store lies."""
    folder, slash, name = url.rstrip("/").rpartition("/")
    return f"{folder}{slash}{MANIFEST_DIR}/{name}.json"


def find_manifest(
    url: str, backend: str, file: str, n_bytes: int, storage_options: fs.Options = None
) -> Manifest | None:
    """Read the manifest of a store.

    Parameters
    ----------
    url, backend : str
        Of the store.
    file : str
        Of its blocks.
    n_bytes : int
        Length of the file that holds the records.

    Returns
    -------
    Manifest or None
        None if there is none, or none that fits.
    """
    target = manifest_url(url)
    try:
        if not fs.exists(target, storage_options):
            return None
        found = json.loads(fs.read_bytes(target, storage_options=storage_options))
        opening = dict(found["opening"])
        blocks = tuple(
            Block(i, each["n"], file, each["offset"], each["length"], crc=each["crc32c"])
            for i, each in enumerate(found["blocks"])
        )
        noted = (found["version"], found["backend"], opening["bytes"])
    except (DataError, KeyError, TypeError, ValueError) as error:
        LOG.warning("%s: not used: %s: %s", target, type(error).__name__, error)
        return None
    if noted != (VERSION, backend, n_bytes):
        LOG.warning("%s: not used: version, format and bytes %s, but the data is %s.", target, noted, n_bytes)
        return None
    return Manifest(target, blocks, opening, parse_names(found.get("class_names")))


def write_manifest(
    url: str,
    backend: str | None = None,
    storage_options: fs.Options = None,
    class_names: Sequence[str] = (),
    **options: Any,
) -> list[str]:
    """Read a finished store and write its manifest, in place of an older one.

    Parameters
    ----------
    url : str
        With a pattern as its last part each file gets a manifest of its own.
    backend : str, optional
        Told from the file when it is not given.
    storage_options : mapping, optional
    class_names : sequence of str
        For a format that has no place for them; otherwise those that the store, or its older manifest, knows.
    options
        Passed to the store.

    Returns
    -------
    list of str
        The URLs of the manifests; of formats that have no use for one (as parquet, whose pages have checksums) none.

    Raises
    ------
    DataError
        The store cannot be read, or the manifest not be written.
    """
    files = _files(url, storage_options)
    written = [_write_one(each, backend, storage_options, class_names, options) for each in files]
    return [target for target in written if target]


def forget_manifest(url: str, storage_options: fs.Options = None) -> None:
    """Delete the manifest of a store, or of each file of a pattern, if there is one."""
    for each in _files(url, storage_options):
        fs.remove_tree(manifest_url(each), storage_options)


def _files(url: str, storage_options: fs.Options) -> list[str]:
    return shard_urls(url, storage_options) if is_pattern(url) else [url]


def _write_one(
    url: str,
    backend: str | None,
    storage_options: fs.Options,
    class_names: Sequence[str],
    options: Mapping[str, Any],
) -> str:
    class_names = class_names or _names_of(manifest_url(url), storage_options)
    # what else the old one says of the data must not pass into the new one
    forget_manifest(url, storage_options)
    with open_store(url, backend, storage_options, **options) as store:
        if store.block_bytes(0) is None:
            return ""
        text = json.dumps(_facts(store, store.class_names or class_names), separators=(",", ":"), sort_keys=True)
    target = manifest_url(url)
    fs.write_atomic(target, text.encode() + b"\n", storage_options)
    return target


def _names_of(manifest: str, storage_options: fs.Options) -> tuple[str, ...]:
    """Return the class names in a manifest, whether or not it fits its data."""
    if not fs.exists(manifest, storage_options):
        return ()
    try:
        found = json.loads(fs.read_bytes(manifest, storage_options=storage_options))
    except ValueError:
        return ()
    return parse_names(found.get("class_names")) if isinstance(found, dict) else ()


def _facts(store: Store, class_names: Sequence[str]) -> dict[str, Any]:
    blocks = []
    for block in store.blocks:
        crc = checksum_of(store.block_bytes(block.id) or b"")
        blocks.append({"n": block.n, "offset": block.offset, "length": block.length, "crc32c": crc})
    return {
        **({"class_names": list(class_names)} if class_names else {}),
        "version": VERSION,
        "backend": next(name for name in STORES.names() if STORES.find(name) is type(store)),
        "schema": {name: {"dtype": each.dtype.str, "shape": each.shape} for name, each in store.schema.items()},
        "fingerprint": store.fingerprint,
        "opening": store.manifest_info(),
        "blocks": blocks,
    }
