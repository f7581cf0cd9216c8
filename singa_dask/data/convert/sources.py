"""Sources of conversions: several files of one kind, opened as one store.

Most kinds are formats of stores. Others are idx (files of images and labels in any order), text (windows of characters)
and words.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from singa_dask.data import fs
from singa_dask.data.codecs.record import schema_of
from singa_dask.data.codecs.vocabulary import read_text, read_words
from singa_dask.data.fs.byte_source import Bytes, open_bytes
from singa_dask.data.stores.block_sizes import rows_per_block
from singa_dask.data.stores.idx import idx_shape
from singa_dask.data.stores.opening import ShardedStore, is_pattern, shard_urls
from singa_dask.data.stores.store import STORES, Store, StoreOptions
from singa_dask.data.stores.table import TableStore
from singa_dask.data.stores.table_part import table_files
from singa_dask.data.types import Arrays, Block, Field
from singa_dask.errors import ConfigError, DataError
from singa_dask.registry import suggest

# pattern of keys, by kind of the sources
KEYS = {"cifar": "%05d"}
# what a conversion itself tells writers
BASICS = ("class_names", "table_facts")


@dataclass(frozen=True)
class ConvertRequest:
    """The arguments of `convert`, with absolute URLs."""

    kind: str
    sources: tuple[str, ...]
    destination: str
    backend: str
    shuffle: int | None
    split: Mapping[str, float]
    limit: int | None
    shards: int
    mean: str
    reading: Mapping[str, Any]
    writing: Mapping[str, Any]


def check_request(request: ConvertRequest) -> None:
    """Check the arguments of `convert`.

    Raises
    ------
    ConfigError
        An argument is invalid.
    """
    if request.shards < 1:
        raise ConfigError(f"{request.shards} shards, expected 1 or more.")
    _check_options(request.reading, kind_options(request.kind), f"sources of kind {request.kind}")
    options = _writer_options(STORES.find(request.backend))
    _check_options(request.writing, options, f"what is written to {request.destination}")
    _check_shares(request.split)
    if request.mean:
        backend_of(request.mean)


def reader_options(kind: str, options: Mapping[str, Any], destination: str) -> dict[str, Any]:
    """Return the options of the reader, with a default vocabulary next to the destination."""
    if "vocabulary" not in kind_options(kind):
        return dict(options)
    beside = fs.join(posixpath.dirname(destination.partition("{split}")[0]), "vocab.txt")
    return {**options, "vocabulary": fs.absolute(options.get("vocabulary", beside))}


def parse_split(text: str) -> dict[str, float]:
    """Parse a split like ``"train=0.8,test=0.2"``.

    Raises
    ------
    ConfigError
        The text does not have that form, or shares are not positive or sum to more than 1.
    """
    try:
        shares = {name.strip(): float(share) for name, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ConfigError(f"split {text!r}: expected name=share,..., e.g. train=0.8,test=0.2.") from None
    _check_shares(shares, text)
    return shares


def _check_shares(shares: Mapping[str, float], text: str = "") -> None:
    if not all(share > 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
        raise ConfigError(f"split {text or dict(shares)!r}: shares must be above 0 and sum to at most 1.")


def _check_options(options: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in options:
        if name not in known:
            hint = suggest(name, known) if known else "It has no options."
            raise ConfigError(f"unknown option {name!r} of {what}. {hint}")


def _writer_options(target: type[Store]) -> list[str]:
    return [name for name in target.write_options if name not in BASICS]


def key_options(backend: str, pattern: str) -> dict[str, str]:
    """Return the option that defines keys of records, if the format has keys."""
    return {"keys": pattern} if "keys" in _writer_options(STORES.find(backend)) else {}


def backend_of(destination: str) -> str:
    """Return the backend for the suffix of a URL.

    Raises
    ------
    ConfigError
        No backend that can be written has that suffix.
    """
    known = [name for name in STORES.names() if "write" in vars(STORES.find(name))]
    for name in known:
        if destination.lower().endswith(STORES.find(name).suffixes):
            return name
    raise ConfigError(
        f"{destination}: cannot detect the format to write by the suffix. Give it. Known: {', '.join(known)}."
    )


def open_source(kind: str, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> Store:
    """Open the records of some files as one store.

    Parameters
    ----------
    kind : str
        One of `kinds`.
    urls : sequence of str
        Each may be a pattern (``part-*.parquet``).
    options
        See `kind_options`.

    Raises
    ------
    DataError
        A file is missing or damaged, or its schema is not that of the first.
    """
    if kind == "table":
        return _open_table(urls, storage_options, options)
    files = source_files(urls, storage_options)
    if kind in READERS:
        return READERS[kind](files, storage_options, **options)
    return ShardedStore(", ".join(urls), storage_options, kind, files=files, **options)


def _open_table(urls: Sequence[str], storage_options: fs.Options, options: Mapping[str, Any]) -> Store:
    if len(urls) != 1:
        raise DataError(f"{', '.join(urls)}: expected one table: a file, a pattern or a directory.")
    return TableStore(urls[0], storage_options, **options)


def source_files(urls: Sequence[str], storage_options: fs.Options = None, kind: str = "") -> list[str]:
    """Return the files of URLs, with patterns expanded, and directories of tables."""
    if kind == "table":
        return [each.url for url in urls for each in table_files(url, storage_options)]
    return [file for url in urls for file in (shard_urls(url, storage_options) if is_pattern(url) else [url])]


def kinds() -> list[str]:
    """Return the kinds of sources: formats of stores, each by its first name, and those that are read here."""
    found = {name: STORES.find(name) for name in STORES.names()}
    return sorted({*READERS, *(name for name, cls in found.items() if cls.is_source and cls.backend_name() == name)})


def kind_options(kind: str) -> list[str]:
    """Return the options of the reader of a kind."""
    return (READERS[kind] if kind in READERS else STORES.find(kind)).option_names()


class _Files(Store):
    """Records of several files, given by their URLs."""

    block = StoreOptions

    def __init__(self, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(", ".join(urls), storage_options, **options)
        self._urls = tuple(urls)

    def __reduce__(self) -> tuple[Any, ...]:
        reopen, (cls, _, *others) = super().__reduce__()
        return reopen, (cls, self._urls, *others)


class IdxFiles(_Files):
    """Files of images and of labels in MNIST's idx format, gzipped or not.

    Parameters
    ----------
    urls : sequence of str
        In any order: images and labels are distinguished by their headers. Several files of images, or of labels, are
        concatenated in the given order.

    Raises
    ------
    DataError
        A header or a length is wrong, or the number of labels is not that of images.
    """

    def __init__(self, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(urls, storage_options, **options)
        # of each block the file, and its offset there
        self._images: list[tuple[Bytes, int]] = []
        labels: list[npt.NDArray[np.int32]] = []
        shapes: list[tuple[int, ...]] = []
        blocks: list[Block] = []
        for url in urls:
            source = open_bytes(url, storage_options)
            shape = idx_shape(source)
            if len(shape) == 1:
                labels.append(np.frombuffer(source.read(8, shape[0]), np.uint8).astype(np.int32))
                continue
            shapes.append(shape[1:])
            size = int(np.prod(shape[1:], dtype=np.int64))
            n, start = rows_per_block(size), 4 + 4 * len(shape)
            for first in range(0, shape[0], n):
                self._images.append((source, start + first * size))
                rows = min(n, shape[0] - first)
                blocks.append(Block(len(blocks), rows, url, start + first * size, rows * size))
        if len(set(shapes)) > 1:
            raise DataError(f"{self.url}: records of different shapes: {shapes}.")
        if not blocks:
            raise DataError(f"{self.url}: no file of images. Expected an idx header of 3 or more dimensions.")
        self.blocks = tuple(blocks)
        self.schema = {"pixel": Field(np.dtype(np.uint8), shapes[0])}
        self._labels = np.concatenate(labels) if labels else None
        if self._labels is not None:
            self.schema["label"] = Field(np.dtype(np.int32))
            if len(self._labels) != self.count:
                raise DataError(f"{self.url}: {self.count} images but {len(self._labels)} labels.")

    def read_block(self, block_id: int) -> Arrays:
        block, (source, start) = self.blocks[block_id], self._images[block_id]
        pixels = np.frombuffer(source.read(start, block.length), np.uint8)
        records: Arrays = {"pixel": pixels.reshape(block.n, *self.schema["pixel"].shape)}
        if self._labels is not None:
            records["label"] = self._labels[int(self.starts[block_id]) :][: block.n]
        return records

    def close(self) -> None:
        for source, _ in self._images:
            source.close()


class _InMemory(_Files):
    """Records made from texts by ``read``, in memory."""

    read: ClassVar[Callable[..., Arrays]]

    def __init__(self, urls: Sequence[str], storage_options: fs.Options = None, **options: Any) -> None:
        super().__init__(urls, storage_options, **options)
        self._records = self.read(urls, storage_options, **self.options)
        self.schema = schema_of(self._records)
        size = self.record_bytes
        count, n = len(next(iter(self._records.values()))), rows_per_block(size)
        self.blocks = tuple(
            Block(i, min(n, count - first), self.url, first * size, min(n, count - first) * size)
            for i, first in enumerate(range(0, count, n))
        )

    def read_block(self, block_id: int) -> Arrays:
        first, n = int(self.starts[block_id]), self.blocks[block_id].n
        return {name: array[first : first + n] for name, array in self._records.items()}

    def close(self) -> None:
        self._records = {}


class VocabularyOptions(StoreOptions):
    """Options of texts."""

    vocabulary: str = "vocab.txt"
    """URL of the vocabulary, which is created if it does not exist."""


class WindowOptions(VocabularyOptions):
    """Options of windows of characters."""

    window: int = 50
    """Characters of a record."""


class WordOptions(VocabularyOptions):
    """Options of words."""

    class_size: int = 100
    """Number of classes."""


class TextWindows(_InMemory):
    """Windows of characters; see `vocabulary.read_text`."""

    block = WindowOptions
    read = staticmethod(read_text)


class Words(_InMemory):
    """Words; see `vocabulary.read_words`."""

    block = WordOptions
    read = staticmethod(read_words)


READERS: Mapping[str, type[Store]] = {"idx": IdxFiles, "text": TextWindows, "words": Words}
