"""Model: a trained net that predicts from arrays, tables and pictures in memory, without Dask."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from singa_dask.arrays import Array
from singa_dask.conf import Phase
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.lags import LagsConf
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, warn_caller
from singa_dask.inference.filled_net import MetricSums, load_modules, using_modules
from singa_dask.inference.inference_job import PhaseJob, inference_job
from singa_dask.inference.memory_labels import LabelReader
from singa_dask.inference.memory_records import (
    MemoryReading,
    MemoryRecords,
    are_columns,
    as_named_columns,
    describe_columns,
)
from singa_dask.inference.model_source import ModelSource, find_source
from singa_dask.inference.output_decoder import OutputDecoder, refuse_with_probabilities
from singa_dask.inference.predicted_layers import label_layer, predicted_layer, predicts_classes, target_names
from singa_dask.inference.sized_nets import LoadedValues, SizedNets
from singa_dask.inference.stored_records import PYTHON, advised
from singa_dask.inference.tasks import merge_metrics
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs.job import Job
from singa_dask.jobs.run import AnyRun
from singa_dask.layers import LAYERS
from singa_dask.redaction import redact
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.devices import device_of_part
from singa_dask.runtime.planning.nets import build_net, find_ops
from singa_dask.shown import plural

# number of unpickled models that a process keeps, to read their values only once
MAX_RECEIVED = 2
# maximum number of columns in an example record
MAX_EXAMPLE = 20


class EncodedRecords(NamedTuple):
    """Records that `Model.encode` has encoded.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Fields of the records, for `Model.compute`; empty if there are no records.
    n : int
        Number of records to predict.
    counts : FillCounts
        Number of missing values that were filled in.
    warning : str
        See `MemoryRecords`.
    n_later : int
        Number of later records of a time series that are not forecast yet.
    """

    arrays: Arrays
    n: int
    counts: FillCounts
    warning: str
    n_later: int = 0


class Model:
    """A trained net, returned by `load_model`. Threads can share it; one thread computes at a time.

    A pickled model contains the URL of its checkpoint, not the values. A process that unpickles the model reads the
    values once.

    Attributes
    ----------
    url : str
        URL of the run, or of the checkpoint.
    step : int
        Number of training steps before the checkpoint.
    source : ModelSource
        The job and checkpoint that the model was loaded from.
    """

    def __init__(self, source: ModelSource) -> None:
        self.source = source
        self.url, self.step = source.url, source.step
        load_modules(source.sources)
        self._job = source.job_file()
        self._exposed = self._phase_job(exposed=True)
        job = self._exposed.job
        ops = find_ops(job, device_of_part(job, 0))
        initial = InitialValues(job, (source.checkpoint,), averaged=True)
        self._loaded = LoadedValues(initial, ops, sources=source.sources)
        self._lock = threading.RLock()
        self._nets: dict[str, SizedNets] = {}
        self._decoders: dict[str, OutputDecoder] = {}
        self._plain_readings: dict[str, MemoryReading | None] = {}
        self._readings: dict[tuple[StoreInput, bool, bool], MemoryReading] = {}

    # -- properties of the model -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._job.job.name

    @cached_property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Shape of each layer's output for one record, by the name of the layer.

        The result has the layers of the test net. A SoftmaxLoss outputs probabilities.
        """
        job = self._exposed
        try:
            with using_modules(self.source.sources):
                net = build_net(job.job, job.phase)
        except ConfigError as error:
            raise self._job.locate(job.locate(error)) from None
        shapes = {}
        for layer in net.layers:
            if len(layer.features) == 1 and layer.traits.role != "output":
                steps = (layer.site.n_steps,) if layer.site.n_steps > 1 else ()
                shapes[layer.conf_name] = (*steps, *layer.features[0].shape[1:])
        return {each.name: shapes[each.name] for each in job.job.neuralnet.layer if each.name in shapes}

    @cached_property
    def output(self) -> str:
        """Name of the default layer of `predict`: it has class probabilities, or else values to predict.

        Raises
        ------
        ConfigError
            Several layers have class probabilities or values to predict.
        """
        return predicted_layer(self._job.job, Phase.TEST)

    @cached_property
    def is_classifier(self) -> bool:
        """Whether the net has a layer with class probabilities."""
        layers = self._job.job.neuralnet.layer
        return any(each.in_phase(Phase.TEST) and predicts_classes(each) for each in layers)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of `output`; empty if classes have only numbers."""
        decoder = self.decoder(self.output)
        return decoder.names if decoder.has_classes else ()

    # -- inference -------------------------------------------------------------------------------------------

    def predict(
        self, x: Any, layer: str | None = None, *, proba: bool = False, threshold: float | None = None
    ) -> Array:
        """Predict the class of each record, or its values if the net has no classes.

        Parameters
        ----------
        x : ndarray, DataFrame, Table, sequence of pictures, or dict of these
            The records. If the net has several input layers, pass a dict of records by the names of these layers.

            - an array ``(n, *shape)`` of values as they are stored, before normalisation;
            - a pandas DataFrame, pyarrow Table, dict of columns or list of dicts, with the columns of the training data
              in any order. A dict of single values, or one row of a DataFrame, is one record. Text in a column of
              numbers is parsed as in a CSV file;
            - pictures as bytes, e.g. PNG or JPEG, or Pillow images.

            If the job sets ``lags`` in ``store_conf``, the records are a time series, the oldest first. The first
            records serve only as history, and are not predicted. Records at the end that lack the value to predict are
            forecast one by one.
        layer : str, optional
            Layer to predict from. Required if several layers have class probabilities.
        proba : bool
            Whether to return the probabilities of the classes, as `predict_proba` does.
        threshold : float, optional
            Only for two classes: predict the second class if its probability is at least ``threshold``. By default, the
            likeliest class is predicted.

        Returns
        -------
        (n,) str, bool, int64 or float64
            The predicted classes, with the values and the type of the label in the training data. If the classes have
            no names, the result has class numbers. For a net with several time steps, the shape is (n, steps).
        (n,) or (n, values) float32
            The predicted values, if the net has no classes.

        Raises
        ------
        DataError
            A record does not fit the net. The message has its row and column.
        ConfigError
            ``layer`` is not passed, and the net has several layers to predict from.
        """
        refuse_with_probabilities(threshold, proba)
        if proba:
            return self.predict_proba(x, layer)
        layer = layer or self.output
        values, decoder = self.extract(x, layer), self.decoder(layer)
        if threshold is not None:
            decoder.check_threshold(threshold)
        return decoder.predictions(values, threshold)

    def decoder(self, layer: str) -> OutputDecoder:
        """Return the decoder of a layer, which converts its outputs to predictions."""
        if layer not in self._decoders:
            job, knowledge = self._job.job, self._loaded.knowledge
            decoder, labels = OutputDecoder.of(job, self._net(layer).layer(layer)), label_layer(job, Phase.TEST, layer)
            names = knowledge.known_for(labels) if decoder.has_classes else target_names(job, Phase.TEST, layer)
            self._decoders[layer] = replace(decoder, names=names, class_type=knowledge.type_for(labels))
        return self._decoders[layer]

    def predict_proba(self, x: Any, layer: str | None = None) -> Array:
        """Return the probability of each class: (n, classes) float32, or (n, steps, classes).

        See `predict` for the arguments and errors. Classes are in the order of their numbers.
        """
        layer = layer or self.output
        if not self.decoder(layer).has_classes:
            raise ConfigError(f"{self.url}: layer {layer!r} has no class probabilities. Use predict or extract.")
        return self.decoder(layer).probabilities(self.extract(x, layer))

    def extract(self, x: Any, layer: str) -> Array:
        """Return the output of a layer for each record: (n, *shape) float32, with the shape in `layers`.

        ``x`` are records as in `predict`.
        """
        if (plain := self._plain(x, layer)) is None:
            return self._extract(x, layer)[0]
        with self._lock:
            net = self._net(layer)
            [reader] = net.inputs
            return net.compute({reader: plain[0]}, 1, 0)[layer]["data"]

    def count_filled(self, x: Any, layer: str | None = None) -> dict[str, dict[str, int]]:
        """Return how many missing values `predict` fills in, by column.

        See `predict` for the arguments and errors.

        Returns
        -------
        dict
            ``filled`` counts missing numbers, missing texts, and missing categories that are encoded as zeros.
            ``unknown`` counts categories that the training data lack; these are encoded as zeros, too. A key whose
            counts are all 0 is left out.
        """
        return self._extract(x, layer or self.output, counts=True)[1].to_dict()

    def _extract(self, x: Any, layer: str, counts: bool = False) -> tuple[Array, FillCounts]:
        """Return the output of a layer; with ``counts``, also the numbers of values that were filled in."""
        with self._lock, self._advised():
            net, forecasts = self._net(layer), list[Any]()
            decoder = self.decoder(layer)
            while True:
                records = self._records_of(net, x, forecasts=forecasts if decoder.forecasts else None)
                some = next(iter(records.values()))
                for each in records.values() if counts else ():
                    each.counts = FillCounts()
                values = np.empty((some.n, *(self.layers[layer] or (1,))), np.float32)
                for first, stop in net.batches(some.n):
                    arrays = {name: each.read(first, stop) for name, each in records.items()}
                    values[first:stop] = net.compute(arrays, stop - first, first)[layer]["data"]
                if not some.n_later:
                    return values, FillCounts.total(each.counts for each in records.values() if each.counts)
                forecasts.append(decoder.forecast(values))

    def test(self, x: Any, y: Any = None, metrics: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the metrics of the test net on records, by name. Each record is used once.

        Parameters
        ----------
        x : ndarray, DataFrame, Table, or sequence of pictures
            See `predict`.
        y : array-like or mapping of str to array-like, optional
            The true classes, as `predict` returns them, or as class names or class numbers. For a net without classes,
            the true values, (n,) or (n, targets). Pass a mapping by column name if there are several columns. By
            default, ``x`` must contain these columns.
        metrics : sequence of str, optional
            Metrics that replace the job's, e.g. ``["f1_macro", "confusion_matrix"]``. A confusion matrix is an array.

        Raises
        ------
        DataError
            A record does not fit the net, there are no records, labels are missing, or their number differs from the
            number of records.
        """
        return self.merge([self.measure(x, y, metrics)], metrics)

    def merge(self, measured: Sequence[MetricSums], metrics: Sequence[str] | None = None) -> dict[str, Any]:
        """Combine several results of `measure` into the metrics over all their records."""
        if not any(each.metrics for each in measured):
            raise DataError("x: no records. Expected one or more, because metrics of no records are undefined.")
        if n := sum(each.n_left_out for each in measured):
            warn_caller(f"x: {plural(n, 'record is', 'records are')} left out for missing values.")
        with self._lock:
            of_pass = self._net("").pass_metrics(metrics)
        return {**merge_metrics(measured, of_pass), **of_pass.matrices()}

    def measure(self, x: Any, y: Any = None, metrics: Sequence[str] | None = None) -> MetricSums:
        """Measure the metrics of a part of the data; pass the results for all parts to `merge`.

        The arguments are the same as in `test`.
        """
        with self._lock, self._advised():
            net = self._net("")
            records = self._records_of(net, x, outputs=y is None, skips=True)
            n = next(iter(records.values())).n
            labels = LabelReader(net, [net.inputs[name] for name in records], n, y)
            totals, of_pass = [], net.pass_metrics(metrics)
            for first, stop in net.batches(n):
                arrays = {name: each.read(first, stop) for name, each in records.items()}
                totals.append(net.measure(labels.arrays(arrays, first, stop), stop - first, first, of_pass))
            return MetricSums(totals, of_pass.state(), sum(each.n_left_out for each in records.values()))

    # -- inference in two steps ------------------------------------------------------------------------------

    def encode(self, x: Any, layer: str, name: str = "x", forecasts: Sequence[Any] = ()) -> EncodedRecords:
        """Convert records to the fields that `compute` expects.

        Several threads can call this method at once, even while another thread computes. ``x`` are records as in
        `predict`; ``name`` is their name in errors. In a time series, the last records can lack the value to predict;
        ``forecasts`` has the predictions so far for these records; see `OutputDecoder.forecast`.
        """
        net, counts = self._net(layer), FillCounts()
        if (plain := self._plain(x, layer, name)) is not None:
            fields, filled = plain
            counts.filled.update(filled)
            return EncodedRecords(fields, 1, counts, "")
        with self._advised():
            is_ahead = self.decoder(layer).forecasts
            records = self._features_of(net, x, name, forecasts=[*forecasts] if is_ahead else None)
            some = next(iter(records.values()))
            arrays: Arrays = {}
            for reader, each in records.items() if some.n else ():
                each.counts = counts
                fields = each.read(0, each.n)
                arrays |= fields if len(records) == 1 else {f"{reader}/{key}": fields[key] for key in fields}
            warning = next(filter(None, (each.warning for each in records.values())), "")
            return EncodedRecords(arrays, some.n, counts, warning, some.n_later)

    def zeros(self, layer: str) -> Arrays:
        """Return a record of zeros, encoded as `encode` encodes an array."""
        readers, arrays = self._readers(self._net(layer)), Arrays()
        for each in readers:
            record = np.zeros((1, *each.store_conf.shape), np.uint8)
            fields = self._reading(each).records(record).read(0, 1)
            arrays |= fields if len(readers) == 1 else {f"{each.conf_name}/{key}": fields[key] for key in fields}
        return arrays

    def compute(self, arrays: Arrays, layer: str) -> Array:
        """Return the output of a layer for a batch of encoded records, (n, *shape) float32.

        Raises
        ------
        ConfigError
            A layer keeps state from batch to batch, so records of several requests cannot share a batch.
        """
        with self._lock:
            net = self._net(layer)
            if net.sequential:
                raise ConfigError(
                    f"{self.url}: layer {net.sequential!r} keeps state from batch to batch. Expected a net whose "
                    "records do not depend on each other."
                )
            n = len(next(iter(arrays.values())))
            readers = self._readers(net)
            records = {each.conf_name: arrays for each in readers}
            if len(readers) > 1:
                records = {name: Arrays() for name in records}
                for key, values in arrays.items():
                    name, _, field = key.rpartition("/")
                    records[name][field] = values
            return np.asarray(net.compute(records, n, 0)[layer]["data"])

    def record(self, layer: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the shape of a record in an array, and the names of the columns to read from a table.

        The names are empty if the net was trained on records without named columns. The shape is empty if several input
        layers read the columns.
        """
        readers = self._readers(self._net(layer))
        shape = tuple(readers[0].store_conf.shape) if len(readers) == 1 else ()
        return shape, self._columns_of(readers)

    def columns(self, layer: str) -> dict[str, Any]:
        """Return how columns of a table are read; see `describe_columns`.

        The result is empty for other kinds of records. A setting that differs between input layers is left out.
        """
        facts_by_reader = ((each, self._facts_of(each)) for each in self._readers(self._net(layer)))
        described = [describe_columns(each.store_conf, facts) for each, facts in facts_by_reader if facts is not None]
        features = {name: column for each in described for name, column in each["features"].items()}
        first = next(iter(described), {})
        common = {key: first[key] for key in first if all(each.get(key) == first[key] for each in described)}
        return {"features": features, **common} if described else {}

    def lags(self, layer: str) -> LagsConf | None:
        """Return how lags are computed from earlier records of a time series; None if the job sets no lags."""
        return next((each.store_conf.lags for each in self._readers(self._net(layer)) if each.store_conf.lags), None)

    def series_example(self, layer: str) -> list[dict[str, Any]]:
        """Return example records of a time series, as many as one prediction needs.

        The list is empty if the job sets no lags.
        """
        lags, (_, columns) = self.lags(layer), self.record(layer)
        if lags is None:
            return []
        typical = self._typical_values(self._readers(self._net(layer)))
        others = {*lags.names, *lags.columns, lags.order}
        plain = {name: typical.get(name, 0.0) for name in columns if name not in others}
        earlier = {name: typical.get(f"{name}_lag1", 0.0) for name in lags.columns}
        days = np.datetime64("2024-01-01") + np.arange(lags.n + 1)
        return [({lags.order: str(day)} if lags.order else {}) | plain | earlier for day in days]

    def example(self, layer: str) -> dict[str, Any] | None:
        """Return an example record of a table, as a dict by column.

        The result is None for other kinds of records, for vectors, and for tables with many columns.
        """
        readers = self._readers(self._net(layer))
        columns = self._columns_of(readers)
        for facts in map(self._facts_of, readers):
            if facts is None or facts.widths.keys() - facts.texts.keys() or not 0 < len(columns) <= MAX_EXAMPLE:
                return None
        return self._typical_values(readers)

    # -- private methods -------------------------------------------------------------------------------------

    def _typical_values(self, readers: Sequence[StoreInput]) -> dict[str, Any]:
        """Return an example value for each column: the mean of the training data if known, or a category."""
        typical = dict[str, Any]()
        for facts in filter(None, map(self._facts_of, readers)):
            known: dict[str, Any] = {name: float(f"{mean:.4g}") for name, mean in facts.means.items()}
            known |= {name: next(filter(None, names), None) for name, names in facts.categories.items()}
            known |= dict.fromkeys(facts.booleans or (), False) | dict.fromkeys(facts.texts, "a text")
            known |= {name: form.example for name, form in facts.dates.items()}
            typical |= {name: known.get(name, 0.0) for name in facts.features}
        return typical

    def _records_of(
        self, net: SizedNets, x: Any, outputs: bool = False, skips: bool = False, forecasts: list[Any] | None = None
    ) -> dict[str, MemoryRecords]:
        """Return the records for each input layer that reads features; see `MemoryReading`."""
        inputs = {name: each for name, each in net.inputs.items() if not each.traits.reads_beside}
        facts = self._shared_table(list(inputs.values()))
        by_layer = isinstance(x, Mapping) and x.keys() == inputs.keys()
        if by_layer and facts and are_columns(x, facts, "x"):
            return self._features_of(net, x, "x", outputs, forecasts=forecasts)
        names_columns = not isinstance(x, Mapping) or (facts and not x.keys() <= inputs.keys())
        if not by_layer and (len(inputs) == 1 or names_columns):
            records = self._features_of(net, x, "x", outputs, skips, forecasts)
            return {name: _warned(each) for name, each in records.items()}
        if not by_layer:
            raise DataError(f"x: has {', '.join(map(str, x)) or 'nothing'}. Expected records of {', '.join(inputs)}.")
        records = {
            name: _warned(self._reading(each, outputs).records(x[name], f"x[{name!r}]"))
            for name, each in inputs.items()
        }
        _check_counts(records, "x")
        return records

    def _plain(self, x: Any, layer: str, name: str = "x") -> tuple[Arrays, list[str]] | None:
        """Return a single plain record as `MemoryReading.plain` does; None for other data."""
        if layer not in self._plain_readings:
            net = self._net(layer)
            [*readers] = net.inputs.values()
            # a dict by layer and a dict by column may look the same
            is_clear = len(readers) == 1 and self._columns_of(readers) != (readers[0].conf_name,) and not net.sequential
            self._plain_readings[layer] = self._reading(readers[0]) if is_clear else None
        reading = self._plain_readings[layer]
        return None if reading is None else reading.plain(x, name)

    def _features_of(
        self,
        net: SizedNets,
        x: Any,
        name: str,
        outputs: bool = False,
        skips: bool = False,
        forecasts: list[Any] | None = None,
    ) -> dict[str, MemoryRecords]:
        """Return the records for the input layer with features, or for several layers that read one table."""
        readers = self._readers(net)
        if len(readers) > 1:
            x = as_named_columns(x, self._columns_of(readers), name)
            # each layer skips the records that lack its own values, so the layers would read different records
            skips = False
        records = {each.conf_name: self._reading(each, outputs, skips).records(x, name, forecasts) for each in readers}
        _check_counts(records, name)
        return records

    @contextmanager
    def _advised(self) -> Iterator[None]:
        """Return a context whose errors about gaps and unknown categories recommend arguments of `load_model`."""
        try:
            yield
        except DataError as error:
            if error.wants("numbers"):
                raise error.saying("Pass numbers instead of texts") from None
            layers = self._exposed.job.neuralnet.layer
            stores = [each.block(StoreConf) for each in layers if issubclass(LAYERS.find(each.type), StoreInput)]
            raise advised(error, PYTHON, any(each.is_table for each in stores)) from None

    def _net(self, layer: str) -> SizedNets:
        """Return the net that computes a layer. An empty name returns the whole net, for metrics."""
        if layer in self._nets:
            return self._nets[layer]
        with self._lock:
            if layer not in self._nets:
                job = self._exposed if layer else self._phase_job(exposed=False)
                try:
                    self._nets[layer] = SizedNets(job.job, job.phase, self._loaded, (layer,) if layer else ())
                except ConfigError as error:
                    raise self._job.locate(job.locate(error)) from None
            return self._nets[layer]

    def _phase_job(self, exposed: bool) -> PhaseJob:
        """Return the job of the test net; see `inference_job`."""
        with self._job.located(), using_modules(self.source.sources):
            return inference_job(self._job.job, Phase.TEST, in_order=True, exposed=exposed)

    def _readers(self, net: SizedNets) -> list[StoreInput]:
        """Return the input layers that read features: one layer, or several that name columns of one table."""
        readers = [each for each in net.inputs.values() if not each.traits.reads_beside]
        if len(readers) != 1 and not self._shared_table(readers):
            names = ", ".join(each.conf_name for each in readers) or "none"
            raise ConfigError(
                f"{self.url}: the net has the input layers {names}. Expected one, or several that name columns of one "
                "table. For others, pass a dict of records by layer to predict, extract or test."
            )
        return readers

    def _shared_table(self, readers: Sequence[StoreInput]) -> dict[str, TableFacts]:
        """Return the facts by layer if several input layers name columns of one table; else an empty dict."""
        if len(readers) < 2 or len({each.store_conf.path for each in readers}) > 1:
            return {}
        facts = {each.conf_name: self._facts_of(each) for each in readers if each.store_conf.is_table}
        found = {name: each for name, each in facts.items() if each is not None}
        return found if len(found) == len(readers) else {}

    def _columns_of(self, readers: Sequence[StoreInput]) -> tuple[str, ...]:
        """Return the distinct table columns that the layers read; empty if columns have no names."""
        facts = map(self._facts_of, readers)
        return tuple(dict.fromkeys(name for each in facts if each is not None for name in each.features))

    def _reading(self, layer: StoreInput, outputs: bool = False, skips: bool = False) -> MemoryReading:
        """Return how an input layer reads records in memory. Cached, because creating it is slow."""
        key = layer, outputs, skips
        if key not in self._readings:
            facts, scaling = self._facts_of(layer), self._loaded.knowledge.scaling_of(layer.conf_name)
            made = MemoryReading(layer.store_conf, facts, outputs=outputs, skips=skips, scaling=scaling)
            # another thread may have created the object meanwhile, and the object may have learned values since
            self._readings.setdefault(key, made)
        return self._readings[key]

    def _facts_of(self, layer: StoreInput) -> TableFacts | None:
        return self._loaded.knowledge.table_of(layer.conf_name, learns=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.source,)

    def __repr__(self) -> str:
        return f"<Model {self.name!r} of {redact(self.url)}, step {self.step}>"


def _check_counts(records: Mapping[str, MemoryRecords], name: str) -> None:
    """Raise a DataError if the input layers have different numbers of records."""
    if len({each.n for each in records.values()}) > 1:
        counts = ", ".join(f"{each.n} of {layer}" for layer, each in records.items())
        raise DataError(f"{name}: records: {counts}. Expected equal numbers.")


def _warned(records: MemoryRecords) -> MemoryRecords:
    """Issue the warning of records, if they have one, and return the records."""
    if records.warning:
        warn_caller(records.warning)
    return records


_models: OrderedDict[ModelSource, Model] = OrderedDict()
_models_lock = threading.Lock()


def _received(source: ModelSource) -> Model:
    """Return the model for an unpickled source. The last few models are cached."""
    with _models_lock:
        if source not in _models:
            source.check()
            _models[source] = Model(source)
            while len(_models) > MAX_RECEIVED:
                _models.popitem(last=False)
        _models.move_to_end(source)
        return _models[source]


def load_model(
    run: AnyRun,
    step: int | None = None,
    *,
    job: Job | str | os.PathLike[str] | None = None,
    cpu: bool = False,
    threads: int | None = None,
    missing: str | float | None = None,
    unknown: str | None = None,
) -> Model:
    """Load the trained net of a run.

    Parameters
    ----------
    run : Run, str or path
        A run, the URL of its run directory, or the URL of one of its checkpoints. If ``job`` is passed, the URL of any
        checkpoint, including SINGA's checkpoint files.
    step : int, optional
        Step of the checkpoint to load. The default is the newest checkpoint.
    job : Job or path, optional
        Job with the test net to load. The default is the run's own job.
    cpu : bool
        Whether to compute on the CPU, even if the job sets another device.
    threads : int, optional
        Number of threads that compute a layer; 0 uses one per core. The default is the job's setting. For a small net,
        1 is the fastest.
    missing : "error", "mean" or float, optional
        What to do with missing numbers in a table: raise an error, or fill them with the mean of the training data or
        with this number. The default is the job's setting.
    unknown : "error" or "ignore", optional
        What to do with unknown or missing categories in a table: raise an error, or encode them as zeros. The default
        is the job's setting.

    Raises
    ------
    ConfigError
        The run does not exist, its test net cannot be built, or ``missing`` or ``unknown`` do not suit the job.
    CheckpointError
        The checkpoint does not exist, or is damaged.

    Examples
    --------
    >>> import singa_dask as sd
    >>> model = sd.load_model("runs/digits")  # doctest: +SKIP
    >>> model.predict(x)  # doctest: +SKIP
    array([7, 2, 1])
    """
    return Model(find_source(os.fspath(run), step, job, cpu, threads, missing, unknown))
