"""Input layers: each gives the net one batch of records a step, as floats, with their labels.

A layer knows its shape from the job alone; the store is opened at the first batch, in the process that computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.data import (
    Arrays,
    BadPolicy,
    Loader,
    Sampler,
    Store,
    Survey,
    detect,
    fs,
    open_store,
    random_skip,
    with_cache,
)
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.data.stores.class_names import LabelMatch
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.layers.base import LAYERS
from singa_dask.layers.context import Context
from singa_dask.layers.feature import Raw, Records
from singa_dask.layers.input_layer import InputLayer
from singa_dask.layers.record_reader import RecordReader
from singa_dask.layers.records import (
    StoreConf,
    check_shape,
    in_layout,
    open_records,
    open_text,
    same_shape,
    stored_shape,
)
from singa_dask.layers.site import Site
from singa_dask.ops.contract import Array

__all__ = ["CSVInput", "RecordInput", "StoreInput"]


class StoreInput(InputLayer):
    """What layers that read a store share (SINGA's StoreInputLayer and SingleLabelRecordLayer).

    The output is (batchsize / n_workers, *shape), ``(x - mean) / std`` where the job gives these, by value or as the
    first record of a store. The workers of a group together read each of its records once an epoch; groups read
    different records. Labels of a store with class names are matched by name with those of the training data.
    """

    block = StoreConf
    default_backend: ClassVar[str | None] = None
    passed = 0
    """Records to pass over at the start, beside those of ``random_skip``."""

    def __init__(self, conf: LayerConf, context: Context, site: Site | None = None) -> None:
        super().__init__(conf, context, site)
        self.store_conf = conf.block(StoreConf)
        self.reader = RecordReader(self._open_checked, self._make_loader, self.conf_name, context.gate)
        self._labels = LabelMatch()
        self._mean: Array | float | None = None
        self._std: Array | float | None = None

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
        if feature.has_data:
            self.ops.normalize(values, self._mean, self._std, out=feature.data)
        else:
            feature.raw = Raw(values, self._mean, self._std)
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
            Numbers, before mean and std of the job; what is no uint8 becomes float32.
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
        values = values.reshape(n, *self.features[0].shape[1:])
        return values if values.dtype in (np.uint8, np.float32) else values.astype(np.float32), labels

    # -- the store -------------------------------------------------------------------------------

    def open_store(self, url: str, backend: str | None) -> Store:
        """Open a store as this type of layer reads it."""
        return open_records(self.store_conf, url, backend, self._options())

    def _options(self) -> fs.Options:
        """Return the options of the filesystem, with those of the cache."""
        cache = self.store_conf.cache
        return with_cache(self.store_conf.storage_options, None if cache is None else cache.model_dump())

    def check_source(self) -> None:
        """Compare the stores with what the job says about them, before anything runs.

        Raises
        ------
        ConfigError
            A store cannot be opened, or holds other records; all problems at once, with paths relative to the layer.
        """
        problems = []
        try:
            with self._open_checked():
                pass
        except DataError as error:
            problems.append(Problem(("store_conf", "path"), str(error)))
        for key in ("mean_file", "std_file"):
            try:
                self._read_statistic(key)
            except DataError as error:
                problems.append(Problem(("store_conf", key), str(error)))
        if problems:
            raise ConfigError(problems)

    def _open_checked(self) -> Store:
        conf = self.store_conf
        store = self.open_store(conf.path, conf.backend or self.default_backend)
        try:
            self._labels = self._match_labels(store)
            self._check_records(store)
        except DataError:
            store.close()
            raise
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
            return store.class_names

    def _match_labels(self, store: Store) -> LabelMatch:
        known, name = self.context.class_names, self.conf_name
        return known.match(name, store, self.context.phase == Phase.TRAIN, self.store_conf.has_label)

    def _check_records(self, store: Store) -> None:
        if type(self).parse is not StoreInput.parse:
            # what it makes of records is not known before it has made it of one
            first = {name: array[:1] for name, array in store.read_block(0).items()}
            self._parsed(self._labels.apply(first))
            return
        values = store.schema.get("data") or store.schema.get("pixel")
        if values is None:
            shape = tuple(self.store_conf.shape)
            raise DataError(f"{store.url}: only {', '.join(store.schema)}, expected {shape}, as shape says.")
        check_shape(store.url, values.shape, self.store_conf)
        if self.store_conf.has_label and "label" not in store.schema:
            raise DataError(f"{store.url}: the records have no labels. Set has_label: false to do without.")

    def _read_statistic(self, key: str) -> Array | float | None:
        """Return mean or std: one record of the file, else the value, else None."""
        conf = self.store_conf
        url = getattr(conf, f"{key.removesuffix('_file')}_file")
        value: float | None = getattr(conf, f"{key.removesuffix('_file')}_value")
        if not url:
            return value
        backend = detect(url, conf.storage_options) or conf.backend
        # there a line of text has no label, whatever the records have
        text = {"separator": conf.separator, "has_label": False} if backend in ("csv", "textfile") else {}
        with open_store(url, backend, conf.storage_options, **text) as store:
            arrays = store.read_block(0)
        record = (arrays["data"] if "data" in arrays else arrays["pixel"])[0]
        # one that is channels first, as shape says, is taken as it is, whatever the layout of the records
        if same_shape(record.shape, stored_shape(conf)) or not same_shape(record.shape, conf.shape):
            check_shape(url, record.shape, conf, "a record")
            record = in_layout(record[None], conf)[0]
        made: Array = record.reshape(self.features[0].shape[1:]).astype(self.context.param_dtype)
        return made

    def _statistic(self, key: str) -> Array | float | None:
        """Return mean or std to compute with: a record of it where the device has it at hand."""
        found = self._read_statistic(key)
        return self.ops.constant(found) if isinstance(found, np.ndarray) else found

    def survey(self) -> Survey | None:
        """Return where the blocks of the store lie, None if its filesystem has no such thing.

        Raises
        ------
        DataError
            The store cannot be opened, or holds other records.
        """
        if not fs.has_locations(self.store_conf.path, self.store_conf.storage_options):
            return None
        with self._open_checked() as store:
            return Survey.of(store)

    def count(self) -> int:
        """Return how many records the store has.

        Raises
        ------
        DataError
            The store cannot be opened, or holds other records.
        """
        with self._open_checked() as store:
            return store.count

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
            deal=context.deals.get(self.conf_name),
            skip=random_skip(context.seed, self.conf_name, context.group, conf.random_skip) + self.passed,
            fingerprint=fingerprint,
            last_batch=conf.last_batch,
            shares=context.shares if self.site.batch_shard.count > 1 else (),
        )

    def _make_loader(self, store: Store) -> Loader:
        """Return the loader of this worker's records of a store."""
        conf, context, shard = self.store_conf, self.context, self.site.batch_shard
        self._mean, self._std = self._statistic("mean_file"), self._statistic("std_file")
        sampler = self.make_order([block.n for block in store.blocks], store.fingerprint)
        policy = BadPolicy(conf.on_error, conf.max_bad, conf.labels, context.seed)
        return Loader(
            store, sampler, shard.index, shard.count, name=self.name, policy=policy, host_names=context.host_names
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

    def open_store(self, url: str, backend: str | None) -> Store:
        return open_text(self.store_conf, url, backend, self._options())
