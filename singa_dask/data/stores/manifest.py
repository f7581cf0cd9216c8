"""Manifest: a file ``<folder>/_singa/<name>.json`` that describes a store.

It contains the CRC32C of each block, the CRC32C of each file's bytes outside all blocks, and information that saves a
scan when the store is opened. If the file has another length or other blocks than its manifest, the manifest is ignored
with a warning. Any other difference is an error.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.data.codecs.class_lists import parse_names
from singa_dask.data.codecs.record_schema import fields_of, show_schema
from singa_dask.data.stores.store import MANIFEST_DIR, Store, advice_for
from singa_dask.data.types import Block, Field, FileSum
from singa_dask.errors import DataError
from singa_dask.wording import listed

logger = logging.getLogger(__name__)


VERSION = 1
# maximum number of files that an error names
MAX_NAMED = 3


@dataclass(frozen=True)
class Manifest:
    """The manifest of one file.

    Attributes
    ----------
    url : str
        URL of the manifest.
    blocks : tuple of Block
    opening : mapping
        Result of `Store.manifest_info`: the length of the file as ``bytes``, and values that the format has stored.
    class_names : tuple of str
    schema : dict of str to Field
    options : mapping
        Options of the store when the manifest was written; see `Store.manifest_options`. If the store now has other
        options, fields and files are not compared.
    files : tuple of FileSum
        The files of the store, in the order of reading; empty in older manifests.
    """

    url: str
    blocks: tuple[Block, ...]
    opening: Mapping[str, Any]
    class_names: tuple[str, ...]
    schema: dict[str, Field]
    options: Mapping[str, Any]
    files: tuple[FileSum, ...]

    def dismiss(self) -> None:
        """Log that the manifest is ignored because the data has other blocks."""
        logger.warning("%s: the manifest is ignored: its blocks are not those of the data.", self.url)

    def check_described(self, url: str, schema: dict[str, Field], class_names: tuple[str, ...]) -> None:
        """Raise a `DataError` if fields or class names in a file differ from the manifest."""
        if schema != self.schema:
            # sort the fields, because a manifest lists fields by name
            actual, expected = (show_schema(dict(sorted(each.items()))) for each in (schema, self.schema))
        elif class_names and class_names != self.class_names:
            actual, expected = (listed(each) or "no classes" for each in (class_names, self.class_names))
        else:
            return
        raise DataError(f"{url}: holds {actual}, but {expected} according to its manifest. {advice_for(url)}")

    def check_files(self, store: Store, files: Sequence[str]) -> None:
        """Raise a `DataError` if the files of a store or their order differ from the manifest."""
        known, names = [each.name for each in self.files], [name_of(each, store.url) for each in files]
        if not known or known == names:
            return
        same = [ours == theirs for ours, theirs in zip(names, known, strict=False)]
        first = same.index(False) if False in same else len(same) - 1
        lists = (("missing", set(known) - set(names)), ("new", set(names) - set(known)))
        changes = [f"{word}: {listed(sorted(each), MAX_NAMED)}" for word, each in lists if each]
        changes = changes or [f"not in this order: {names[first]}"]
        # name the block only if each record has its own file; otherwise the block of a file is unknown
        block = f", block {np.searchsorted(store.starts, first, 'right') - 1}" if store.record_files(0, 1) else ""
        raise DataError(
            f"{store.url}{block}: the files differ from the {len(known)} in its manifest, {'; '.join(changes)}. "
            f"{advice_for(store.url)}"
        )

    def check_rest(self, store_url: str, url: str, actual: FileSum) -> None:
        """Raise a `DataError` if the bytes of a file of a store outside all blocks differ from the manifest."""
        known = self._rests.get(actual.name, actual)
        if known != actual:
            raise DataError(
                f"{url}: the file has {actual.n_bytes} bytes, and its bytes outside all blocks have crc32c "
                f"{actual.crc:08x}, expected "
                f"{known.n_bytes} bytes and {known.crc:08x}. {advice_for(store_url)}"
            )

    @cached_property
    def _rests(self) -> dict[str, FileSum]:
        return {each.name: each for each in self.files}

    def attach(self, blocks: tuple[Block, ...], url: str = "") -> tuple[Block, ...]:
        """Return ``blocks`` with the manifest's checksums, if the manifest has the same blocks.

        If the blocks differ and ``url`` is passed, a `DataError` is raised.
        """
        known, actual = ([(block.n, block.offset, block.length) for block in each] for each in (self.blocks, blocks))
        if known != actual and not url:
            self.dismiss()
            return blocks
        if known != actual:
            same = [ours == theirs for ours, theirs in zip(actual, known, strict=False)]
            at = same.index(False) if False in same else len(same) - 1
            text = "{} records, {} bytes from {} on"
            actual_run, expected = (text.format(n, length, offset) for n, offset, length in (actual[at], known[at]))
            raise DataError(
                f"{blocks[at].file}, block {at}: the block has {actual_run}, expected {expected}. {advice_for(url)}"
            )
        pairs = zip(blocks, self.blocks, strict=True)
        return tuple(dataclasses.replace(block, crc=known.crc) for block, known in pairs)


def name_of(file: str, url: str) -> str:
    """Return the name of a file for the manifest of the store ``url``, relative to the store's directory."""
    return file.removeprefix(url.rstrip("/").rpartition("/")[0] + "/")


def manifest_url(url: str) -> str:
    """Return the URL of the manifest of a store."""
    folder, slash, name = url.rstrip("/").rpartition("/")
    return f"{folder}{slash}{MANIFEST_DIR}/{name}.json"


def find_manifest(
    url: str, backend: str, file: str, n_bytes: int, storage_options: fs.Options = None
) -> Manifest | None:
    """Read the manifest of a store; return None if no manifest exists, or if it does not fit the data.

    Parameters
    ----------
    url, backend : str
        URL and format of the store.
    file : str
        URL of the file that contains the blocks.
    n_bytes : int
        Length of that file.
    """
    target = manifest_url(url)
    try:
        if not fs.exists(target, storage_options):
            return None
        content = json.loads(fs.read_bytes(target, storage_options=storage_options))
        opening = dict(content["opening"])
        blocks = tuple(
            Block(i, each["n"], file, each["offset"], each["length"], crc=each["crc32c"])
            for i, each in enumerate(content["blocks"])
        )
        schema = fields_of(content["schema"])
        files = tuple(FileSum(str(name), int(n), int(crc)) for name, n, crc in content.get("files", []))
        options = dict(content.get("options", {}))
        stated = (content["version"], content["backend"], opening["bytes"])
    except (AttributeError, DataError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s: the manifest is ignored: %s: %s", target, type(error).__name__, error)
        return None
    if stated != (VERSION, backend, n_bytes):
        logger.warning(
            "%s: the manifest is ignored: its version, format and bytes are %s, but the data has %s.",
            target,
            stated,
            n_bytes,
        )
        return None
    return Manifest(target, blocks, opening, parse_names(content.get("class_names")), schema, options, files)
