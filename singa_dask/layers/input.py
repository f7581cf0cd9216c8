"""Input layers: each gives the net one batch of records a step, as floats, with their labels.

A layer knows its shape from the job alone; the store is opened at the first batch, in the process that computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.conf.model import Conf
from singa_dask.data import Arrays, BadPolicy, Loader, Sampler, Store, Survey, fs, random_skip
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.loading.loader import Batch
from singa_dask.data.order.shuffle import GroupRecords
from singa_dask.data.stores.class_names import LabelMatch, find_label, has_several_labels, show_names
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.base import LAYERS
from singa_dask.layers.feature import Raw, Records
from singa_dask.layers.input_layer import InputLayer
from singa_dask.layers.named_columns import open_named
from singa_dask.layers.record_reader import RecordReader, read_statistic
from singa_dask.layers.records import (
    StoreConf,
    check_records,
    in_layout,
    open_records,
    open_text,
    options_of,
    with_column_shape,
)
from singa_dask.layers.site import Context, Site
from singa_dask.layers.standardise import find_scaling
from singa_dask.ops.contract import Array


class StoreInput(InputLayer):
    """What layers that read a store share (SINGA's StoreInputLayer and SingleLabelRecordLayer).

    The output is (batchsize / n_workers, *shape), ``(x - mean) / std`` where the job gives these, by value or as the
    first record of a store, or says ``standardise``. The workers of a group together read each of its records once an
    epoch; groups read different records. Labels of a store with class names are matched by name with those of the
    training data.
    """

    block: ClassVar[type[Conf] | None] = StoreConf
    default_backend: ClassVar[str | None] = None
    label_column = ""
    """Name of the label to read, if records have several."""
    reads_outputs = False
    """Whether it reads labels or targets of the records of another input layer."""
    open_plain: ClassVar[Callable[..., Store]] = staticmethod(open_records)
    n_records: int | None = None
    """Records of the store, once `check_source` or `count` has opened it."""
    passed = 0
    """Records to pass over at the start, beside those of ``random_skip``."""
    span: tuple[int, int] | None = None
    """First record, and the one after the last, to read again and again; None for all. One batch is not read ahead."""

    def __init__(self, conf: LayerConf, context: Context, site: Site | None = None) -> None:
        super().__init__(conf, context, site)
        self.store_conf = self.adapted(conf.block(StoreConf))
        self.reader = RecordReader(self.open_checked, self._make_loader, self.conf_name, context.gate)
        self._labels = LabelMatch()
        self._mean: Array | float | None = None
        self._std: Array | float | None = None
        self._scaling: Scaling | None = None

    def adapted(self, conf: StoreConf) -> StoreConf:
        """Return ``store_conf`` as this type of layer takes it."""
        return with_column_shape(conf)

    def setup(self) -> None:
        store = self.store_conf
        missing = [key for key in ("path", "batchsize", "shape") if not getattr(store, key)]
        if missing:
            raise ConfigError([Problem(("store_conf", key), f"{self.conf.type} needs it.") for key in missing])
        self.batch_size = sum(store.batchsize)
        self.add_output((self._own_rows(), *store.shape), requires_grad=False, own_data="consumed")

    def _own_rows(self) -> int:
        """Return how many rows of a batch this worker reads."""
        sizes, n_workers = self.store_conf.batchsize, self.site.batch_shard.count
        shares = (self.context.shares if n_workers > 1 else ()) or (1,) * n_workers
        parts = [share * self.batch_size // sum(shares) for share in shares]
        if self.batch_size % sum(shares) or (len(sizes) > 1 and sizes != parts):
            message = f"expected a multiple of the {n_workers} workers of a group, got {sizes[0]}."
            if n_workers == 1:
                message = f"expected one number, for this layer has no partition_dim: 0, got {sizes}."
            elif len(sizes) > 1 or self.context.shares:
                shown = f"in the proportions {' : '.join(map(str, shares))}"
                message = f"expected a number for each of the {n_workers} workers of a group, {shown}, got {sizes}."
            raise ConfigError(Problem(("store_conf", "batchsize"), message))
        return parts[self.site.batch_shard.index]

    def forward(self, phase: Phase) -> None:
        batch, epochs = self.reader.next()
        feature = self.features[0]
        values, labels = self._parsed(self._labels.apply(batch.arrays))
        if self._scaling is not None and values.dtype != np.uint8:
            raw = Raw(self._scaling.scale(values, self.context.param_dtype))
        else:
            plain = values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32)
            raw = Raw(plain, self._mean, self._std)
        if feature.has_data:
            self.ops.normalize(*raw, out=feature.data)
        else:
            feature.raw = raw
        if labels is not None:
            # the loader uses its memory again
            labels = self.ops.labels(np.array(labels, np.int32), feature.labels)
        feature.records = Records(labels, batch.ids, epochs)

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        """Make values and labels of a whole batch of records (SINGA's Parse); for parsers of the user's own.

        Parameters
        ----------
        arrays : dict of str to ndarray, (N, ...)
            The fields of the records, as the store has them: not to be written to. ``pixel`` uint8 or ``data`` float32,
            ``label`` int32 if there are any; a store of the user's own may have others.

        Returns
        -------
        values : ndarray, (N, *shape) or as many values
            Numbers, before mean and std; what is no uint8 becomes float32 with them.
        labels : ndarray, (N,) integers, or None
        """
        values = arrays["data"] if "data" in arrays else arrays["pixel"]
        return in_layout(values, self.store_conf), arrays.get("label")

    def _parsed(self, arrays: Arrays) -> tuple[Array, Array | None]:
        values, labels = self.parse(arrays)
        values = np.asarray(values)
        n, size = len(next(iter(arrays.values()))), self.features[0].size
        if values.size != n * size or (labels is not None and np.shape(labels) != (n,)):
            told = "no labels" if labels is None else f"labels {np.shape(labels)}"
            raise DataError(
                f"layer {self.name}: {type(self).__name__}.parse() made values {values.shape} and {told} of {n} "
                f"records, expected values {(n, *self.features[0].shape[1:])}, and labels {(n,)} or None."
            )
        wrong = None if labels is None else find_wrong_label(np.asarray(labels))
        if wrong is not None:
            raise DataError(f"layer {self.name}, row {wrong[0]} of a batch: {wrong[1]}.")
        return values.reshape(n, *self.features[0].shape[1:]), labels

    def values_of(self, arrays: Arrays) -> Array:
        """Return the values of records, (n, *shape), neither normalised nor rounded."""
        return self._parsed(self._labels.apply(arrays))[0]

    # -- the store -------------------------------------------------------------------------------

    def open_store(self, url: str, backend: str | None) -> Store:
        """Open a store as this type of layer reads it, with named columns in the order of the training data."""
        conf, options = self.store_conf, options_of(self.store_conf)
        if conf.is_table:
            return open_records(conf, url, backend, options, self._table_facts)
        plain = partial(self.open_plain, conf, url, backend, options)
        return open_named(conf, url, backend, options, self._table_facts(), plain)

    def _table_facts(self) -> TableFacts | None:
        """Return what the training net has learned of the columns of a table; None if this layer learns it."""
        return self.context.class_names.table_of(self.conf_name, self.context.phase == Phase.TRAIN)

    def check_source(self) -> None:
        """Compare the stores with what the job says about them, before anything runs.

        Raises
        ------
        ConfigError
            A store cannot be opened, or holds other records; all problems at once, with paths relative to the layer.
        """
        problems = []
        try:
            with self.open_checked() as store:
                self.n_records = store.count
        except DataError as error:
            problems.append(Problem(("store_conf", "path"), str(error)))
        for key in ("mean_file", "std_file"):
            try:
                self._read_statistic(key)
            except DataError as error:
                problems.append(Problem(("store_conf", key), str(error)))
        if problems:
            raise ConfigError(problems)

    def open_checked(self) -> Store:
        """Open the store, compared with the job and the training data; errors are those of `survey`."""
        conf = self.store_conf
        store = self.open_store(conf.path, conf.backend or self.default_backend)
        try:
            self._labels = self._match_labels(store)
            self.context.class_names.match_table(self.conf_name, store, self.context.phase == Phase.TRAIN)
            self._check_records(store)
        except DataError:
            store.close()
            raise
        if conf.standardise:
            store.widen()
        return store

    # -- class names -----------------------------------------------------------------------------

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, by label as the net gets it; empty where they are not known.

        Known from a checkpoint, or once the training layer has opened its store.
        """
        return self.context.class_names.find(self.conf_name)

    def read_class_names(self) -> tuple[str, ...]:
        """Open the store, and return the names of its classes."""
        with self.open_store(self.store_conf.path, self.store_conf.backend or self.default_backend) as store:
            self.context.class_names.match_table(self.conf_name, store, learns=True)
            return find_label(store, self.label_column)[1]

    def _match_labels(self, store: Store) -> LabelMatch:
        known, name = self.context.class_names, self.conf_name
        learns, required = self.context.phase == Phase.TRAIN, self.store_conf.needs_label
        return known.match(name, store, learns, required, self.label_column)

    def _check_labels(self, store: Store) -> None:
        """Check that the net reads one label of each record, and that the class numbers of a job are for one label."""
        if not has_several_labels(store) or not self.store_conf.has_label:
            return
        if self.store_conf.labels:
            raise DataError(f"{store.url}: several labels. Expected one for labels: {self.store_conf.labels}.")
        if not self.label_column and any("labels" in feature.consumed_as for feature in self.features):
            names = show_names(list(store.table_facts.labels)) if store.table_facts else "several"
            raise DataError(
                f"{store.url}: records have the labels {names}, and the net reads one of them from layer "
                f"{self.conf_name!r}. Read each by a LabelInput layer with the same store_conf."
            )

    def _check_records(self, store: Store) -> None:
        self._check_labels(store)
        if type(self).parse is not StoreInput.parse:
            # what it makes of records is not known before it has made it of one
            first = {name: array[:1] for name, array in store.read_block(0).items()}
            self._parsed(self._labels.apply(first))
            return
        check_records(store, self.store_conf)

    def statistics(self) -> tuple[Array | float | None, Array | float | None]:
        """Read mean and std, of a record or for all values; None where the job gives none. See `Scaling.divisor`."""
        if (scaling := find_scaling(self)) is not None:
            return scaling.mean, scaling.divisor
        return self._read_statistic("mean_file"), self._read_statistic("std_file")

    def _read_statistic(self, key: str) -> Array | float | None:
        """Return mean or std: one record of the file, else the value, else None."""
        return read_statistic(self.store_conf, key, self.features[0].shape[1:], self.context.param_dtype)

    def survey(self) -> Survey | None:
        """Return where the blocks of the store lie, None if its filesystem has no such thing.

        Raises
        ------
        DataError
            The store cannot be opened, or holds other records.
        """
        if not fs.has_locations(self.store_conf.path, self.store_conf.storage_options):
            return None
        with self.open_checked() as store:
            return Survey.of(store)

    def count(self) -> int:
        """Return how many records the store has; opens it once, with the errors of `survey`."""
        if self.n_records is None:
            with self.open_checked() as store:
                self.n_records = store.count
        return self.n_records

    def steps_per_epoch(self, batch_size: int = 0) -> Fraction:
        size = batch_size or self.batch_size
        return GroupRecords.steps_per_epoch(self.count(), size, self.context.n_groups, self.store_conf.last_batch)

    def make_order(self, sizes: Sequence[int], fingerprint: str) -> Sampler:
        """Return the order in which the group reads a store of blocks of these sizes."""
        conf, context = self.store_conf, self.context
        return Sampler(
            sizes,
            self.batch_size,
            conf.shuffle,
            context.seed,
            group=context.group,
            n_groups=context.n_groups,
            window=conf.window,
            assignment=context.deals.get(self.conf_name),
            skip=random_skip(context.seed, self.conf_name, context.group, conf.random_skip) + self.passed,
            fingerprint=fingerprint,
            last_batch=conf.last_batch,
            shares=context.shares if self.site.batch_shard.count > 1 else (),
            span=self.span,
        )

    def read_statistics(self) -> None:
        """Read the mean and std that records are normalised by; for a layer that is to be fed with `feed`.

        Raises
        ------
        DataError
            One cannot be read, or has another shape than a record.
        """
        self._scaling = find_scaling(self)
        self._mean, self._std = (
            self.ops.constant(each.astype(self.context.param_dtype)) if isinstance(each, np.ndarray) else each
            for each in self.statistics()
        )

    def feed(self, arrays: Arrays, first: int = 0) -> None:
        """Set the records of the next batch, in place of those of the store.

        Parameters
        ----------
        arrays : dict of str to ndarray, (N, ...)
            Fields of the records, as `parse` takes them; labels as the net takes them.
        first : int
            Index of the first record.
        """
        n = len(next(iter(arrays.values())))
        self.reader.give(Batch(arrays, np.arange(first, first + n)))

    def _make_loader(self, store: Store) -> Loader:
        """Return the loader of this worker's records of a store."""
        conf, context, shard = self.store_conf, self.context, self.site.batch_shard
        self.read_statistics()
        sampler = self.make_order([block.n for block in store.blocks], store.fingerprint)
        policy = BadPolicy(conf.on_error, conf.max_bad, conf.labels, context.seed)
        return Loader(
            store,
            sampler,
            shard.index,
            shard.count,
            prefetch=self.span is None or self.span[1] - self.span[0] > self.batch_size,
            name=self.name,
            policy=policy,
            host_names=context.host_names,
            n_io_threads=conf.io_threads,
            in_flight_bytes=conf.in_flight_mb << 20,
            bytes_bound=None if conf.memory_mb is None else conf.memory_mb << 20,
            share=context.reader_bytes,
        )

    # -- the position in the records -------------------------------------------------------------

    @property
    def epoch(self) -> float | None:
        return self.reader.epoch

    def cursor(self) -> dict[str, Any] | None:
        return self.reader.cursor()

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go to the position that `cursor` returned.

        Raises
        ------
        DataError
            The records or their order are others now; at once, or at the first batch if the store is not open.
        """
        self.reader.seek(cursor)

    def advance(self, n_batches: int) -> None:
        self.reader.advance(n_batches)

    def close(self) -> None:
        self.reader.close()


@LAYERS.register()
class RecordInput(StoreInput):
    """Records of any store: pixels become floats as they are normalised, ``data`` is taken where a record has it."""


@LAYERS.register()
class CSVInput(StoreInput):
    """Records of text lines: a label (if ``has_label``), then numbers, any character of ``separator`` between them.

    A first line with the names of the columns is passed over.
    """

    default_backend = "csv"
    open_plain = staticmethod(open_text)
