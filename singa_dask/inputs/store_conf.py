"""StoreConf: the block of a job that describes the records of an input layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from singa_dask import fs
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Field, Many, Positive, RegisteredName, Size
from singa_dask.conf.mistakes import MISPLACED_KEY, PLAIN, Finding, Mistake
from singa_dask.conf.parts import read_options
from singa_dask.data.split import SplitConf
from singa_dask.data.stores import STORES
from singa_dask.data.stores.images.image_decoding import ImageOptions
from singa_dask.data.stores.tables.table_options import NAMING, NamedColumns
from singa_dask.errors import ConfigError
from singa_dask.fs.decompression import DEFAULT_LIMIT_MB
from singa_dask.inputs.augmentation import AugmentConf


class CacheConf(Conf):
    """``cache``: a directory on a local disk that the processes of a host share."""

    dir: str = ""
    """A new or empty directory, or an earlier cache. Default: SINGA_DASK_CACHE, or else ~/.cache/singa-dask."""
    limit_gb: Positive = 20.0
    """Maximum size in 10**9 bytes; the least recently used blocks are deleted first."""


class _SharedConf(Conf):
    """Keys that all formats have."""

    backend: Annotated[str, RegisteredName("store")] = ""
    """Format of the store; detected if empty."""
    path: str = ""
    """URL or path of the records."""
    split: SplitConf | None = None
    """Read only the training records or only the test records, e.g. ``{part: train, test_share: 0.2}``. By default
    all records are read."""
    mean_file: str = ""
    """Store whose first record is subtracted from each record."""
    std_file: str = ""
    """Store with a record, its first, by which each record is divided."""
    mean_value: Many[float] = Field(default=[])
    """Number subtracted from each value, if there is no mean_file; or a list with a number for each channel of an image
    (channels, height, width), otherwise for each value of a record."""
    std_value: Many[float] = Field(default=[])
    """Number by which each value is divided, if there is no std_file; or a list as in mean_value."""
    standardise: bool = False
    """Subtract from each value of a record, or each channel of an image (channels, height, width), its mean over all
    training records, and divide by its standard deviation. Both are computed once, in 64 bits, before the training, and
    saved in checkpoints. Set this key in the layers of the test and validation nets, too; these layers use the mean
    and standard deviation of the training records."""
    batchsize: Many[Size] = Field(default=[])
    """Number of records per step of the whole worker group, divided among its workers as equally as possible; or a
    list with a number for each worker."""
    shape: Many[Size] = Field(default=[])
    """Shape of one record; of an image always (channels, height, width)."""
    encoded: bool = False
    """Unused, in SINGA too."""
    random_skip: Count = 0
    """Start at a random record among this number of first records."""
    prefetching: bool = False
    """Unused, because batches are always read while the net computes."""
    shuffle: Literal["none", "block", "full"] = "none"
    """Order of records: as stored, shuffled within windows of blocks, or fully shuffled in each epoch."""
    window: Size = 64
    """Number of blocks in a window for ``shuffle: block``. For Parquet with large row groups, the number of row
    groups."""
    last_batch: Literal["wrap", "drop_last", "pad"] = "wrap"
    """What to do with an incomplete batch at the end of an epoch: fill it from the next epoch, drop it, or pad it."""
    on_error: Literal["raise", "skip", "replace"] = "raise"
    """What to do with a record that cannot be read: raise an error, use the next good record instead, or a random
    one."""
    max_bad: float = Field(default=0.01, gt=0)
    """Maximum number of bad records per worker: a whole number, or a fraction (below 1) of all records."""
    labels: Count = 0
    """Number of classes; a record with a label outside of 0 to labels - 1 is bad. 0 for no check."""
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    """Order of the axes of images in the store: NHWC for records of (height, width, channels), as in NumPy, Pillow and
    TensorFlow. ``shape`` is (channels, height, width) in both cases."""
    storage_options: dict[str, Any] = Field(default={})
    """Options of fsspec for the filesystem of the URL. Options for hdfs:// are client (native, pyarrow, webhdfs), and
    with the client native also deadline_s, http (of the NameNode), config_dir, kerberos_principal, kerberos_keytab,
    kerberos_cache, and Hadoop settings such as dfs.replication."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of the store's format. Options of built-in formats may also be keys of store_conf."""
    augment: AugmentConf | None = None
    """Change records at random, in training only; ignored in layers of the test and validation nets."""
    cache: CacheConf | None = None
    """Cache blocks of remote files on a local disk of each host. By default there is no cache."""
    io_threads: Size = 32
    """Maximum number of simultaneous reads of a process from a remote filesystem."""
    in_flight_mb: Size = 64
    """Maximum MiB of blocks that a worker has requested from a remote filesystem, or decoded, and not used yet. One
    block is always allowed. This memory is part of memory_mb."""
    memory_mb: Size | None = None
    """Maximum MiB of memory of a worker for the records of this layer: batches read ahead, and blocks that are
    requested, read, shuffled, or kept for the next epoch. The default is 1280, but all layers of a process that read
    stores together use at most a third of the process's memory. In this division, a layer that shuffles gets twice
    the share of a test layer."""
    max_decompressed_mb: Positive = DEFAULT_LIMIT_MB
    """Maximum decompressed size of a gzipped file, or of a block of another format, in 10**6 bytes."""


class StoreConf(NamedColumns, ImageOptions, _SharedConf):
    """``store_conf``: records of a store, at any URL (SINGA's StoreProto and more).

    Options of the format are keys, too: `singa-dask layers FORMAT` lists them.
    """

    options_of = "store"

    @classmethod
    def arranged(cls, data: dict[str, Any], context: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
        """Move options of the format into ``user_conf``, and validate them if the job sets the format."""
        store, given = STORES.get(str(data.get("backend"))), data.get("user_conf")
        takers = [store] if store else STORES.classes()
        options = {key for each in takers for key in each.option_names()} - cls.model_fields.keys()
        if store and not store.is_named(["features", "label"]):
            options |= {"features", "label"}.intersection(store.option_names())
        moved = {
            key: as_single(key, value)
            for key, value in data.items()
            if key in options and (value or key not in cls.model_fields)
        }
        inner, mistakes = given if isinstance(given, dict) else {}, list[Mistake]()
        if moved and isinstance(given, dict | None):
            twice = "this key is in user_conf, too. Remove one of the two."
            mistakes = [Mistake(MISPLACED_KEY, (key,), twice) for key in moved.keys() & inner.keys()]
            inner = {**moved, **inner}
            data = {**{key: value for key, value in data.items() if key not in moved}, "user_conf": inner}
        if store is not None and store.is_named(key for key in NAMING if data.get(key)):
            store = STORES.find("table")
        if store is not None and store.options_class is not None and inner:
            try:
                read_options(store.options_class, inner)
            except ConfigError as error:
                mistakes += [Mistake(PLAIN, ("user_conf", *each.path), each.message) for each in error.problems]
        return data, mistakes

    @property
    def label_columns(self) -> list[str]:
        """Names of the columns with labels, without empty names."""
        return [name for name in self.label if name]

    @property
    def naming(self) -> list[str]:
        """Keys that name columns and that the job sets."""
        given = [key for key in NAMING if getattr(self, key) != type(self).model_fields[key].get_default()]
        # an empty label name means that records have no label
        given = [key for key in given if key != "label" or self.label_columns]
        return [*given, *(["split"] if self.split and self.split.key else [])]

    @property
    def is_table(self) -> bool:
        """Whether the records are named columns of a table."""
        return bool(self.naming)

    @property
    def needs_label(self) -> bool:
        """Whether records must have a label."""
        return self.has_label and bool(self.label_columns or not self.is_table)

    def rules(self) -> Iterator[Finding]:
        """Check the keys of normalisation, layout and bad records."""
        yield from NamedColumns.rules(self)
        yield from ImageOptions.rules(self)
        if 0 in self.std_value:
            yield ("std_value",), "expected a number other than 0, because records are divided by it."
        given = {key: getattr(self, key) for key in ("mean_file", "std_file", "mean_value", "std_value")}
        keys = [key for key, value in given.items() if value]
        if self.standardise and keys:
            yield ("standardise",), f"it computes mean and standard deviation itself. Leave out {' and '.join(keys)}."
        for key in (*keys, "standardise", "augment") if self.texts else ():
            if getattr(self, key):
                yield (key,), "it would change the numbers of the tokens of texts. Leave it out."
        if self.layout == "NHWC" and self.shape and len(self.shape) != 3:
            yield ("layout",), f"NHWC is for images, whose shape is [channels, height, width]. Got shape {self.shape}."
        if self.max_bad > 1 and not self.max_bad.is_integer():
            yield ("max_bad",), f"expected a whole number, or a share below 1, got {self.max_bad}."


def options_of(conf: StoreConf) -> fs.Options:
    """Return the options of the filesystem, including cache settings and the limit of decompression."""
    options = dict(conf.storage_options or {})
    if conf.cache is not None:
        options[fs.CACHE] = conf.cache.model_dump()
    if conf.max_decompressed_mb != DEFAULT_LIMIT_MB:
        options[fs.MAX_DECOMPRESSED] = conf.max_decompressed_mb
    return options


def as_single(key: str, value: Any) -> Any:
    """Return the only item of ``features`` or ``label``, for formats with one such column.

    Values of other keys are returned unchanged.
    """
    return value[0] if key in ("features", "label") and isinstance(value, list) and len(value) == 1 else value


def with_column_shape(conf: StoreConf) -> StoreConf:
    """Set the shape to the number of columns, if the job names all columns of a record and sets no shape."""
    has_pattern = any(character in name for name in conf.features for character in "*?[")
    has_wide = not {*conf.categories, *conf.texts, *conf.dates}.isdisjoint(conf.features)
    if conf.shape or not conf.features or has_pattern or has_wide:
        return conf
    return conf.model_copy(update={"shape": [len(conf.features)]})
