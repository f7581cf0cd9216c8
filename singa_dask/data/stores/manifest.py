"""Manifest: a file ``<folder>/_singa/<name>.json`` that describes a store.

It contains the blocks with their CRC32C, and information that saves a scan of the data at opening. A manifest that does
not fit the data is ignored, with a warning.
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
from singa_dask.data.stores.opening import is_pattern, open_store
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import MANIFEST_DIR, STORES, Store
from singa_dask.data.types import Block
from singa_dask.errors import DataError

__all__ = ["Manifest", "find_manifest", "forget_manifest", "manifest_url", "write_manifest"]

VERSION = 1
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Manifest:
    """The manifest of one file.

    Attributes
    ----------
    url : str
        URL of the manifest.
    blocks : tuple of Block
    opening : mapping
        The result of `Store.manifest_info`: ``bytes``, the length of the file, and values of the format.
    class_names : tuple of str
    """

    url: str
    blocks: tuple[Block, ...]
    opening: Mapping[str, Any]
    class_names: tuple[str, ...] = ()

    def dismiss(self) -> None:
        """Log that the manifest is ignored because its blocks differ from those of the data."""
        LOG.warning("%s: ignored: its blocks are not those of the data.", self.url)

    def attach(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Return ``blocks`` with the checksums of the manifest, if they are the same blocks."""
        if [_range(block) for block in self.blocks] != [_range(block) for block in blocks]:
            self.dismiss()
            return blocks
        pairs = zip(blocks, self.blocks, strict=True)
        return tuple(dataclasses.replace(block, crc=known.crc) for block, known in pairs)


def _range(block: Block) -> tuple[int, int, int]:
    return block.n, block.offset, block.length


def manifest_url(url: str) -> str:
    """Return the URL of the manifest of a store."""
    folder, slash, name = url.rstrip("/").rpartition("/")
    return f"{folder}{slash}{MANIFEST_DIR}/{name}.json"


def find_manifest(
    url: str, backend: str, file: str, n_bytes: int, storage_options: fs.Options = None
) -> Manifest | None:
    """Read the manifest of a store.

    Parameters
    ----------
    url, backend : str
        URL and format of the store.
    file : str
        URL of the file that contains the blocks.
    n_bytes : int
        Length of that file.

    Returns
    -------
    Manifest or None
        None if there is none, or it does not fit the data.
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
        stated = (found["version"], found["backend"], opening["bytes"])
    except (DataError, KeyError, TypeError, ValueError) as error:
        LOG.warning("%s: ignored: %s: %s", target, type(error).__name__, error)
        return None
    if stated != (VERSION, backend, n_bytes):
        LOG.warning("%s: ignored: version, format and bytes %s, but the data has %s.", target, stated, n_bytes)
        return None
    return Manifest(target, blocks, opening, parse_names(found.get("class_names")))


def write_manifest(
    url: str,
    backend: str | None = None,
    storage_options: fs.Options = None,
    class_names: Sequence[str] = (),
    **options: Any,
) -> list[str]:
    """Read a store and write its manifest, replacing an older one.

    Parameters
    ----------
    url : str
        If its last part is a pattern, a manifest is written for each matching file.
    backend : str, optional
        Detected if not given.
    storage_options : mapping, optional
    class_names : sequence of str
        For formats that cannot store them. By default those of the store, or of its older manifest.
    options
        Passed to the store.

    Returns
    -------
    list of str
        URLs of the manifests. Formats that need none are skipped (e.g. parquet, whose pages have checksums).

    Raises
    ------
    DataError
        The store cannot be read, or the manifest cannot be written.
    """
    files = _files(url, storage_options)
    written = [_write_one(each, backend, storage_options, class_names, options) for each in files]
    return [target for target in written if target]


def forget_manifest(url: str, storage_options: fs.Options = None) -> None:
    """Delete the manifest of a store, or of each file that matches a pattern, if it exists."""
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
    # nothing else of the old manifest may affect the new one
    forget_manifest(url, storage_options)
    with open_store(url, backend, storage_options, **options) as store:
        if store.block_bytes(0) is None:
            return ""
        text = json.dumps(_facts(store, store.class_names or class_names), separators=(",", ":"), sort_keys=True)
    target = manifest_url(url)
    fs.write_atomic(target, text.encode() + b"\n", storage_options)
    return target


def _names_of(manifest: str, storage_options: fs.Options) -> tuple[str, ...]:
    """Return the class names in a manifest, even if it does not fit the data."""
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
