"""Records in stores: test, predict and extract, by batches that are divided among any number of workers."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
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
from singa_dask.arrays import Array
from singa_dask.conf import JobFile, Phase
from singa_dask.data.codecs.numbers import NumberForm, Spelling
from singa_dask.data.convert import backend_of
from singa_dask.data.convert.tasks import report
from singa_dask.data.stores import STORES, Store, open_store
from singa_dask.data.stores.class_names import write_options
from singa_dask.data.stores.tables.table import read_columns
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError, listed
from singa_dask.fs.outputs import check_output
from singa_dask.inference.derived_job import inference_job, with_data
from singa_dask.inference.layer_values import LayerValues, Predicted, value_names
from singa_dask.inference.net import build
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
from singa_dask.inference.stored_records import StoredRecords
from singa_dask.inference.tasks import (
    InferenceTask,
    NetFacts,
    TaskResult,
    inspect_net,
    merge_metrics,
    plan_tasks,
)
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs.cluster import find_cluster
from singa_dask.jobs.datasets.hosts import placed_job
from singa_dask.net import NeuralNet
from singa_dask.training.pass_metrics import PassMetrics

LOG = logging.getLogger(__name__)


Computation = Callable[[Sequence[InferenceTask]], Iterator[TaskResult]]


class Workers(NamedTuple):
    """A runner of tasks, how many run at the same time, how many of these on one host, and the client of a cluster.

    Where there is a client, the datasets that are published on its cluster can be read.
    """

    run: runtime.Runner
    n: int
    n_beside: int
    client: Client | None = None


HERE = Workers(runtime.run_here, 1, 1)
"""This thread."""


def workers_of(client: Client, patience: runtime.Patience | None = None, published: bool = True) -> Workers:
    """Return the workers of a cluster, on which datasets may be ``published``.

    Raises
    ------
    ClusterError
        It has none.
    """
    beside = (patience or runtime.Patience()).until(lambda: runtime.threads_by_host(client))
    return Workers(runtime.on_dask(client), beside.total(), max(beside.values()), client if published else None)


@contextlib.contextmanager
def use_workers(client: Client | str | None) -> Iterator[Workers]:
    """Provide the workers of a cluster, given by its client or the address of its scheduler; or this thread."""
    if client is None:
        yield HERE
        return
    with find_cluster(client) as cluster:
        yield workers_of(cluster)


class Tested(NamedTuple):
    """What a test has measured.

    Attributes
    ----------
    metrics : dict of str to float
        nan where one is undefined.
    net : NeuralNet
        Shapes only.
    matrices : dict of str to ndarray
        Confusion matrices by name, if they are among the metrics; see `PassMetrics`.
    class_names : tuple of tuple of str
        Of each SoftmaxLoss, where they are known.
    """

    metrics: dict[str, float]
    n_batches: int
    n_records: int
    bad_records: int
    checkpoints: list[str]
    net: NeuralNet
    matrices: dict[str, npt.NDArray[np.int64]]
    class_names: tuple[tuple[str, ...], ...]


class _Inference:
    """An inference on the job's own records of a phase, or on others.

    Parameters
    ----------
    init_from, sources
        See `StoredNet`.
    records : StoredRecords, optional
        They are read by the only input layer that the wanted values need; with labels and targets, by all.
    in_order, exposed : bool
        See `inference_job`.
    **kept
        Of `InferenceTask`: ``layers``, ``labels``, ``topk``, ``folder``, ...

    Attributes
    ----------
    net : NeuralNet
        Shapes only, of the job with its own records.
    checkpoints : list of str
        URLs of the checkpoints that the values come from.

    Raises
    ------
    ConfigError
        The net cannot be built; or it has several input layers, or none, or one that reads no store.
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
        """Let the input layers read other records."""
        inputs = [layer.conf_name for layer in self.net.layers if layer.traits.role == "input"]
        if not inputs or (len(inputs) > 1 and not records.outputs):
            known = ", ".join(inputs) or "none"
            raise ConfigError(f"the net needs the input layers {known}, expected one, to read {records.url}.")
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
        """Compute so many batches, or all records if ``steps`` is 0; return the results in the order of the records.

        Before them ``check`` is called, and ``log`` with a line for each store that leaves out records.
        """
        with self._located(), self._with_datasets(workers) as (task, run):
            (facts,) = run([functools.partial(inspect_net, task)])
            check(facts)
            for line in facts.left_out:
                log(line)
            n_threads = runtime.n_threads(self._wanted.job, workers.n_beside)
            tasks = plan_tasks(replace(task, n_threads=n_threads), facts, steps, workers.n)

            def compute(tasks: Sequence[InferenceTask]) -> Iterator[TaskResult]:
                return run(tasks)

            done = list(show(compute)(tasks))
        return facts, sorted(done, key=lambda result: result.task.index)

    @contextlib.contextmanager
    def _with_datasets(self, workers: Workers) -> Iterator[tuple[InferenceTask, runtime.Runner]]:
        """Place the datasets that the job reads, ``dask://NAME``, if it runs on a cluster where they may be."""
        if workers.client is None:
            yield self._task, workers.run
            return
        files = [*runtime.files_of(self._wanted.job), *self._task.init_from]
        # what is nowhere is told by whoever opens it
        runtime.check_seen(workers.client, [url for url in files if fs.local_path(url) and fs.exists(url)])
        with placed_job(self._wanted.job, workers.client) as (job, messages):
            yield replace(self._task, job=job.to_json()), runtime.on_dask(workers.client, messages)

    @contextlib.contextmanager
    def _located(self) -> Iterator[None]:
        """Locate errors in the job in its file, and those in given records by what they are called."""
        try:
            yield
        except (ConfigError, DataError) as error:
            if self._records is not None and (renamed := self._records.renamed(error, self._readers)) is not None:
                raise renamed from None
            if isinstance(error, DataError) or not any(problem.path for problem in error.problems):
                raise
            raise self._read.locate(self._wanted.locate(error)) from None


@dataclass(frozen=True)
class StoredNet:
    """The net of a job with the values of checkpoints, for records in stores.

    Attributes
    ----------
    init_from : sequence of str
        URLs of checkpoints; by default those of the job.
    sources : sequence of Source or None
        The user's own modules; by default those that the job names.
    workers : callable
        Returns a context with the workers, entered once all that can be checked before is right.
    show : callable
        Returns a computation that shows its progress.
    show_written : callable
        Returns a context in which so many records are written.
    log : callable
        Called with a line for each store that leaves out records.
    """

    read: JobFile
    init_from: Sequence[str]
    workers: Callable[[], AbstractContextManager[Workers]]
    sources: Sequence[modules.Source] | None = None
    show: Callable[[Computation], Computation] = lambda compute: compute
    show_written: Callable[[int], AbstractContextManager[Any]] = nullcontext
    log: Callable[[str], None] = LOG.warning

    def test(
        self,
        phase: Phase = Phase.TEST,
        steps: int | None = None,
        records: StoredRecords | None = None,
        metrics: Sequence[str] | None = None,
    ) -> Tested:
        """Measure the net on the job's records of a phase, or on others.

        Parameters
        ----------
        steps : int, optional
            Number of batches, 0 for every record once. By default those of the job for its own records, 0 for others.
        records : StoredRecords, optional
        metrics : sequence of str, optional
            Names of metrics, in the place of those of the job; see `PassMetrics`.
        """
        conf = self.read.job
        names = tuple(conf.metrics if metrics is None else metrics)
        if steps is None:
            own = conf.test_steps if phase == Phase.TEST else conf.validate_steps
            steps = 0 if records is not None else own or 0
        losses = [layer.name for layer in conf.neuralnet.layer if layer.in_phase(phase) and is_class_loss(layer)]
        labels = tuple(label_layer(conf, phase, loss) for loss in losses)
        inference = self._inference(
            phase, records, in_order=not steps, exposed=False, metric_names=names, label_layers=labels
        )
        merged = PassMetrics(inference.net, names)
        with self.workers() as workers:
            facts, results = inference.compute(workers, steps, self.show, self.log)
        return Tested(
            merge_metrics(results, merged),
            sum(done.task.n_batches for done in results),
            sum(done.task.n_records for done in results),
            sum(done.bad_records for done in results),
            inference.checkpoints,
            inference.net,
            merged.matrices(),
            facts.class_names,
        )

    def values(
        self,
        layers: Sequence[str] = (),
        stores: Sequence[StoredRecords] = (),
        *,
        topk: int = 0,
        keep: Sequence[str] = (),
    ) -> LayerValues:
        """Return what layers of the test net make of the records of stores, or the likeliest classes.

        Parameters
        ----------
        layers : sequence of str
            By default the only one with what the net predicts: probabilities of classes or labels, or values.
        stores : sequence of StoredRecords
            By default the job's own records.
        topk : int
            Number of classes; 0 for all values, as always of layers with labels or targets.
        keep : sequence of str
            Columns of the stores, which are tables, to keep beside the values.
        """
        phase = Phase.TEST
        layers = tuple(dict.fromkeys(layers)) or (predicted_layer(self.read.job, phase),)
        are_values = topk > 0 and self._have_values(layers, topk)
        topk, keep = 0 if are_values else topk, tuple(dict.fromkeys(keep))
        kept = self._kept(layers, phase)
        if forecasts_itself(self.read.job, phase, layers):
            stores = [records._replace(forecasts=()) for records in stores]
        sources: list[StoredRecords | None] = [*stores] or [None]
        kept |= {"labels": False, "topk": topk, "files": bool(stores)}
        inferences = [self._inference(phase, records, **kept) for records in sources]
        columns = [self._columns(records.url, keep) if records and keep else pa.table({}) for records in sources]

        def names_of(facts: NetFacts) -> tuple[tuple[str, ...], ...]:
            if not are_values:
                return facts.class_names
            return tuple(target_names(self.read.job, phase, layer) for layer in layers)

        def check(facts: NetFacts) -> None:
            """Refuse to keep a column whose name is that of one of the predictions."""
            shaped = [next(each for each in inferences[0].net.layers if each.conf_name == layer) for layer in layers]
            sizes = [math.prod(each.features[0].shape[1:]) * each.site.n_steps for each in shaped]
            places = ["file"] * (len(sources) > 1) + ["record"]
            steps = ["step"] * (topk > 0 and any(each.site.n_steps > 1 for each in shaped))
            given = [*places, *steps, *value_names(layers, names_of(facts), sizes, topk, [*places, *keep])]
            if clash := next((name for name in keep if name in given), None):
                raise ConfigError(
                    f"--keep: a column of the predictions is called {clash!r}, too. Rename the column of the data, or "
                    f"keep another one. Columns of the predictions: {listed(given)}."
                )

        predicted = []
        with self.workers() as workers:
            for records, inference, values in zip(sources, inferences, columns, strict=True):
                facts, results = inference.compute(workers, 0, self.show, self.log, check)
                first, n_ahead, names = facts.n_history, facts.n_later, facts.class_names[0]
                while records and facts.n_later:
                    made = self._forecast(layers[0], results[-1].arrays[0]["data"][-1], topk, names)
                    records = records._replace(forecasts=(*(records.forecasts or ()), made))
                    inference = self._inference(phase, records, **kept)
                    facts, results = inference.compute(workers, 0, lambda compute: compute, lambda _: None)
                predicted.append(Predicted(records.url if records else "", results, values, first, n_ahead))
                if keep and len(values) != first + predicted[-1].count:
                    raise DataError(f"{predicted[-1].url}: changed while it was read.")
        return LayerValues(layers, topk, predicted, names_of(facts), inferences[0].net)

    def _forecast(self, layer: str, values: Array, topk: int, names: Sequence[str]) -> float | str:
        """Return the prediction for a record of a time series, as its column has it."""
        if not has_classes(self.read.job, layer):
            return float(values.item())
        number = int(values.flat[0]) if topk else len(values) - 1 - int(values[::-1].argmax())
        return names[number] if names else str(number)

    def _columns(self, url: str, names: Sequence[str]) -> pa.Table:
        """Return columns of a table, read as the job reads its own: its targets, and numbers in texts, as numbers."""
        conf = next(store for layer in self.read.job.neuralnet.layer if (store := layer.given_block(StoreConf)))
        options = {name: getattr(conf, name) for name in ("separator", "charset", "header", "quotes")}
        try:
            table = read_columns(fs.absolute(url), names, conf.storage_options, spelling=conf.spelling, **options)
        except (ConfigError, DataError) as error:
            raise type(error)(f"--keep: {error}") from None
        forms = {**dict.fromkeys(conf.target, NumberForm()), **conf.spelling.numbers}
        for name in forms.keys() & {*names}:
            spelling = Spelling({name: forms[name]}, conf.spelling.na_values)
            # a column that also has other texts stays as it is written
            with contextlib.suppress(DataError):
                read = spelling.read(table.select([name]), {}, str, ())
                table = table.set_column(table.column_names.index(name), name, read.column(0))
        return table

    def _have_values(self, layers: Sequence[str], topk: int) -> bool:
        """Return whether layers have values, or probabilities of labels, instead of classes."""
        valued = [layer for layer in layers if has_values(self.read.job, Phase.TEST, layer)]
        if valued and len(valued) < len(layers):
            raise ConfigError(
                f"layers {', '.join(layers)}: some have classes, {valued[0]!r} labels or values. Predict them apart."
            )
        if valued and topk > 1:
            raise ConfigError(
                f"topk: {topk}, but layer {valued[0]!r} has labels or values, all of which are written. Leave it out."
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
        """Write what layers make of records as stores; yield URL and number of records of each when it is written.

        Parameters
        ----------
        out : str
            URL; ``{layer}`` in it stands for the name of a layer, which else, of several, is put before the suffix.
        layers : sequence of str
            By default the only one with the probabilities of classes.
        to : str, optional
            Format; by default told by the suffix.
        overwrite : bool
            Replace what is there.
        overwrite_by : str
            How the user says so, for errors.
        predictions : bool
            Write the likeliest class and its probability, not the values.
        steps : int
            Number of batches, 0 for every record once.
        records : StoredRecords, optional
            By default those of the job.
        """
        backend = to or backend_of(out)
        _check_writes(backend)
        layers = tuple(layers) or (classifier(self.read.job, phase),)
        out = fs.absolute(out)
        read = (
            [records.url]
            if records
            else [store.path for each in self.read.job.neuralnet.layer if (store := each.given_block(StoreConf))]
        )
        named = [_url_of_layer(out, layer, len(layers) > 1) for layer in layers]
        urls = [check_output(url, read, overwrite=overwrite, by=overwrite_by) for url in named]
        with contextlib.ExitStack() as stack:
            # a few values a record travel with the answers
            folder = "" if predictions else stack.enter_context(_folder_beside(out))
            kept = self._kept(layers, phase)
            inference = self._inference(phase, records, **kept, topk=int(predictions), folder=folder)
            with self.workers() as workers:
                facts, results = inference.compute(workers, steps, self.show, self.log)
            for i, url in enumerate(urls):
                with self.show_written(sum(done.task.n_records for done in results)):
                    n = write_records(results, i, url, backend, facts.class_names[i])
                yield url, n

    def _kept(self, layers: Sequence[str], phase: Phase) -> dict[str, Any]:
        return {"layers": layers, "label_layers": tuple(label_layer(self.read.job, phase, each) for each in layers)}

    def _inference(self, phase: Phase, records: StoredRecords | None = None, **options: Any) -> _Inference:
        return _Inference(self.read, self.init_from, self.sources, phase, records, **options)


# -- stores that are written -----------------------------------------------------------------------------------


def _check_writes(backend: str) -> None:
    """Check that records can be written in a format.

    Raises
    ------
    ConfigError
        They cannot be.
    """
    # a class that cannot write inherits the method of the base class
    base = Store.write.__func__  # type: ignore[attr-defined]
    if getattr(STORES.find(backend).write, "__func__", None) is base:
        known = [name for name in STORES.names() if getattr(STORES.find(name).write, "__func__", None) is not base]
        raise ConfigError(f"records cannot be written as {backend}. Known: {', '.join(known)}.")


def _url_of_layer(url: str, layer: str, several: bool) -> str:
    """Return the URL for the values of a layer: ``{layer}`` is replaced by its name, which else precedes the suffix."""
    if "{layer}" in url or not several:
        return url.replace("{layer}", layer)
    stem, suffix = posixpath.splitext(url)
    return f"{stem}-{layer}{suffix}"


@contextlib.contextmanager
def _folder_beside(url: str) -> Iterator[str]:
    """Provide a directory for parts of the file at ``url``; it is removed when the context ends.

    Directories that a killed process has left are removed too.
    """
    parent, name = posixpath.split(url)
    fs.makedirs(parent)
    for left in fs.ls(parent):
        if left.startswith(f".{name}.parts-"):
            fs.remove_tree(fs.join(parent, left))
    # a random name, as a task of an earlier call may still be about to write
    folder = fs.join(parent, f".{name}.parts-{secrets.token_hex(4)}")
    try:
        yield folder
    finally:
        fs.remove_tree(folder)


def write_records(
    parts: Sequence[TaskResult], layer: int, url: str, backend: str, class_names: Sequence[str] = ()
) -> int:
    """Write the outputs of a layer from all parts, in order, as one store; return the number of records."""
    counts = []

    def records() -> Iterator[Arrays]:
        for done in parts:
            for arrays in _arrays(done, layer):
                counts.append(len(arrays["data"]))
                yield arrays
                report(counts[-1])

    target = STORES.find(backend)
    target.write(url, records(), **write_options(target, class_names))
    return sum(counts)


def _arrays(done: TaskResult, layer: int) -> Iterator[Arrays]:
    """Yield the outputs of a layer that a part has kept."""
    if done.arrays:
        yield done.arrays[layer]
        return
    with open_store(done.task.url(done.task.layers[layer]), "arrow") as store:
        for block in store.blocks:
            yield store.read_block(block.id)
