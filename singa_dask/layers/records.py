"""Stores as ``store_conf`` describes them: opened with the options that a job gives, and compared with it."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.conf.model import (
    PLAIN,
    Conf,
    Count,
    Field,
    Finding,
    Many,
    Positive,
    RegisteredName,
    Size,
    problem,
    raw_value,
    read_options,
)
from singa_dask.data.codecs.table import TableFacts
from singa_dask.data.stores import STORES, Store, detect, open_store
from singa_dask.data.stores.image import ImageOptions
from singa_dask.data.stores.split import SplitConf
from singa_dask.data.stores.store import backends_holding
from singa_dask.data.stores.table import NamedColumns, TableStore
from singa_dask.data.stores.table_csv import CsvPart
from singa_dask.data.stores.table_part import table_files
from singa_dask.errors import ConfigError, DataError, listed
from singa_dask.fs.patterns import is_pattern
from singa_dask.fs.range_reader import DEFAULT_LIMIT_MB
from singa_dask.layers.augmentation import AugmentConf
from singa_dask.ops.contract import Array, DType

logger = logging.getLogger(__name__)

# keys of store_conf that name columns
NAMING = (
    "features", "label", "target", "weight", "categories", "texts", "numbers", "na_values", "missing", "unlabelled",
    "lags",
)  # fmt: skip
# keys of store_conf that are options of some formats; those of lines of numbers go to CSVInput
FORMAT_KEYS = (*NAMING, "encoding", *ImageOptions.model_fields)


class CacheConf(Conf):
    """``cache``: a directory on a local disk, shared by the processes of a host."""

    dir: str = ""
    """The directory: empty, new, or an earlier cache. Default: SINGA_DASK_CACHE, or else ~/.cache/singa-dask."""
    limit_gb: Positive = 20.0
    """Maximum size in 10**9 bytes; the least recently used blocks are deleted first."""


class _SharedConf(Conf):
    """What all stores share."""

    backend: Annotated[str, RegisteredName("store")] = ""
    """Format of the store; detected if empty."""
    path: str = ""
    """URL or path of the records."""
    split: SplitConf | None = None
    """Read only the records to train on, or those to test on, chosen by a rule: ``{part: train, test_share: 0.2}``. By
    default all."""
    mean_file: str = ""
    """Store whose first record is subtracted from each record."""
    std_file: str = ""
    """Store whose first record divides each record."""
    mean_value: float | None = None
    """Number subtracted from each value, if there is no mean_file."""
    std_value: float | None = None
    """Number that divides each value, if there is no std_file."""
    standardise: bool = False
    """Subtract from each value of a record, or each channel of an image (channels, height, width), its mean over all
    training records, and divide by its standard deviation. Both are computed once, in 64 bits, before training begins,
    and kept in checkpoints. Layers of the test and validation nets say it too, and use those of the training data."""
    batchsize: Many[Size] = Field(default=[])
    """Records per step of the whole worker group; or one number for each of its workers."""
    shape: Many[Size] = Field(default=[])
    """Shape of one record, without the batch; of an image always (channels, height, width)."""
    encoded: bool = False
    """Unused, in SINGA too."""
    random_skip: Count = 0
    """Start at a random record among the first this many."""
    prefetching: bool = False
    """Unused: the next batch is always read while the net computes."""
    shuffle: Literal["none", "block", "full"] = "none"
    """Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch."""
    window: Size = 64
    """Blocks in a window for shuffle: block."""
    last_batch: Literal["wrap", "drop_last", "pad"] = "wrap"
    """An incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it."""
    on_error: Literal["raise", "skip", "replace"] = "raise"
    """A record that cannot be read: raise an error, use the next good one, or one drawn at random."""
    max_bad: float = Field(default=0.01, gt=0)
    """Maximum number of bad records that a worker tolerates: a whole number, or a fraction (below 1) of all records."""
    labels: Count = 0
    """Number of classes: a record with a label outside of 0 to labels - 1 is bad. 0 does not check labels."""
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    """Order of the axes of images in the store: NHWC for records of (height, width, channels), as NumPy, Pillow and
    TensorFlow have them. ``shape`` is (channels, height, width) with both."""
    storage_options: dict[str, Any] = Field(default={})
    """Options for the file system of the URL, as fsspec takes them. Of hdfs:// these: client (native, pyarrow,
    webhdfs), and for native: deadline_s, http (of the NameNode), config_dir, kerberos_principal, kerberos_keytab,
    kerberos_cache, and Hadoop's settings by their names, as dfs.replication."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of the format: of a user's own store, or of a built-in one, instead of keys beside this one."""
    augment: AugmentConf | None = None
    """Change records at random, in training only; layers of the test and validation nets may say it too."""
    cache: CacheConf | None = None
    """Cache blocks of remote file systems on a local disk of each host; no cache if absent."""
    io_threads: Size = 32
    """Maximum number of simultaneous reads of a process from a remote file system."""
    in_flight_mb: Size = 64
    """Maximum MiB of blocks that a worker has requested from a remote file system, or decodes ahead, and not yet used;
    at least one. Part of memory_mb."""
    memory_mb: Size | None = None
    """Maximum MiB of memory that a worker takes to read this layer's records: batches read ahead, blocks that are read,
    in flight, shuffled or kept for the next epoch. Default: 1280, or less where a quarter of the memory of the process,
    divided by the number of its layers that read stores, is less; large blocks may take all of that quarter."""
    max_decompressed_mb: Positive = DEFAULT_LIMIT_MB
    """Maximum size in 10**6 bytes that a gzipped file, or a block of another compressed format, may decompress to."""


class StoreConf(NamedColumns, ImageOptions, _SharedConf):
    """``store_conf``: records of a store, at any URL (SINGA's StoreProto and more).

    Any option of the format is a key, too: `singa-dask layers FORMAT` lists them.
    """

    options_of = "store"

    @classmethod
    def arranged(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Put options that only some formats have into ``user_conf``."""
        store = STORES.get(raw_value(data, "backend", str, ""))
        takers = [store] if store else STORES.classes()
        options = {key for each in takers for key in each.option_names()} - cls.model_fields.keys()
        if store and store is not TableStore and not store.table_format:
            options |= {"features", "label"}.intersection(store.option_names())
        moved = {
            key: _single(key, value)
            for key, value in data.items()
            if key in options and (value or key not in cls.model_fields)
        }
        if not moved:
            return data
        kept = {key: value for key, value in data.items() if key not in moved}
        return {**kept, "user_conf": {**moved, **raw_value(data, "user_conf", dict, {})}}

    @classmethod
    def _read_blocks(cls, data: dict[str, Any], context: Mapping[str, Any]) -> Iterator[Any]:
        """Check ``user_conf`` as the format declares it, if the job names the format."""
        store, options = STORES.get(raw_value(data, "backend", str, "")), raw_value(data, "user_conf", dict, {})
        if store is not None and store.block is not None and options:
            columns = any(data.get(key) for key in NAMING)
            block = TableStore.block if columns and store.table_format else store.block
            try:
                read_options(block, options)
            except ConfigError as error:
                for each in error.problems:
                    yield problem(PLAIN, each.message, ("user_conf", *each.path), options)

    @property
    def label_columns(self) -> list[str]:
        """Columns with labels; an empty name stands for none."""
        return [name for name in self.label if name]

    @property
    def is_table(self) -> bool:
        """Whether the records are columns of a table, by name."""
        columns = self.features or self.label_columns or self.target or self.weight or self.categories
        key = self.split.key if self.split else ""
        return bool(columns or self.texts or self.numbers or self.na_values or key) or self.missing != "error"

    @property
    def needs_label(self) -> bool:
        """Whether records must have a label."""
        return self.has_label and bool(self.label_columns or not self.is_table)

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Refuse a division by zero, and a part of a record."""
        yield from NamedColumns.rules(data)
        yield from ImageOptions.rules(data)
        if raw_value(data, "std_value", float, 1.0) == 0 or raw_value(data, "std_value", int, 1) == 0:
            yield ("std_value",), "expected another number than 0: records are divided by it."
        keys = [key for key in ("mean_file", "std_file", "mean_value", "std_value") if _has(data, key)]
        if raw_value(data, "standardise", bool, False) and keys:
            yield ("standardise",), f"it computes mean and standard deviation itself. Leave out {' and '.join(keys)}."
        for key in (*keys, "standardise", "augment") if data.get("texts") else ():
            if data.get(key):
                yield (key,), "texts are numbers of tokens, which it would change. Leave it out."
        shape = raw_value(data, "shape", list, [])
        if raw_value(data, "layout", str, "") == "NHWC" and shape and len(shape) != 3:
            yield ("layout",), f"NHWC is for images, whose shape is [channels, height, width]. Got shape {shape}."
        most = raw_value(data, "max_bad", float, 1.0)
        if most > 1 and not most.is_integer():
            yield ("max_bad",), f"expected a whole number, or a share below 1, got {most}."


def _has(data: Mapping[str, Any], key: str) -> bool:
    return raw_value(data, key, object, None) not in (None, "")


def options_of(conf: StoreConf) -> fs.Options:
    """Return the options of the filesystem, with those of the cache and the limit of decompression."""
    options = dict(conf.storage_options or {})
    if conf.cache is not None:
        options[fs.CACHE] = conf.cache.model_dump()
    if conf.max_decompressed_mb != DEFAULT_LIMIT_MB:
        options[fs.MAX_DECOMPRESSED] = conf.max_decompressed_mb
    return options


def open_records(conf: StoreConf, backend: str | None, facts: TableFacts | None = None) -> Store:
    """Open records with the options that ``store_conf`` has for their format.

    ``facts`` is what is known of the training data, of a table with named columns.

    Raises
    ------
    DataError
        They cannot be opened, or the format does not take one of the options.
    """
    # runs of earlier versions say resize: []
    options = {
        key: _single(key, getattr(conf, key))
        for key in FORMAT_KEYS
        if getattr(conf, key) not in (StoreConf.model_fields[key].default, [])
    }
    if not backend and (options or conf.user_conf) and not is_pattern(conf.path, conf.storage_options):
        backend = detect(conf.path, conf.storage_options)
    backend = table_or(backend, conf)
    cls = STORES.find(backend) if backend else None
    if cls is TableStore or (conf.is_table and (cls is None or cls.table_format)):
        return _open_table(conf, cls, facts)
    for key in [] if cls is None else sorted(options.keys() - cls.option_names()):
        takers = [name for name in STORES.names() if key in (STORES.get(name) or Store).option_names()]
        hint = " Convert with --resize, or give one of these as backend." if key in ImageOptions.model_fields else ""
        raise DataError(f"{conf.path}: {key} is for {', '.join(takers)}, not for {backend}.{hint}")
    options |= {"truncated": conf.on_error != "raise", **conf.user_conf}
    return open_store(conf.path, backend, options_of(conf), **options)


def table_or(backend: str | None, conf: StoreConf) -> str | None:
    """Return the format of records: table for JSON lines of which a job says what only tables know, such as texts."""
    if backend != "jsonl":
        return backend
    others = [key for key in NAMING if key not in STORES.find(backend).option_names()]
    said = any(getattr(conf, key) != StoreConf.model_fields[key].get_default() for key in others)
    return "table" if said or (conf.split and conf.split.key) else backend


def _single(key: str, value: Any) -> Any:
    """Return an option as a format takes it that has one label, and one field of values."""
    return value[0] if key in ("features", "label") and isinstance(value, list) and len(value) == 1 else value


def _open_table(conf: StoreConf, cls: type[Store] | None, facts: TableFacts | None) -> Store:
    if facts is not None and not conf.features:
        # without others that this table may have, in the order of the training data
        conf = conf.model_copy(update={"features": list(facts.features)})
    options = {
        **{key: getattr(conf, key) for key in NamedColumns.model_fields},
        "format": cls.table_format if cls else "",
        "facts": facts.to_dict() if facts else None,
        "split": conf.split and conf.split.model_dump(),
        "tolerant": conf.on_error != "raise",
    }
    return TableStore(conf.path, options_of(conf), **{**options, **conf.user_conf})


def with_column_shape(conf: StoreConf) -> StoreConf:
    """Return ``store_conf`` with a shape, if it has none, but names each column of a record."""
    has_pattern = any(character in name for name in conf.features for character in "*?[")
    if conf.shape or not conf.features or has_pattern or {*conf.categories, *conf.texts} & {*conf.features}:
        return conf
    return conf.model_copy(update={"shape": [len(conf.features)]})


# -- shapes ------------------------------------------------------------------------------------------


def stored_shape(conf: StoreConf) -> tuple[int, ...]:
    """Return the shape that records have in the store: ``shape``, or (height, width, channels) of it."""
    shape = tuple(conf.shape)
    return (*shape[1:], shape[0]) if conf.layout == "NHWC" else shape


def same_shape(actual: Sequence[int], expected: Sequence[int]) -> bool:
    """Tell whether two shapes differ by axes of length one alone; a flat one is never the same as one that is not."""
    return _squeezed(actual) == _squeezed(expected)


def check_shape(url: str, actual: Sequence[int], conf: StoreConf, what: str = "records") -> None:
    """Compare the shape of a store's records with what a job says.

    Axes of length one do not count. Flat records can have any shape of their size, and any record can be read as a flat
    one; everything else would put values in wrong places. ``what`` is what has the shape, for the error.

    Raises
    ------
    DataError
        They do not agree.
    """
    expected = stored_shape(conf)
    flat = min(len(_squeezed(actual)), len(_squeezed(conf.shape))) <= 1
    if same_shape(actual, expected) or (flat and math.prod(actual) == math.prod(expected)):
        return
    said = "shape and layout: NHWC say" if conf.layout == "NHWC" else "shape says"
    hint = _hint(tuple(actual), conf) if math.prod(actual) == math.prod(expected) else ""
    raise DataError(f"{url}: {what} of {tuple(actual)}, expected {expected}, as {said}.{hint}")


def check_records(store: Store, conf: StoreConf) -> None:
    """Compare the shape and the fields of a store's records with what a job says.

    Raises
    ------
    DataError
        They do not agree.
    """
    values = store.schema.get("data") or store.schema.get("pixel")
    if values is None:
        raise DataError(f"{store.url}: only {', '.join(store.schema)}, expected {tuple(conf.shape)}, as shape says.")
    names = store.table_facts.names if store.table_facts else ()
    check_shape(store.url, values.shape, conf, f"records ({listed(names)})" if names else "records")
    if conf.needs_label and "label" not in store.schema:
        if "target" in store.schema and not store.table_facts:
            raise DataError(
                f"{store.url}: the records have targets, which are floats, and no labels. Give labels as integers or "
                "texts, such as y.astype(int), or set has_label: false to do without."
            )
        raise without_labels(store.url, bool(store.table_facts), store.other_fields)


def without_labels(url: str, is_table: bool, others: Sequence[str] = ()) -> DataError:
    """Return the error of records that have no labels, which a layer needs; ``others`` are fields that could be."""
    hint = "Name the column in label, or set" if is_table else "Set"
    if others:
        hint = f"Name one of {listed(others)} by user_conf: {{label: NAME}}, or set"
    return DataError(f"{url}: the records have no labels. {hint} has_label: false to do without.")


def _hint(actual: tuple[int, ...], conf: StoreConf) -> str:
    """Say what to do about records that have the right size, but another shape."""
    shape = tuple(conf.shape)
    if same_shape(actual, shape):
        return " These are channels first: leave layout out."
    if len(shape) == 3 and same_shape(actual, (*shape[1:], shape[0])):
        return (
            " These look like (height, width, channels): set layout: NHWC to read them so, or store them channels "
            "first, with array.transpose(0, 3, 1, 2)."
        )
    if len(shape) == 3 and same_shape(actual, (shape[2], *shape[:2])):
        return f" The shape of images is [channels, height, width]: set shape: {list(actual)}."
    return f" Set shape: {list(actual)}, or shape: [{math.prod(actual)}] for values in a row."


def in_layout(values: npt.NDArray[Any], conf: StoreConf) -> npt.NDArray[Any]:
    """Return a batch of images (N, height, width, channels) as a view (N, channels, height, width) if so laid out."""
    if conf.layout != "NHWC" or values.size != len(values) * math.prod(conf.shape):
        return values
    return np.moveaxis(values.reshape(len(values), *stored_shape(conf)), -1, 1)


def _squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def open_named(conf: StoreConf, backend: str | None, facts: TableFacts | None, plain: Callable[[], Store]) -> Store:
    """Open records as ``plain`` does, or if they have named columns in another order, by the names of ``facts``.

    Columns that the net does not read are passed over. Records without names are taken by position.

    Raises
    ------
    DataError
        They cannot be opened, or lack a column.
    """
    if facts is None:
        return plain()
    store, failure = None, DataError(conf.path)
    try:
        store = plain()
    except DataError as error:
        failure = error
    if store is not None and store.table_facts is not None and store.table_facts.names == facts.names:
        return store
    named = _open_by_name(conf, backend, facts, store)
    if store is None:
        if named is None:
            raise failure
        return named
    if named is not None:
        store.close()
    elif store.table_facts is None and "data" in store.schema:
        _warn_once(conf.path)
    return named or store


@functools.lru_cache(256)
def _warn_once(url: str) -> None:
    logger.warning("%s: no names of columns, so they are taken in the order of the training data", url)


def _open_by_name(conf: StoreConf, backend: str | None, facts: TableFacts, plain: Store | None) -> Store | None:
    """Open the columns of ``facts``; None if the records have no names, or the format reads no columns by name.

    ``plain`` are the records by position, None if they cannot be opened so.
    """
    options = options_of(conf)
    with contextlib.suppress(DataError):
        backend = backend or detect(conf.path, options)
    by_key = backend in ("jsonl", "tfrecord") and "features" not in conf.user_conf
    if backend and by_key and (plain is None or plain.table_facts is not None):
        return STORES.find(backend)(conf.path, options, features=facts.features, **conf.user_conf)
    kind = STORES.find(backend).table_format if backend and backend in STORES.names() else ""
    header: list[str] = []
    if kind == "csv" and conf.header is not False:
        with contextlib.suppress(DataError):
            part = CsvPart(table_files(conf.path, options)[0].url, options, conf.separator)
            part.source.close()
            header = list(part.names)
    if not header and backend != "table" and (kind != "parquet" or plain is not None):
        return None
    labels = list(facts.labels) or [name for name in header[:1] if name not in facts.features]
    columns = {"features": list(facts.features), "label": labels if conf.has_label else []}
    return open_records(conf.model_copy(update=columns), kind, facts)


def read_statistic(conf: StoreConf, key: str, shape: Sequence[int], dtype: DType) -> Array | float | None:
    """Return mean or std: one record of the file, else the value, else None.

    Parameters
    ----------
    conf : StoreConf
    key : str
        ``"mean_file"`` or ``"std_file"``.
    shape : sequence of int
        Of a record, for the result.
    dtype : dtype

    Raises
    ------
    DataError
        The file cannot be read, or its records have another shape.
    """
    url = getattr(conf, f"{key.removesuffix('_file')}_file")
    value: float | None = getattr(conf, f"{key.removesuffix('_file')}_value")
    if not url:
        return value
    backend = detect(url, conf.storage_options) or conf.backend
    # there a line of text has no label, whatever the records have
    text = {"separator": conf.separator, "has_label": False} if backend in backends_holding("text") else {}
    with open_store(url, backend, conf.storage_options, **text) as store:
        arrays = store.read_block(0)
    record = (arrays["data"] if "data" in arrays else arrays["pixel"])[0]
    # one that is channels first, as shape says, is taken as it is, whatever the layout of the records
    if same_shape(record.shape, stored_shape(conf)) or not same_shape(record.shape, conf.shape):
        check_shape(url, record.shape, conf, "a record")
        record = in_layout(record[None], conf)[0]
    statistic: Array = record.reshape(shape).astype(dtype)
    return statistic
