"""Test, predict and extract with records in stores. Any number of workers divide the batches."""

from __future__ import annotations

import contextlib
import functools
import posixpath
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from distributed import Client

from singa_dask import fs, modules, runtime
from singa_dask.conf import JobFile, Phase
from singa_dask.data.convert import backend_of
from singa_dask.data.convert.tasks import report
from singa_dask.data.stores import STORES, open_store
from singa_dask.data.stores.store import check_can_write
from singa_dask.data.stores.tables.written_columns import read_columns
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.kept_columns import ColumnReading
from singa_dask.data.tables.spelling import NO_SPELLING
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, warn_caller
from singa_dask.fs.outputs import check_output
from singa_dask.inference.filled_net import build
from singa_dask.inference.inference_job import inference_job, with_data
from singa_dask.inference.output_decoder import OutputDecoder, check_threshold
from singa_dask.inference.predicted_layers import (
    classifier,
    forecasts_itself,
    has_classes,
    has_values,
    is_class_loss,
    label_layer,
    predicted_layer,
    target_names,
)
from singa_dask.inference.stored_records import StoredRecords, sharing_layers
from singa_dask.inference.stored_values import LayerValues, Predicted, merge_kept, read_kept, value_names
from singa_dask.inference.tasks import (
    InferenceTask,
    NetFacts,
    TaskResult,
    filled_by,
    inspect_net,
    merge_metrics,
    plan_tasks,
)
from singa_dask.inference.value_files import check_texts
from singa_dask.inputs import StoreInput
from singa_dask.inputs.open_records import open_records
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs.cluster import find_cluster
from singa_dask.jobs.datasets.hosts import job_with_data_files
from singa_dask.net import NeuralNet
from singa_dask.training.pass_metrics import PassMetrics
from singa_dask.wording import listed

Computation = Callable[[Sequence[InferenceTask]], Iterator[TaskResult]]


class Workers(NamedTuple):
    """The workers of a computation, and how many tasks they can run at the same time.

    ``run`` is the function that runs tasks: at most ``n`` at a time in total, and ``n_beside`` at a time on one host.
    If ``client`` is set, jobs can read the datasets that are published on its cluster.
    """

    run: runtime.Runner
    n: int
    n_beside: int
    client: Client | None = None


HERE = Workers(runtime.run_here, 1, 1)
"""This thread."""


def workers_of(client: Client, patience: runtime.Patience | None = None, published: bool = True) -> Workers:
    """Return the workers of a cluster.

    With ``published=True``, the result includes the client, so that jobs can read datasets that are published on the
    cluster.

    Raises
    ------
    ClusterError
        The cluster has no workers.
    """
    beside = (patience or runtime.Patience()).until(lambda: runtime.threads_by_host(client))
    return Workers(runtime.on_dask(client), beside.total(), max(beside.values()), client if published else None)


@contextlib.contextmanager
def use_workers(client: Client | str | None) -> Iterator[Workers]:
    """Return a context with the workers of a cluster; for None, with this thread as the worker."""
    if client is None:
        yield HERE
        return
    with find_cluster(client) as cluster:
        yield workers_of(cluster)


class Tested(NamedTuple):
    """Result of a test.

    Attributes
    ----------
    metrics : dict of str to float
        Metrics by name; NaN if a metric is undefined.
    net : NeuralNet
        The net without memory; only its shapes are used.
    matrices : dict of str to ndarray
        Confusion matrices by name, if the metrics include any; see `PassMetrics`.
    class_names : tuple of tuple of str
        Class names of each SoftmaxLoss; empty if they are not known.
    filled : FillCounts
        Number of missing values that were filled in, if each record was used once.
    """

    metrics: dict[str, float]
    n_batches: int
    n_records: int
    bad_records: int
    checkpoints: list[str]
    net: NeuralNet
    matrices: dict[str, npt.NDArray[np.int64]]
    class_names: tuple[tuple[str, ...], ...]
    filled: FillCounts


class _Inference:
    """An inference on the job's own records of a phase, or on ``records`` if they are passed.

    See `DistributedNet` for ``read``, ``init_from`` and ``sources``, and `inference_job` for ``in_order`` and
    ``exposed``. ``kept`` are attributes of `InferenceTask`.

    Attributes
    ----------
    net : NeuralNet
        Net of the job with its own records, without memory; only its shapes are used.
    checkpoints : list of str
        URLs of the checkpoints that the values come from.

    Raises
    ------
    ConfigError
        The net cannot be built, or it is unclear which input layer should read ``records``.
    """

    def __init__(
        self,
        read: JobFile,
        init_from: Sequence[str],
        sources: Sequence[modules.Source] | None,
        phase: Phase,
        records: StoredRecords | None = None,
        *,
        in_order: bool = True,
        exposed: bool = True,
        **kept: Any,
    ) -> None:
        self._read = read
        self._records: StoredRecords | None = None
        self._readers: tuple[int, ...] = ()
        with read.located():
            self._wanted = inference_job(read.job, phase, in_order=in_order, exposed=exposed)
        initial = tuple(map(fs.absolute, init_from))
        self.checkpoints = list(initial or self._wanted.job.checkpoint_path)
        self._task = InferenceTask(
            self._wanted.job.to_json(),
            int(self._wanted.phase),
            initial,
            sources=tuple(modules.read(read.job.modules) if sources is None else sources),
            **kept,
        )
        with self._located():
            task = self._task
            self.net = build(self._wanted.job, self._wanted.phase, task.layers, task.labels, task.topk)
        if records is not None:
            self._read_from(records)

    def _read_from(self, records: StoredRecords) -> None:
        """Make the input layers read ``records``."""
        layers = [layer for layer in self.net.layers if layer.traits.role == "input"]
        inputs = [layer.conf_name for layer in layers]
        are_tables = all(isinstance(layer, StoreInput) and layer.store_conf.is_table for layer in layers)
        if not inputs or (len(inputs) > 1 and not records.outputs and not are_tables):
            known = ", ".join(inputs) or "none"
            raise ConfigError(
                f"the net needs the input layers {known}, to read {records.url}. Expected one, or several that name "
                "columns of one table."
            )
        own = (records.backend, records.outputs, records.forecasts, records.reading)
        job = with_data(self._wanted.job, inputs, fs.absolute(records.url), *own)
        names = [layer.name for layer in job.neuralnet.layer]
        numbered = zip(self._wanted.indices, self._wanted.job.neuralnet.layer, strict=True)
        indices = tuple(i for i, layer in numbered if layer.name in names)
        self._records, self._readers = records, tuple(map(names.index, inputs))
        self._wanted = replace(self._wanted, job=job, indices=indices)
        self._task = replace(self._task, job=job.to_json())

    def compute(
        self,
        workers: Workers,
        steps: int,
        show: Callable[[Computation], Computation],
        log: Callable[[str], None],
        check: Callable[[NetFacts], None] = lambda facts: None,
    ) -> tuple[NetFacts, list[TaskResult]]:
        """Compute ``steps`` batches, or all records if ``steps`` is 0.

        ``check`` is called before the computation. ``log`` is called with each warning about the records.

        Returns
        -------
        facts : NetFacts
        results : list of TaskResult
            The results of the tasks, in the order of the records.
        """
        with self._located(), self._with_datasets(workers) as (task, run):
            (facts,) = run([functools.partial(inspect_net, task)])
            check(facts)
            for line in facts.warnings:
                log(line)
            n_threads = runtime.n_threads(self._wanted.job, workers.n_beside)
            tasks = plan_tasks(replace(task, n_threads=n_threads), facts, steps, workers.n)

            def compute(tasks: Sequence[InferenceTask]) -> Iterator[TaskResult]:
                return run(tasks)

            done = list(show(compute)(tasks))
        return facts, sorted(done, key=lambda result: result.task.index)

    @contextlib.contextmanager
    def _with_datasets(self, workers: Workers) -> Iterator[tuple[InferenceTask, runtime.Runner]]:
        """Provide the datasets ``dask://NAME`` that the job reads, if they may be on the cluster."""
        if workers.client is None:
            yield self._task, workers.run
            return
        files = [*runtime.input_files(self._wanted.job), *self._task.init_from]
        # skip missing files, because opening them raises a better error
        runtime.check_seen(workers.client, [url for url in files if fs.local_path(url) and fs.exists(url)])
        with job_with_data_files(self._wanted.job, workers.client) as (job, messages):
            yield replace(self._task, job=job.to_json()), runtime.on_dask(workers.client, messages)

    @contextlib.contextmanager
    def _located(self) -> Iterator[None]:
        """Return a context that adds the place in the job file, or the name of the records, to errors."""
        try:
            yield
        except (ConfigError, DataError) as error:
            if self._records is not None:
                names = [self._wanted.job.neuralnet.layer[index].name for index in self._readers]
                readers = sharing_layers(self._read.job, names)
                if renamed := self._records.renamed(error, self._readers, readers):
                    raise renamed from None
            if isinstance(error, DataError) or not any(problem.path for problem in error.problems):
                raise
            raise self._read.locate(self._wanted.locate(error)) from None


@dataclass(frozen=True)
class DistributedNet:
    """The net of a job with the values of checkpoints, for records in stores.

    Attributes
    ----------
    init_from : sequence of str
        URLs of checkpoints. The default is the job's checkpoints.
    sources : sequence of Source or None
        The user's own modules. The default is the modules that the job names.
    workers : callable
        Returns a context manager for the workers. It is entered after all checks.
    show : callable
        Wraps a computation to show its progress.
    show_written : callable
        Takes a number of records; returns a context manager that shows progress while they are written.
    log : callable
        Called with each warning about the records, such as how many are skipped.
    """

    read: JobFile
    init_from: Sequence[str]
    workers: Callable[[], AbstractContextManager[Workers]]
    sources: Sequence[modules.Source] | None = None
    show: Callable[[Computation], Computation] = lambda compute: compute
    show_written: Callable[[int], AbstractContextManager[Any]] = nullcontext
    log: Callable[[str], None] = warn_caller

    def test(
        self,
        phase: Phase = Phase.TEST,
        steps: int | None = None,
        records: Sequence[StoredRecords] = (),
        metrics: Sequence[str] | None = None,
    ) -> Tested:
        """Compute the metrics of the net on the job's own records, or on ``records``.

        Parameters
        ----------
        steps : int, optional
            Number of batches; 0 uses every record once. For the job's own records, the default is the job's setting;
            for other records, it is 0.
        metrics : sequence of str, optional
            Names of metrics that replace the job's; see `PassMetrics`.
        """
        conf = self.read.job
        names = tuple(conf.metrics if metrics is None else metrics)
        if steps is None:
            own = conf.test_steps if phase == Phase.TEST else conf.validate_steps
            steps = 0 if records else own or 0
        losses = [layer.name for layer in conf.neuralnet.layer if layer.in_phase(phase) and is_class_loss(layer)]
        labels = tuple(label_layer(conf, phase, loss) for loss in losses)
        kept: dict[str, Any] = {"in_order": not steps, "exposed": False, "metric_names": names, "label_layers": labels}
        inferences = [self._inference(phase, each, **kept) for each in records or (None,)]
        inference, results, filled = inferences[0], list[TaskResult](), FillCounts()
        merged = PassMetrics(inference.net, names)
        with self.workers() as workers:
            for each, read in zip(inferences, records or (None,), strict=True):
                facts, done_here = each.compute(workers, steps, self.show, self.log)
                results += done_here
                counts = filled_by(done_here)
                filled.add(FillCounts() if steps else counts)
                self._warn_of(read, counts)
        return Tested(
            merge_metrics(results, merged),
            sum(done.task.n_batches for done in results),
            sum(done.task.n_records for done in results),
            sum(done.bad_records for done in results),
            inference.checkpoints,
            inference.net,
            merged.matrices(),
            facts.class_names,
            filled,
        )

    def values(
        self,
        layers: Sequence[str] = (),
        stores: Sequence[StoredRecords] = (),
        *,
        topk: int = 0,
        keep: Sequence[str] = (),
        form: str = "parquet",
        threshold: float | None = None,
    ) -> LayerValues:
        """Return the outputs of layers of the test net, or the likeliest classes, for the records of stores.

        Parameters
        ----------
        layers : sequence of str
            Names of the layers. The default is the layer that the net predicts with; there must be only one.
        stores : sequence of StoredRecords
            The records. The default is the job's own records.
        topk : int
            Number of likeliest classes to return for each record; 0 returns all values. Ignored for layers with labels
            or targets.
        keep : sequence of str
            Columns to keep beside the values, if the stores are tables.
        form : str
            Format in which the values will be written. An error is raised if a column has values that this format
            cannot contain.
        threshold : float, optional
            Only with ``topk=1`` and two classes: choose the second class if its probability is at least ``threshold``;
            see `Model.predict`.
        """
        phase = Phase.TEST
        layers = tuple(dict.fromkeys(layers)) or (predicted_layer(self.read.job, phase),)
        if threshold is not None:
            topk = 2
            if without := [layer for layer in layers if not has_classes(self.read.job, layer)]:
                check_threshold(threshold, without[0], 0)
        are_values = topk > 0 and self._have_values(layers, topk)
        topk, keep = 0 if are_values else topk, tuple(dict.fromkeys(keep))
        kept = self._kept(layers, phase)
        forecasts = forecasts_itself(self.read.job, phase, layers)
        if forecasts:
            stores = [records._replace(forecasts=()) for records in stores]
        sources: list[StoredRecords | None] = [*stores] or [None]
        kept |= {"labels": False, "topk": topk, "files": bool(stores)}
        inferences = [self._inference(phase, records, **kept) for records in sources]
        shaped = [next(each for each in inferences[0].net.layers if each.conf_name == layer) for layer in layers]
        decoders = [replace(OutputDecoder.of(self.read.job, each), forecasts=forecasts) for each in shaped]
        for decoder in decoders if threshold is not None else ():
            decoder.check_threshold(threshold or 0.0)
        columns = [self._columns(records, keep) if records and keep else (pa.table({}), "") for records in sources]
        for table, _ in columns if form in ("csv", "jsonl") else ():
            check_texts(table)

        urls, said = [records.url if records else "" for records in sources], list[str]()

        def names_of(facts: NetFacts) -> Sequence[tuple[str, ...]]:
            if not are_values:
                return facts.class_names
            return [target_names(self.read.job, phase, layer) for layer in layers]

        def check(facts: NetFacts) -> None:
            """Raise a ConfigError for a kept column whose name is taken, or whose values have several types."""
            sizes = [each.n_values * each.n_steps for each in decoders]
            places = ["file"] * (len(sources) > 1) + ["record"]
            steps = ["step"] * (topk > 0 and any(each.n_steps > 1 for each in decoders))
            named = functools.partial(value_names, layers, names_of(facts), sizes, topk)
            values, plain = named([*places, *keep]), named([])
            given = [*places, *steps, *values]
            if clash := next((name for name in keep if name in given), None):
                raise ConfigError(
                    f"--keep: the predictions have a column {clash!r}, too. Rename the column of the data, or keep "
                    f"another one. Columns of the predictions: {listed(given)}."
                )
            clash = next((name for name in keep if name in plain), None)
            if clash and values != plain and not said:
                said.append(f"the output already has a column {clash!r}, so predictions are in: {listed(values)}")
                self.log(said[0])
            if form != "csv":
                tables, forms = zip(*columns, strict=True)
                merge_kept(urls, read_kept(self._reading(facts), tables, [form != "csv" for form in forms]))

        predicted = []
        with self.workers() as workers:
            for records, inference, (values, of) in zip(sources, inferences, columns, strict=True):
                facts, results = inference.compute(workers, 0, self.show, self.log, check)
                first, n_ahead = facts.n_history, facts.n_later
                decoders = [
                    replace(each, names=names, class_type=of_type)
                    for each, names, of_type in zip(decoders, names_of(facts), facts.class_types, strict=True)
                ]
                while records and facts.n_later:
                    made = decoders[0].forecast(results[-1].arrays[0]["data"], are_pairs=topk > 0)
                    records = records._replace(forecasts=(*(records.forecasts or ()), made))
                    inference = self._inference(phase, records, **kept)
                    facts, results = inference.compute(workers, 0, lambda compute: compute, lambda _: None)
                self._warn_of(records, filled_by(results))
                url = records.url if records else ""
                predicted.append(Predicted(url, results, values, first, n_ahead, has_types=of != "csv"))
                if keep and len(values) != first + predicted[-1].count:
                    raise DataError(f"{predicted[-1].url}: changed while it was read.")
        reading = self._reading(facts)
        if threshold is not None:
            topk, predicted = 1, [each.with_threshold(threshold) for each in predicted]
        return LayerValues(topk, predicted, decoders, reading)

    def _warn_of(self, records: StoredRecords | None, counts: FillCounts) -> None:
        """Log warnings about the values of records that are not the job's own."""
        if records is not None:
            for text in counts.warnings():
                self.log(f"{records.named or records.url}, {text}")

    def _reading(self, facts: NetFacts) -> ColumnReading:
        """Return how to read kept columns: as the job's stores, and as the training data was read."""
        kinds, spelling = dict(facts.columns.kinds), NO_SPELLING
        for layer in self.read.job.neuralnet.layer:
            if store := layer.given_block(StoreConf):
                kinds |= dict.fromkeys((*store.target, *([store.weight] if store.weight else ())), "f")
                spelling = spelling.over(store.spelling)
        return ColumnReading(kinds, spelling.over(facts.columns.spelling))

    def _columns(self, records: StoredRecords, names: Sequence[str]) -> tuple[pa.Table, str]:
        """Return columns of a table as its files contain them, and the format of the files.

        Pictures have one column, ``label``, with the class of each picture.
        """
        layer = next(layer for layer in self.read.job.neuralnet.layer if layer.given_block(StoreConf))
        conf = layer.block(StoreConf)
        options = {name: getattr(conf, name) for name in ("separator", "charset", "header", "quotes")}
        place = fs.absolute(records.url)
        try:
            if fs.look(place, conf.storage_options) == (False, 0):
                raise ConfigError(f"{records.named or records.url}: it is empty.")
            if (labels := self._classes_of_pictures(records, layer.name)) is not None:
                if [*names] != ["label"]:
                    raise ConfigError(f"{place}: pictures have only the column 'label', with their classes.")
                return labels, "pictures"
            return read_columns(place, names, conf.storage_options, spelling=conf.spelling, **options)
        except (ConfigError, DataError) as error:
            # an unreadable line is not an error of the option --keep
            if isinstance(error, DataError) and str(error).startswith(f"{place}, line"):
                readers = sharing_layers(self.read.job, [layer.name])
                raise records.renamed(error, (), readers) or error from None
            raise type(error)(str(error) if "it is empty" in str(error) else f"--keep: {error}") from None

    def _classes_of_pictures(self, records: StoredRecords, layer: str) -> pa.Table | None:
        """Return the class of each picture as a column ``label``; None if the records are not pictures."""
        job = with_data(self.read.job, [layer], fs.absolute(records.url), records.backend, outputs=True)
        conf = next(each for each in job.neuralnet.layer if each.name == layer).block(StoreConf)
        # pictures of Parquet are in a table with columns
        if not conf.backend or conf.backend == "image-parquet" or STORES.find(conf.backend).holds != "images":
            return None
        with open_records(conf, conf.backend) as store:
            if "label" not in store.schema:
                raise ConfigError(f"{records.url}: its pictures have no labels.")
            numbers = np.concatenate([store.read_labels(block) for block in range(len(store.blocks))])
            names = store.class_names
        return pa.table({"label": pa.array(numbers if not names else [names[i] for i in numbers])})

    def _have_values(self, layers: Sequence[str], topk: int) -> bool:
        """Return whether layers predict numbers or several labels, instead of classes."""
        valued = [layer for layer in layers if has_values(self.read.job, Phase.TEST, layer)]
        if valued and len(valued) < len(layers):
            raise ConfigError(
                f"layers {', '.join(layers)}: some predict classes, but {valued[0]!r} predicts labels or values. "
                "Predict them separately."
            )
        if valued and topk > 1:
            raise ConfigError(
                f"--topk {topk}, but layer {valued[0]!r} has labels or values, which are all written. Leave --topk out."
            )
        return bool(valued)

    def write(
        self,
        out: str,
        layers: Sequence[str] = (),
        *,
        to: str | None = None,
        overwrite: bool = False,
        overwrite_by: str = "overwrite=True",
        predictions: bool = False,
        phase: Phase = Phase.TEST,
        steps: int = 0,
        records: StoredRecords | None = None,
    ) -> Iterator[tuple[str, int]]:
        """Write the outputs of layers as stores.

        Parameters
        ----------
        out : str
            URL of the store. ``{layer}`` is replaced by the name of the layer. If there are several layers and the URL
            has no ``{layer}``, the name of each layer is inserted before the suffix.
        layers : sequence of str
            Names of the layers. The default is the only layer with class probabilities.
        to : str, optional
            Format of the stores. The default is the format of the suffix.
        overwrite : bool
            Whether to replace existing files. ``overwrite_by`` is the name of this option in errors.
        predictions : bool
            Whether to write the likeliest class and its probability, instead of the outputs.
        phase : Phase
        steps : int
            Number of batches; 0 uses every record once.
        records : StoredRecords, optional
            The records. The default is the job's own records.

        Yields
        ------
        url : str
            URL of a store, after it is written.
        n : int
            Number of its records.
        """
        backend = to or backend_of(out)
        check_can_write(backend)
        layers = tuple(layers) or (classifier(self.read.job, phase),)
        out = fs.absolute(out)
        read = (
            [records.url]
            if records
            else [store.path for each in self.read.job.neuralnet.layer if (store := each.given_block(StoreConf))]
        )
        in_folder = bool(STORES.find(backend).directory_files)
        named = [_url_of_layer(out, layer, len(layers) > 1) for layer in layers]
        urls = [
            check_output(url, read, overwrite=overwrite, by=overwrite_by, may_be_directory=in_folder) for url in named
        ]
        with contextlib.ExitStack() as stack:
            # tasks return predictions instead of writing them, because predictions are small
            folder = "" if predictions else stack.enter_context(_folder_beside(out))
            kept = self._kept(layers, phase)
            inference = self._inference(phase, records, **kept, topk=int(predictions), folder=folder)
            with self.workers() as workers:
                facts, results = inference.compute(workers, steps, self.show, self.log)
            self._warn_of(records, filled_by(results))
            for i, url in enumerate(urls):
                with self.show_written(sum(done.task.n_records for done in results)):
                    n = write_records(results, i, url, backend, facts.class_names[i])
                yield url, n

    def _kept(self, layers: Sequence[str], phase: Phase) -> dict[str, Any]:
        return {"layers": layers, "label_layers": tuple(label_layer(self.read.job, phase, each) for each in layers)}

    def _inference(self, phase: Phase, records: StoredRecords | None = None, **options: Any) -> _Inference:
        return _Inference(self.read, self.init_from, self.sources, phase, records, **options)


# -- stores that are written -----------------------------------------------------------------------------------


def _url_of_layer(url: str, layer: str, several: bool) -> str:
    """Return the URL for the values of a layer; see `DistributedNet.write`."""
    if "{layer}" in url or not several:
        return url.replace("{layer}", layer)
    stem, suffix = posixpath.splitext(url)
    return f"{stem}-{layer}{suffix}"


@contextlib.contextmanager
def _folder_beside(url: str) -> Iterator[str]:
    """Provide a temporary directory next to ``url``, for parts of the file.

    Temporary directories that killed processes have left next to ``url`` are removed.
    """
    parent, name = posixpath.split(url)
    fs.makedirs(parent)
    for left in fs.ls(parent):
        if left.startswith(f".{name}.parts-"):
            fs.remove_tree(fs.join(parent, left))
    # use a random name, because a task of an earlier call may still be writing
    folder = fs.join(parent, f".{name}.parts-{secrets.token_hex(4)}")
    try:
        yield folder
    finally:
        fs.remove_tree(folder)


def write_records(
    parts: Sequence[TaskResult], layer: int, url: str, backend: str, class_names: Sequence[str] = ()
) -> int:
    """Write the outputs of a layer from all tasks as one store; return the number of records."""
    counts = []

    def records() -> Iterator[Arrays]:
        for done in parts:
            for arrays in _arrays(done, layer):
                counts.append(len(arrays["data"]))
                yield arrays
                report(counts[-1])

    target = STORES.find(backend)
    target.write(url, records(), **target.naming_options(class_names))
    return sum(counts)


def _arrays(done: TaskResult, layer: int) -> Iterator[Arrays]:
    """Yield the outputs of a layer that a task has returned, or has written to files."""
    if done.arrays:
        yield done.arrays[layer]
        return
    with open_store(done.task.url(done.task.layers[layer]), "arrow") as store:
        for block in store.blocks:
            yield store.read_block(block.id)
