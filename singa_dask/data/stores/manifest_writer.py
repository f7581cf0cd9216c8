"""Write, check and delete manifests. To write a manifest, all blocks of the store are read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from singa_dask import fs
from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.codecs.record_schema import describe_fields
from singa_dask.data.stores.manifest import VERSION, manifest_url
from singa_dask.data.stores.opening import open_store
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import Store, rewriting
from singa_dask.data.types import FileSum
from singa_dask.errors import DataError
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.patterns import is_pattern


def check_manifests(store: Store) -> None:
    """Raise a `DataError` if a manifest of an open store is ignored because it does not fit the data."""
    for part in store.parts:
        target = manifest_url(part.url)
        unused = any(block.crc is None for block in part.blocks)
        if unused and fs.exists(target, part.storage_options):
            raise DataError(
                f"{part.url}: the file does not fit its manifest {target}. It was truncated, replaced or written "
                f"again. "
                f"{rewriting(part.url)}"
            )


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
        URL of the store. If its last part is a pattern, a manifest is written for each matching file.
    backend : str, optional
        Format of the store. By default it is detected.
    storage_options : mapping, optional
    class_names : sequence of str
        Class names, for formats that cannot store them. The default is the class names of the store, or else of the
        manifest that is replaced.
    options
        Options of the store.

    Returns
    -------
    list of str
        URLs of the manifests. Formats without manifests are skipped.

    Raises
    ------
    DataError
        The store cannot be read, or the manifest cannot be written.
    """
    written = []
    for each in _files(url, storage_options):
        # only the class names of the old manifest may affect the new one
        known = forget_manifest(each, storage_options)[each]
        with open_store(each, backend, storage_options, **options) as store:
            # compute the checksums of files first, because the checksum of a block of images is computed from them
            files = store.file_sums()
            if store.block_bytes(0) is None:
                continue
            text = json.dumps(_describe(store, class_names or known, files), separators=(",", ":"), sort_keys=True)
            store.check_unchanged()
        written.append(manifest_url(each))
        fs.write_atomic(written[-1], f"{text}\n", storage_options)
    return written


def forget_manifest(url: str, storage_options: fs.Options = None) -> dict[str, tuple[str, ...]]:
    """Delete the manifests of a store, or of files that match a pattern; return their class names by URL."""
    names = {}
    for each in _files(url, storage_options):
        target, content = manifest_url(each), None
        if fs.exists(target, storage_options):
            with contextlib.suppress(ValueError):
                # keep the class names even if the old manifest does not match the data
                content = json.loads(fs.read_bytes(target, storage_options=storage_options))
        names[each] = parse_names(content.get("class_names")) if isinstance(content, dict) else ()
        fs.remove_tree(target, storage_options)
    return names


def _files(url: str, storage_options: fs.Options) -> list[str]:
    return shard_urls(url, storage_options) if is_pattern(url, storage_options) else [url]


def _describe(store: Store, class_names: Sequence[str], files: Sequence[FileSum]) -> dict[str, Any]:
    names, blocks = store.class_names or class_names, []
    for block in store.blocks:
        crc = checksum_of(store.block_bytes(block.id) or b"")
        blocks.append({"n": block.n, "offset": block.offset, "length": block.length, "crc32c": crc})
    return {
        **({"class_names": list(names)} if names else {}),
        "version": VERSION,
        "backend": store.backend_name(),
        "schema": describe_fields(store.schema),
        "fingerprint": store.fingerprint,
        "options": store.manifest_options(),
        "opening": store.manifest_info(),
        "files": files,
        "blocks": blocks,
    }
