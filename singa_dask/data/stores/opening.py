"""Opens stores by URL, and detects their format."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.yaml_text import read_plain
from singa_dask.data.codecs.record_schema import describe_fields, show_schema
from singa_dask.data.stores.class_names import Labels, label_table, parse_names, relabel
from singa_dask.data.stores.image import entries_of
from singa_dask.data.stores.image_decoding import IMAGE_SUFFIXES
from singa_dask.data.stores.lakes import refuse_lake
from singa_dask.data.stores.range_store import VERSION, RangeStore, manifest_url, plain
from singa_dask.data.stores.store import MANIFEST_DIR, SPLIT, STORES, Store
from singa_dask.data.types import Arrays, Block, FileSum
from singa_dask.errors import ConfigError, DataError, listed
from singa_dask.fs.cache import open_cache
from singa_dask.fs.checksums import checksum_of
from singa_dask.fs.io_threads import map_ahead, open_threads
from singa_dask.fs.open_bytes import decode_text, refuse_compressed
from singa_dask.fs.patterns import is_pattern, matches
from singa_dask.fs.sources import Bytes, Range

# maximum number of entries of a directory that are tried as folders of images
MAX_LOOKED_AT = 16
# what `Store.matches` sees of a file
HEAD_BYTES = 1 << 16
# backends of which a directory of files is one store
DIRECTORIES = ("parquet", "image-parquet", "jsonl")
# what Hugging Face's save_to_disk writes, and its hub has
SPLITS, STATE, README = "dataset_dict.json", "state.json", "README.md"
FRONT_MATTER = re.compile(r"---\r?\n(.*?\n)---\r?\n", re.DOTALL)
# suffixes of files whose directory is a table, and names of directories in one
PARTS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".orc")
KEYED = re.compile(r"[^=]+=[^=]*")
NUMBERS = re.compile(r"(.*)-(\d{5})-of-(\d{5})(.*)")


def detect(url: str, storage_options: fs.Options = None) -> str | None:
    """Detect the backend by the suffix or first bytes of a file, or by what is in a directory; None if unknown."""
    found_here = fs.look(url, storage_options)
    if found_here is None:
        raise DataError(f"{url}: no such file or directory.")
    is_dir, n_bytes = found_here
    head = b"" if is_dir else fs.read_bytes(url, 0, min(HEAD_BYTES, n_bytes), storage_options)
    refuse_compressed(url, head)
    names = fs.ls(url, storage_options) if is_dir else []
    if is_dir and saved_files(url, names, storage_options):
        return "parquet"
    for name in STORES.names():
        try:
            found = STORES.find(name)
        except ConfigError:
            # its package is not installed
            continue
        if not set(names).isdisjoint(found.directory_files) if is_dir else found.matches(url, head):
            return name
    if not is_dir:
        return None
    if _has_images(url, storage_options):
        return "image-folder"
    return "table" if _holds_table(names) else None


def _holds_table(names: Collection[str]) -> bool:
    """Return whether all that is in a directory are parts of one table, or directories ``key=value`` with such."""
    parts = [name.lower() for name in _parts_of(names)]
    forms = {posixpath.splitext(name.removesuffix(".gz"))[1] for name in parts}
    return bool(parts) and ((len(forms) == 1 and forms <= set(PARTS)) or all(map(KEYED.fullmatch, parts)))


def _parts_of(names: Collection[str]) -> list[str]:
    """Return the names in a directory but for hidden ones, and those that programs leave beside records."""
    return [name for name in names if name[0] not in "._" and name != README]


def saved_files(url: str, names: Collection[str], storage_options: fs.Options = None) -> list[str]:
    """Return the files of a directory that Hugging Face's ``Dataset.save_to_disk`` wrote; none for other directories.

    Parameters
    ----------
    url : str
    names : collection of str
        What is in the directory.
    storage_options : mapping, optional

    Raises
    ------
    DataError
        It holds several splits, each in a directory of its own, or its files cannot be told.
    """
    try:
        if SPLITS in names:
            found = json.loads(fs.read_bytes(fs.join(url, SPLITS), storage_options=storage_options))["splits"]
            raise DataError(f"{url}: splits {listed(found)}, which are not read as one. Name one: {url}/{found[0]}.")
        if not {STATE, "dataset_info.json"} <= set(names):
            return []
        files = json.loads(fs.read_bytes(fs.join(url, STATE), storage_options=storage_options))["_data_files"]
        found = [str(each["filename"]) for each in files]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{url}: {SPLITS if SPLITS in names else STATE} is damaged: {error!r}.") from None
    missing = [name for name in found if name not in names]
    if missing or not found:
        raise DataError(f"{url}: {STATE} names {listed(missing) or 'no file'}, which is not there.")
    return [fs.join(url, name) for name in found]


def name_sets(url: str, storage_options: fs.Options = None) -> str:
    """Return what to say of a directory of Hugging Face's hub, with sets of files: one a split, as a rule."""
    names = fs.ls(url, storage_options)
    if README in names and (splits := _splits_of(url, storage_options)):
        return f"Its {README} names sets of files. Name one: {listed(splits)}."
    folders = [name for name in names[:MAX_LOOKED_AT] if fs.is_dir(fs.join(url, name), storage_options)]
    names += [f"{folder}/{name}" for folder in folders for name in fs.ls(fs.join(url, folder), storage_options)]
    sets = {f"{match[1]}-*{match[4]}" for name in names if (match := NUMBERS.fullmatch(name))}
    found = sorted(name for name in sets if name.endswith(".parquet"))
    return f"It has sets of files: name one, {' or '.join(fs.join(url, each) for each in found)}." if found else ""


def _splits_of(url: str, storage_options: fs.Options) -> list[str]:
    """Return the files of each split that the front matter of README.md names, and its name; none if it does not."""
    found = []
    try:
        front = FRONT_MATTER.match(decode_text(fs.join(url, README), storage_options))
        for config in read_plain(front[1], README)["configs"] if front else ():
            for each in config["data_files"]:
                paths = [each["path"]] if isinstance(each["path"], str) else each["path"]
                split = f"{each['split']} of {config['config_name']}"
                # a store is a pattern of names of files, not of directories
                found += [
                    f"{fs.join(url, path)} ({split})" for path in paths if not is_pattern(path.rpartition("/")[0])
                ]
    except (AttributeError, ConfigError, DataError, KeyError, TypeError):
        return []
    return found


def _files_of(
    store: type[Store], url: str, is_folder: Mapping[str, bool], storage_options: fs.Options = None
) -> list[str]:
    """Return the files of one format in a directory; ``is_folder`` says of each name in it whether it is one, too."""
    refuse_lake(url, is_folder, storage_options)
    names = _parts_of(is_folder)
    found = [name for name in sorted(names) if name.lower().endswith(store.suffixes)] if store.suffixes else names
    others = sorted(name for name in names if is_folder[name])
    if others:
        how = name_sets(url, storage_options) or "Name one, or files by a pattern."
        raise DataError(f"{url}: has directories {listed(others)}. {how}")
    if not found:
        raise DataError(f"{url}: a directory without files {' or '.join(store.suffixes)}.")
    check_splits(url, found, is_dir=True)
    return [fs.join(url, name) for name in found]


def no_store(url: str, storage_options: fs.Options = None) -> DataError:
    """Return the error for what no store reads as a whole."""
    if fs.is_dir(url, storage_options):
        entries = fs.entries(url, storage_options)
        if not entries:
            return DataError(f"{url}: an empty directory.")
        inside, below = listed(fs.ls(url, storage_options)), "**/" * all(is_folder for _, is_folder, _ in entries)
        how = name_sets(url, storage_options)
        how = how or f"Name a file or folder in it, or files by a pattern, as in DIRECTORY/{below}*.parquet."
        return DataError(f"{url}: a directory that is no store. There is {inside} in it. {how}")
    if not fs.size(url, storage_options):
        return DataError(f"{url}: it is empty.")
    return DataError(f"{url}: unknown format. Give a backend. Known: {', '.join(STORES.names())}.")


def _has_images(url: str, storage_options: fs.Options) -> bool:
    """Return whether a directory, or one of the first folders in it, contains images."""
    names = entries_of(url, storage_options)
    if any(name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        return True
    folders = (fs.join(url, name) for name in names[:MAX_LOOKED_AT])
    inside = (entries_of(each, storage_options) for each in folders if fs.is_dir(each, storage_options))
    return any(name.lower().endswith(IMAGE_SUFFIXES) for found in inside for name in found)


def open_store(url: str, backend: str | None = None, storage_options: fs.Options = None, **options: Any) -> Store:
    """Open the records at a URL.

    Parameters
    ----------
    url : str
        If its last part is a pattern (``part-*.arrow``), the matching stores, sorted by name, are opened as one.
    backend : str, optional
        Name in `STORES`; detected by suffix or first bytes if not given.
    storage_options : mapping, optional
        Passed to the filesystem. With the key `fs.CACHE`, remote blocks are cached on a local disk.
    options
        Passed to the store. ``truncated=True`` is allowed for all formats: it opens text and key-value files that end
        within a record. Truncated files of other formats cannot be read.

    Raises
    ------
    ConfigError
        The backend is unknown.
    DataError
        The file is missing, or not of that format.
    """
    matched = is_pattern(url, storage_options)
    found_as = backend or detect(shard_urls(url, storage_options)[0] if matched else url, storage_options)
    # a table takes categories, classes and means from all its files
    if matched and found_as != "table":
        return STORES.find("shards")(url, storage_options, backend=backend, **options)
    backend = found_as
    if not backend:
        raise no_store(url, storage_options)
    found = STORES.find(backend)
    if backend in DIRECTORIES and fs.is_dir(url, storage_options):
        is_folder = {name: is_one for name, is_one, _ in fs.entries(url, storage_options)}
        files = saved_files(url, is_folder, storage_options) or _files_of(found, url, is_folder, storage_options)
        return STORES.find("shards")(url, storage_options, backend=backend, files=files, **options)
    if "truncated" not in found.option_names():
        options.pop("truncated", None)
    try:
        return _checked_cache(found(url, storage_options, **options))
    except TypeError as error:
        # of a class that declares no options
        if found.block or "unexpected keyword" not in str(error):
            raise
        raise DataError(f"{url}: {error}") from error


def _checked_cache(store: Store) -> Store:
    """Return the store; raise now, not at the first batch, if a block exceeds the limit of the cache."""
    settings = store.storage_options.get(fs.CACHE)
    if settings is not None and fs.local_path(store.url) is None:
        try:
            open_cache(settings).check_fits(max((block.length for block in store.blocks), default=0))
        except DataError:
            store.close()
            raise
    return store


@STORES.register("shards")
class ShardedStore(RangeStore):
    """The records of all files that match a pattern, sorted by name, or of given files.

    Parameters
    ----------
    url : str
        Its last part is a pattern with ``*``, ``?`` or ``[...]``.
    storage_options : mapping, optional
    backend : str, optional
        Format of the files; detected if not given.
    files : sequence of str
        Use these files, in this order, instead of those that match.
    options
        Passed to each store.

    The labels of the first store with class names are used; labels of the other stores are matched by name.

    Raises
    ------
    DataError
        No file matches, files of a set ``-00000-of-00004`` are missing, the files have different schemas, or a file
        has classes that the first does not have.
    """

    # sources are several files of another format
    is_source = False

    def __init__(
        self,
        url: str,
        storage_options: fs.Options = None,
        backend: str | None = None,
        files: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(url, storage_options, backend=backend, files=tuple(files), **options)

    def index(self) -> None:
        self._stores: list[Store] = []
        options = {**self.options}
        backend, files = options.pop("backend"), options.pop("files")
        self._open(files or shard_urls(self.url, self.storage_options), backend, options)
        named = next((store for store in self._stores if store.class_names), self._stores[0])
        self.class_names = named.class_names
        self._label_tables: list[Labels | None] = [
            label_table(store.url, store.class_names, named.class_names, named.url) for store in self._stores
        ]
        self.schema = self._stores[0].schema
        self.table_facts, self.table_columns = self._stores[0].table_facts, self._stores[0].table_columns
        self.other_fields, self.label_name = self._stores[0].other_fields, self._stores[0].label_name
        self.is_converted = self._stores[0].is_converted
        blocks: list[Block] = []
        for store in self._stores:
            blocks += [dataclasses.replace(block, id=len(blocks) + block.id) for block in store.blocks]
        self.blocks = tuple(blocks)
        self.mapped = all(store.mapped for store in self._stores)
        self.labels_apart = all(store.labels_apart for store in self._stores)
        self.left_out = sum(store.left_out for store in self._stores)
        self.truncation = "; ".join(f"{store.url}: {store.truncation}" for store in self._stores if store.truncation)
        # index of the first block of each store, and the number of blocks
        self._firsts = np.cumsum([0, *(len(store.blocks) for store in self._stores)])

    def _open(self, shards: Sequence[str], backend: str | None, options: Mapping[str, Any]) -> None:
        """Open files, a few at a time: gzipped ones are decompressed, and a request for each takes its time."""
        opened: list[Store] = []

        def open_shard(shard: str) -> Store:
            store = open_store(shard, backend, self.storage_options, **options)
            opened.append(store)
            return store

        try:
            with closing(map_ahead(open_shard, shards, open_threads(), len(shards))) as stores:
                for store in stores:
                    self._stores.append(store)
                    self._check(store)
        except BaseException:
            # `close` is to close those behind the one that failed, too
            self._stores = opened
            raise

    @property
    def parts(self) -> Sequence[Store]:
        return self._stores

    def widen(self) -> None:
        self.rounds_data, self.schema = any(store.rounds_data for store in self._stores), dict(self.schema)
        super().widen()
        for store in self._stores:
            store.widen()

    def _check(self, store: Store) -> None:
        schema = self._stores[0].schema
        if store.schema != schema:
            found, expected = show_schema(store.schema), show_schema(schema)
            raise DataError(f"{store.url}: holds {found}, expected {expected} like {self._stores[0].url}.")
        facts, first = store.table_facts, self._stores[0].table_facts
        difference = facts.compare(first) if facts and first else ""
        if difference:
            raise DataError(f"{store.url}: {difference} in {self._stores[0].url}. Convert them together.")

    @property
    def remote(self) -> bool:
        ranged = all(isinstance(store, RangeStore) for store in self._stores)
        return ranged and any(store.remote for store in self._stores)

    @property
    def decodes_ahead(self) -> bool:  # type: ignore[override]
        return all(isinstance(store, RangeStore) and store.decodes_ahead for store in self._stores)

    def _locate(self, block_id: int) -> tuple[int, int]:
        """Return the store of a block, and its index there."""
        shard = int(np.searchsorted(self._firsts, block_id, side="right")) - 1
        return shard, block_id - int(self._firsts[shard])

    def _ranged(self, block_id: int) -> tuple[RangeStore, int]:
        """Return the store of a block, whose blocks are ranges of files, and its index there."""
        shard, block = self._locate(block_id)
        store = self._stores[shard]
        if not isinstance(store, RangeStore):
            raise TypeError(f"{store.url}: a store whose blocks are not ranges of files")
        return store, block

    def ranges(self, block_id: int) -> tuple[Range, ...]:
        store, block = self._ranged(block_id)
        return store.ranges(block)

    def fetch(self, block_id: int, again: bool = False) -> list[memoryview]:
        store, block = self._ranged(block_id)
        return store.fetch(block, again)

    def fetch_bytes(self, block_id: int) -> int:
        store, block = self._ranged(block_id)
        return store.fetch_bytes(block)

    def decode(self, block_id: int, data: Sequence[memoryview]) -> Arrays:
        store, block = self._ranged(block_id)
        return self._relabelled(store.read_block(block, data), block_id)

    def read_block(self, block_id: int, data: Sequence[memoryview] | None = None) -> Arrays:
        if data is not None:
            return self.decode(block_id, data)
        shard, block = self._locate(block_id)
        return self._relabelled(self._stores[shard].read_block(block), block_id)

    def read_labels(self, block_id: int) -> npt.NDArray[Any]:
        shard, block = self._locate(block_id)
        return self._relabelled({"label": self._stores[shard].read_labels(block)}, block_id)["label"]

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        shard, block = self._locate(block_id)
        return self._relabelled(self._stores[shard].read_rows(block, rows), block_id)

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        shard, block = self._locate(block_id)
        arrays, bad = self._stores[shard].salvage(block)
        return self._relabelled(arrays, block_id), bad

    def _relabelled(self, arrays: Arrays, block_id: int) -> Arrays:
        shard, _ = self._locate(block_id)
        table = self._label_tables[shard]
        if table is None or "label" not in arrays:
            return arrays
        return {**arrays, "label": relabel(arrays["label"], table, self._stores[shard].url)}

    def open_sources(self) -> Sequence[Bytes]:
        return [source for store in self._stores for source in store.open_sources()]

    def record_files(self, first: int, stop: int) -> list[str]:
        files, start = list[str](), 0
        for store in self._stores:
            files += store.record_files(max(first - start, 0), min(max(stop - start, 0), store.count))
            start += store.count
        return files if len(files) == stop - first else []

    def close(self) -> None:
        for store in self._stores:
            store.close()


def shard_url(url: str, index: int, count: int) -> str:
    """Return the URL of one shard: ``train-00002-of-00016.arrow`` of ``train.arrow``."""
    folder, slash, name = url.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    stem, dot, suffix = (stem, dot, suffix) if stem else (name, "", "")
    return f"{folder}{slash}{stem}-{index:05d}-of-{count:05d}{dot}{suffix}"


def shard_urls(url: str, storage_options: fs.Options = None) -> list[str]:
    """Return the URLs that match a pattern, sorted.

    Raises
    ------
    DataError
        Nothing matches, or the set is incomplete: if ``-00001-of-00004`` matches, the others of the four that the
        pattern would match must exist too.
    """
    # manifests are no shards
    found = [each for each in matches(url, storage_options) if f"/{MANIFEST_DIR}/" not in f"/{each}/"]
    if not found:
        raise DataError(f"{url}: no such file or directory, nothing matches.")
    pattern, folders = url.rpartition("/")[2], dict[str, list[str]]()
    for each in found:
        folder, name = posixpath.split(each)
        folders.setdefault(folder, []).append(name)
    for folder, names in folders.items():
        refuse_lake(folder or ".", fs.ls(folder or ".", storage_options), storage_options)
        missing = [name for name in _sets_of(names) if fnmatch.fnmatch(name, pattern) and name not in names]
        if missing:
            verb = "are" if missing[1:] else "is"
            raise DataError(f"{url}: {listed(missing, 3)} {verb} missing, expected the whole set.")
    check_splits(url, found)
    return found


def check_splits(url: str, files: Sequence[str], is_dir: bool = False) -> None:
    """Raise a `DataError` if the names of files say that some are for training, and others for tests or validation.

    So do those of a directory that are of several sets ``-00000-of-00004``.
    """
    names = [file.rpartition("/")[2] for file in files]
    found = {match[1][:3]: match[1] for name in names if (match := SPLIT.search(name.lower()))}
    if is_dir and len(found) < 2:
        found = {match[1]: match[1] for name in names if (match := NUMBERS.fullmatch(name))}
    if len(found) > 1:
        named = " and ".join(sorted(found.values()))
        raise DataError(
            f"{url}: files of {named} would be read as one. Name those of one by a pattern such as "
            f"'*{sorted(found.values())[-1]}*', or rename them if they belong together."
        )


def _sets_of(names: list[str]) -> list[str]:
    """Return the names of all files of the sets that ``names`` belong to."""
    found = filter(None, map(NUMBERS.fullmatch, names))
    sets = {(stem, int(count), suffix) for stem, _, count, suffix in (match.groups() for match in found)}
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for stem, count, suffix in sorted(sets) for i in range(count)]


# Writes manifests, for which each block of a store is read, and checks and deletes them.


def check_manifests(store: Store) -> None:
    """Check that each manifest next to the data of an open store is used.

    Raises
    ------
    DataError
        A manifest was ignored because it does not fit the data.
    """
    for part in store.parts:
        target = manifest_url(part.url)
        unused = any(block.crc is None for block in part.blocks)
        if unused and fs.exists(target, part.storage_options):
            raise DataError(
                f"{part.url}: does not fit its manifest {target}: truncated, replaced, or written again. If the data "
                "is right, write a new manifest: singa-dask data verify URL --write-manifest."
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
        URLs of the manifests. Formats without manifests are skipped.

    Raises
    ------
    DataError
        The store cannot be read, or the manifest cannot be written.
    """
    written = []
    for each in _files(url, storage_options):
        # nothing else of the old manifest may affect the new one
        known = forget_manifest(each, storage_options)[each]
        with open_store(each, backend, storage_options, **options) as store:
            # of images, blocks are made of the checksums of files
            files = store.file_sums()
            if store.block_bytes(0) is None:
                continue
            text = json.dumps(_facts(store, class_names or known, files), separators=(",", ":"), sort_keys=True)
            store.check_unchanged()
        written.append(manifest_url(each))
        fs.write_atomic(written[-1], f"{text}\n", storage_options)
    return written


def forget_manifest(url: str, storage_options: fs.Options = None) -> dict[str, tuple[str, ...]]:
    """Delete the manifest of a store, or of each file that matches a pattern, if it exists; return its class names."""
    names = {}
    for each in _files(url, storage_options):
        target, found = manifest_url(each), None
        if fs.exists(target, storage_options):
            with contextlib.suppress(ValueError):
                # also of one that does not fit the data
                found = json.loads(fs.read_bytes(target, storage_options=storage_options))
        names[each] = parse_names(found.get("class_names")) if isinstance(found, dict) else ()
        fs.remove_tree(target, storage_options)
    return names


def _files(url: str, storage_options: fs.Options) -> list[str]:
    return shard_urls(url, storage_options) if is_pattern(url, storage_options) else [url]


def _facts(store: Store, class_names: Sequence[str], files: Sequence[FileSum]) -> dict[str, Any]:
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
        "options": plain(store.options),
        "opening": store.manifest_info(),
        "files": files,
        "blocks": blocks,
    }
