"""StoreInput: layers that read one batch of records per step, as floats with labels.

The shape of a layer depends only on the job. The store is opened for the first batch, in the process that computes.
`singa_dask.inputs.targets` has input layers for targets, labels and weights of the same records.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import LayerConf, Phase
from singa_dask.conf.base import Conf
from singa_dask.data.codecs.labels import find_wrong_label
from singa_dask.data.loading import Loader
from singa_dask.data.stores import Store
from singa_dask.data.stores.label_match import has_several_labels
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, Problem
from singa_dask.inputs.augmentation import Augmentation, Mixing, check_augment
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.normalisation import Normalisation, check_statistics
from singa_dask.inputs.read_plan import ReadPlan
from singa_dask.inputs.record_shapes import check_records, in_layout
from singa_dask.inputs.record_source import LinesSource, RecordSource
from singa_dask.inputs.store_conf import StoreConf, with_column_shape
from singa_dask.inputs.store_reader import StoreReader
from singa_dask.layers.base import LAYERS
from singa_dask.layers.feature import RecordIds
from singa_dask.layers.site import LayerSite
from singa_dask.ops.contract import Array
from singa_dask.wording import listed


class StoreInput(StoreReader):
    """Base of layers that read a store (SINGA's StoreInputLayer and SingleLabelRecordLayer).

    The output is (batchsize / n_workers, *shape). The output is ``(x - mean) / std`` if the job sets a mean or a std:
    as a number, as the first record of a store, or with ``standardise``. The workers of a group together read each of
    the group's records once per epoch. Groups read different records. Class names of labels are matched with the
    class names of the training data.
    """

    options_class: ClassVar[type[Conf] | None] = StoreConf
    source_class: ClassVar[type[RecordSource]] = RecordSource

    def __init__(self, conf: LayerConf, context: InputContext, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self.store_conf = self.adapted(conf.block(StoreConf))
        self.plan = ReadPlan(self.store_conf, self.conf_name, context, self.site.batch_shard)
        self.source = self.source_class(self.store_conf, self.conf_name, context, self._check_records)
        scales = not self.traits.reads_beside
        self.normalisation = Normalisation(self.store_conf, self.conf_name, context, scales)
        self._augmentation: Augmentation | None = None
        self._mixing: Mixing | None = None
        # the batch after the last one, if it was mixed into the last one
        self._following: tuple[Array, RecordIds] | None = None

    def adapted(self, conf: StoreConf) -> StoreConf:
        """Return ``store_conf`` adapted to this type of layer."""
        return with_column_shape(conf)

    def setup(self) -> None:
        store = self.store_conf
        missing = [key for key in ("path", "batchsize", "shape") if not getattr(store, key)]
        if missing:
            raise ConfigError([Problem(("store_conf", key), f"{self.conf.type} needs this key.") for key in missing])
        check_statistics(store)
        if store.augment is not None:
            shape = self.conf.block(StoreConf).shape or store.shape
            check_augment(store.augment, shape)
            mixing = store.augment.mixup, store.augment.cutmix
            if self.context.phase == Phase.TRAIN and any(mixing):
                self.mixing, key = mixing, (self.context.seed, "mixing")
                self._mixing = Mixing(store.augment, shape, lambda *at: self.ops.random_words(key, *at))
        self.add_output((self.plan.own_rows(), *store.shape), requires_grad=False, own_data="consumed")

    def forward(self, phase: Phase) -> None:
        feature = self.features[0]
        values, records = self._read() if self._mixing is None or self._fed else self._read_mixed(self._mixing)
        self._write(values)
        if records.labels is not None:
            records = replace(records, labels=self.ops.labels(records.labels, feature.records.labels))
        feature.records = records

    def _write(self, values: Array) -> None:
        """Normalise values into the output."""
        feature, raw = self.features[0], self.normalisation.apply(values)
        if feature.has_data:
            self.ops.normalize(*raw, out=feature.data)
        else:
            feature.raw = raw

    def write(self, arrays: Arrays) -> None:
        """Write records to the output, as `feed` and `forward` do, but without their labels and ids."""
        self._write(self.values_of(arrays))

    def _read(self) -> tuple[Array, RecordIds]:
        """Return the values of the next batch, (n, *shape), and its records' labels, ids and epochs."""
        batch, epochs = self.next_batch()
        values, labels = self._parsed(self.source.labels.apply(batch.arrays))
        if self._augmentation is not None:
            values = self._augmentation(values, batch.ids, epochs)
        if labels is not None:
            # copy the labels, because the loader reuses their memory
            labels = np.array(labels, np.int32)
        return values, RecordIds(labels, batch.ids, epochs)

    def _read_mixed(self, mixing: Mixing) -> tuple[Array, RecordIds]:
        """Return the next batch, mixed with the batch after it; the result has the form of `_read`'s."""
        loader = self._loader or self._open()
        following = self._following if loader.n_ahead else None
        values, records = following or self._read()
        others, partners = self._following = self._read()
        loader.n_ahead = 1
        values, shares = mixing(values, others, records)
        if records.labels is None or partners.labels is None:
            return values, records
        pair = np.where(shares >= 0.5, (records.labels, partners.labels), (partners.labels, records.labels))
        return values, RecordIds(pair[0], records.ids, records.epochs, pair[1], np.maximum(shares, 1 - shares))

    def parse(self, arrays: Arrays) -> tuple[Any, Any]:
        """Return values and labels of a batch of records (SINGA's Parse).

        A user's parser overrides this method.

        Parameters
        ----------
        arrays : dict of str to ndarray, (N, ...)
            The fields of the records: ``pixel`` uint8 or ``data`` float32, and ``label`` int32 if there are labels. A
            user's store may have other fields. The arrays are read-only.

        Returns
        -------
        values : ndarray, (N, *shape) or another shape of the same size
            Numbers before normalisation. Types other than uint8 are converted to float32.
        labels : ndarray, (N,) integers, or None
        """
        values = arrays["data"] if "data" in arrays else arrays["pixel"]
        return in_layout(values, self.store_conf), arrays.get("label")

    def _parsed(self, arrays: Arrays) -> tuple[Array, Array | None]:
        values, labels = self.parse(arrays)
        values = np.asarray(values)
        n, size = len(next(iter(arrays.values()))), self.features[0].size
        if values.size != n * size or (labels is not None and np.shape(labels) != (n,)):
            of_labels = "no labels" if labels is None else f"labels {np.shape(labels)}"
            raise DataError(
                f"layer {self.name}: {type(self).__name__}.parse() returned values {values.shape} and {of_labels} for "
                f"{n} records, expected values {(n, *self.features[0].shape[1:])}, and labels {(n,)} or None."
            )
        wrong = None if labels is None else find_wrong_label(np.asarray(labels))
        if wrong is not None:
            raise DataError(f"layer {self.name}, row {wrong[0]} of a batch: {wrong[1]}.")
        return values.reshape(n, *self.features[0].shape[1:]), labels

    def values_of(self, arrays: Arrays) -> Array:
        """Return the values of records, (n, *shape), before normalisation."""
        return self._parsed(self.source.labels.apply(arrays))[0]

    def check_source(self) -> None:
        """Check that the stores of the layer fit the job.

        Raises
        ------
        ConfigError
            A store cannot be opened, or its records do not fit. The error lists all problems, with paths relative to
            the layer.
        """
        problems = []
        try:
            self.count()
        except DataError as error:
            problems.append(Problem(("store_conf", "path"), str(error), remedy=error.remedy))
        problems += self.normalisation.problems()
        if problems:
            raise ConfigError(problems)

    def _check_labels(self, store: Store) -> None:
        """Check that the layer reads a single label for each record."""
        if not has_several_labels(store) or not self.store_conf.has_label:
            return
        if self.store_conf.labels:
            raise DataError(
                f"{store.url}: the records have several labels. Expected one for labels: {self.store_conf.labels}."
            )
        if not self.source.label_column and any("labels" in feature.consumed_as for feature in self.features):
            names = listed(list(store.table_facts.labels)) if store.table_facts else "several"
            raise DataError(
                f"{store.url}: records have the labels {names}, and the net reads one of them from layer "
                f"{self.conf_name!r}. Read each by a LabelInput layer with the same store_conf."
            )

    def _check_records(self, store: Store) -> None:
        self._check_labels(store)
        if type(self).parse is not StoreInput.parse:
            # apply the user's parser to one record, and check the result
            first = {name: array[:1] for name, array in store.read_block(0).items()}
            self._parsed(self.source.labels.apply(first))
            return
        check_records(store, self.store_conf)

    def count(self) -> int:
        """Return the number of records; see `RecordSource.count`."""
        return self.source.count(self.plan)

    def steps_per_epoch(self, batch_size: int = 0) -> Fraction:
        return self.plan.steps_per_epoch(self.count(), batch_size)

    def read_statistics(self) -> None:
        """Read the mean and std for the normalisation. Call this method before `feed`.

        Raises
        ------
        DataError
            A file cannot be read, or its record has another shape.
        """
        statistics = self.normalisation.prepare(self.ops)
        augment, (seed, name) = self.store_conf.augment, (self.context.seed, self.conf_name)
        if augment is not None and self.context.phase == Phase.TRAIN:
            shape = self.features[0].shape[1:]
            self._augmentation = Augmentation(
                augment, shape, *statistics, lambda what, *at: self.ops.random_words((seed, name, what), *at)
            )

    def make_loader(self, store: Store) -> Loader:
        self.read_statistics()
        return self.plan.make_loader(store, self.name)


@LAYERS.register()
class RecordInput(StoreInput):
    """Read records from any store: the field ``data`` if there is one, else ``pixel``."""


@LAYERS.register()
class CSVInput(StoreInput):
    """Read text lines: a label (if ``has_label``), then numbers.

    Label and numbers are separated by any character of ``separator``. A first line with the names of the columns is
    skipped.
    """

    source_class = LinesSource
