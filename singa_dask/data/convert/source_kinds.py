"""Kinds of files that can be converted. The files of one conversion are opened as one store.

Most kinds are formats of stores. The remaining kinds are idx (files of images and labels in any order), text (windows
of characters) and words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from singa_dask import fs
from singa_dask.data.blocks import even_blocks, rows_per_block
from singa_dask.data.codecs.record_schema import schema_of
from singa_dask.data.stores.arrays.idx import read_idx
from singa_dask.data.stores.sharded_store import ShardedStore
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.store import STORES, Store, StoreOptions
from singa_dask.data.stores.tables.table_files import table_files
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.stores.texts.vocabulary import read_text, read_words
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.fs.patterns import is_pattern


def open_source(kind: str, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> Store:
    """Open the records of some files as one store.

    Parameters
    ----------
    kind : str
        One of `kinds`.
    urls : sequence of str
        URLs of the files. Each may be a pattern (``part-*.parquet``).
    options
        See `kind_options`.

    Raises
    ------
    DataError
        A file is missing or damaged, or its schema differs from the first file's.
    """
    if kind == "table":
        if len(urls) != 1:
            raise DataError(f"{', '.join(urls)}: expected one table: a file, a pattern or a directory.")
        return TableStore(urls[0], storage_options, **options)
    files = source_files(urls, storage_options)
    if kind in READERS:
        return READERS[kind](files, storage_options, **options)
    return ShardedStore(", ".join(urls), storage_options, backend=kind, files=files, **options)


def source_files(urls: Sequence[str], storage_options: fs.Options = None, kind: str = "") -> list[str]:
    """Return the files of URLs. Patterns and directories of tables are expanded."""
    if kind == "table":
        return [each.url for url in urls for each in table_files(url, storage_options)]
    files = (shard_urls(url, storage_options) if is_pattern(url, storage_options) else [url] for url in urls)
    return list(itertools.chain.from_iterable(files))


def kinds() -> list[str]:
    """Return the kinds of sources: the first name of each store format, and the keys of `READERS`."""
    formats = {name: STORES.find(name) for name in STORES.names()}
    return sorted({*READERS, *(name for name, cls in formats.items() if cls.is_source and cls.backend_name() == name)})


def kind_options(kind: str) -> list[str]:
    """Return the options of the reader of a kind."""
    return (READERS[kind] if kind in READERS else STORES.find(kind)).option_names()


class _FilesInMemory(Store):
    """A store with the records of several files in memory. ``read`` reads the files."""

    options_class: ClassVar[type[StoreOptions]] = StoreOptions
    read: ClassVar[Callable[..., Arrays]]

    def __init__(self, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(", ".join(urls), storage_options, **options)
        self._urls = tuple(urls)
        self._records = self.read(urls, storage_options, **self.options)
        self.schema = schema_of(self._records)
        count, size = len(next(iter(self._records.values()))), self.record_bytes
        self.blocks = even_blocks(self.url, count, rows_per_block(size), size)

    def read_block(self, block_id: int) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        return {name: array[first : first + n] for name, array in self._records.items()}

    def close(self) -> None:
        self._records = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self._urls, self.storage_options, **self.options), ()


class IdxFiles(_FilesInMemory):
    """Files of images and of labels in MNIST's idx format; see `idx.read_idx`."""

    read = staticmethod(read_idx)


class VocabularyOptions(StoreOptions):
    """Options for text."""

    vocabulary: str = "vocab.txt"
    """URL of the vocabulary, which is created if it does not exist."""


class WindowOptions(VocabularyOptions):
    """Options for windows of characters."""

    window: int = 50
    """Characters of a record."""


class WordOptions(VocabularyOptions):
    """Options for words."""

    class_size: int = 100
    """Number of classes of words."""


class TextWindows(_FilesInMemory):
    """Windows of characters; see `vocabulary.read_text`."""

    options_class = WindowOptions
    read = staticmethod(read_text)


class Words(_FilesInMemory):
    """Words; see `vocabulary.read_words`."""

    options_class = WordOptions
    read = staticmethod(read_words)


READERS: Mapping[str, type[_FilesInMemory]] = {"idx": IdxFiles, "text": TextWindows, "words": Words}
