"""Tasks of an inference. A task computes some batches of records, in any process.

The records of a batch, and so the results, do not depend on the number of workers. If each record is read once, batches
are in file order, and `rows_of_pass` determines their size. The remaining records at the end are a smaller batch,
computed by a separate task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from singa_dask import fs, modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.convert.tasks import report
from singa_dask.data.stores import STORES
from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.kept_columns import ColumnReading
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, NumericError
from singa_dask.inference.filled_net import (
    FilledNet,
    MetricSums,
    build,
    keep_outputs,
    locate_errors,
    rows_of_pass,
    using_modules,
)
from singa_dask.inputs import StoreInput
from singa_dask.layers.metrics import Totals, add_totals
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.job.dask_tasks import check_wanted, task_memory
from singa_dask.runtime.planning.devices import device_of_part, explain_memory_errors
from singa_dask.runtime.planning.job_stores import with_batchsize
from singa_dask.runtime.planning.nets import find_ops
from singa_dask.runtime.planning.thread_limits import limit_process, limit_thread
from singa_dask.runtime.planning.whole_pass import is_sequential
from singa_dask.training.pass_metrics import PassMetrics, State


class TaskResult(NamedTuple):
    """Result of a task.

    Attributes
    ----------
    metrics : list of dict
        For each batch, (sum, count) of each metric. Both are multiplied by the ``weight`` of the task.
    arrays : list of dict of str to ndarray
        Outputs of each layer; empty if the task has written them to files.
    files : list of str
        URL of the file of each record, if the task keeps them and each record has its own file.
    state : State
        State of the `PassMetrics` of the task.
    filled : dict of int to FillCounts
        Number of missing values that the first input layer has filled in, by block; see `Store.begin_counting`.
    """

    task: InferenceTask
    metrics: list[Totals]
    arrays: list[Arrays]
    bad_records: int
    files: list[str]
    state: State
    filled: dict[int, FillCounts]


def filled_by(results: Sequence[TaskResult]) -> FillCounts:
    """Return the number of missing values that the tasks for one store have filled in."""
    # a block that several tasks have read counts once
    blocks = {block: counts for done in results for block, counts in done.filled.items()}
    # sort the blocks, because threads may have read them in any order
    return FillCounts.total(blocks[block] for block in sorted(blocks))


@dataclass(frozen=True)
class InferenceTask:
    """A task that computes some batches with a net when it is called.

    A task consists only of text and numbers, so that it can be sent to another process.

    Attributes
    ----------
    job : str
        A job that `inference_job` has returned, as JSON.
    phase : int
        Phase of the net.
    init_from : tuple of str
        URLs of checkpoints that replace the job's ``checkpoint_path``. If several contain a param, the last of these
        checkpoints is used.
    layers : tuple of str
        Layers whose outputs the task returns or writes.
    labels : bool
        Whether to also return or write the labels of the records.
    label_layers : tuple of str
        For each of ``layers`` (in a test, for each loss), the name of the input layer with its labels; ``""`` if
        unknown.
    topk : int
        Number of highest values to keep, as pairs of index and value; 0 keeps all values.
    files : bool
        Whether to also return the URLs of the records' files.
    folder : str
        Directory to write outputs to. If empty, the outputs are returned.
    sources : tuple of Source
        The user's own modules.
    index, first, n_batches, batchsize : int
        Index of the task, number of records before its first batch, number of batches, number of records in a batch.
    weight : float
        Size of a batch, divided by the job's batch size.
    """

    job: str
    phase: int
    init_from: tuple[str, ...]
    layers: tuple[str, ...] = ()
    labels: bool = True
    label_layers: tuple[str, ...] = ()
    topk: int = 0
    files: bool = False
    folder: str = ""
    sources: tuple[modules.Source, ...] = ()
    n_threads: int = 1
    index: int = 0
    first: int = 0
    n_batches: int = 0
    batchsize: int = 0
    weight: float = 1.0
    metric_names: tuple[str, ...] = ()

    # name of this work in progress messages
    step = "inference"

    @property
    def n_records(self) -> int:
        """Number of records in all batches."""
        return self.n_batches * self.batchsize

    @property
    def labels_of_layers(self) -> tuple[str, ...]:
        """``label_layers``; if it is empty, an empty name for each of ``layers``."""
        return self.label_layers or ("",) * len(self.layers)

    def __call__(self) -> TaskResult:
        """Compute the task.

        Raises
        ------
        SingaError
            Raised in place of any other error, because the process that receives an error may not have the user's
            exception classes.
        """
        with locate_errors(lambda: f"records from {self.first} on"), ExitStack() as stack:
            stack.enter_context(limit_process(self.n_threads))
            stack.enter_context(limit_thread(self.n_threads))
            stack.enter_context(using_modules(self.sources))
            job = JobConf.from_json(self.job, REGISTRIES)
            ops = find_ops(job, device_of_part(job, self.index))
            net = build(job, Phase(self.phase), self.layers, self.labels, ops=ops)
            stack.enter_context(explain_memory_errors(lambda: [net]))
            stack.enter_context(ops.activate())
            stack.callback(net.close)
            return _compute(self, job, net)

    def url(self, layer: str) -> str:
        """Return the URL that the outputs of a layer are written to."""
        return fs.join(self.folder, f"{self.layers.index(layer)}-{self.index:05d}.arrow")


def _compute(task: InferenceTask, job: JobConf, net: NeuralNet) -> TaskResult:
    """Compute a task with a net that has no memory yet."""
    initial = InitialValues(job, task.init_from, averaged=True)
    net.context.knowledge = TrainingKnowledge(initial.learned_to_predict())
    inputs = [layer for layer in net.layers if isinstance(layer, StoreInput)]
    memory = task_memory()
    # readers get a third of the memory, as in training
    net.context.reader_bytes = memory and memory // (3 * max(len(inputs), 1))
    for layer in inputs:
        layer.plan.n_skipped, layer.plan.warns, layer.counts_filled = task.first, False, True
        layer.read_ahead()
    ready = FilledNet(net, job, initial)
    of_pass = PassMetrics(net, task.metric_names)
    metrics: list[Totals] = []
    batches: list[list[Arrays]] = [[] for _ in task.layers]
    for _ in range(task.n_batches):
        check_wanted()
        ready.compute(Phase(task.phase), of_pass)
        metrics.append(net.take_metrics(task.weight))
        for name, label_layer, arrays in zip(task.layers, task.labels_of_layers, batches, strict=False):
            arrays.append(keep_outputs(net, name, task.labels, task.topk, label_layer))
        report(task.batchsize)
    joined = [{key: np.concatenate([batch[key] for batch in arrays]) for key in arrays[0]} for arrays in batches]
    bad = len(set().union(*(layer.bad_ids() for layer in inputs)))
    files = inputs[0].record_files(task.first, task.first + task.n_records) if task.files else []
    for name, values in zip(task.layers, joined, strict=True) if task.folder else ():
        STORES.find("arrow").write(task.url(name), values)
    filled = inputs[0].filled() if inputs else {}
    return TaskResult(task, metrics, [] if task.folder else joined, bad, files, of_pass.state(), filled)


# approximate bytes of the outputs of a task
TASK_BYTES = 64 << 20
# number of tasks per worker: several, to show progress and to balance the load
TASKS_PER_WORKER = 4


class NetFacts(NamedTuple):
    """Properties of a net and its records that decide how batches are divided into tasks.

    Attributes
    ----------
    n_records : int or None
        Number of records; None if the net reads no store.
    batchsize, rows : int
        Number of records in a batch: in the job, and in a pass that uses each record once.
    sequential : str
        Name of a layer that must compute all batches in order in one process; empty without such a layer.
    record_bytes : int
        Bytes of the outputs for one record.
    class_names : tuple of tuple of str
        Class names of each layer of the task, by label; empty if the checkpoint has none.
    class_types : tuple of str
        For each layer, the type of the labels before they became class names; see `label_type`.
    columns : ColumnReading
        See `TrainingKnowledge.column_reading`.
    n_history, n_later : int
        For a time series: the number of records that only serve as history for the first prediction; and the number of
        later records, which can be read only after the record before them is predicted.
    warnings : tuple of str
        Warnings of all stores; see `Store.warnings`.
    """

    n_records: int | None
    batchsize: int
    rows: int
    sequential: str
    record_bytes: int
    class_names: tuple[tuple[str, ...], ...] = ()
    n_history: int = 0
    n_later: int = 0
    warnings: tuple[str, ...] = ()
    class_types: tuple[str, ...] = ()
    columns: ColumnReading = ColumnReading()


def inspect_net(task: InferenceTask) -> NetFacts:
    """Return the properties of the net of a task, and of its records."""
    with locate_errors(lambda: "the net"), using_modules(task.sources):
        job = JobConf.from_json(task.job, REGISTRIES)
        find_ops(job, device_of_part(job, task.index))  # raise an error now if the device of the ops is not available
        net = build(job, Phase(task.phase), task.layers, task.labels)
        net.context.knowledge = TrainingKnowledge(InitialValues(job, task.init_from).learned_to_predict())
        net.check_sources()
        inputs = [layer for layer in net.layers if layer.traits.role == "input"]
        stores = [layer for layer in inputs if isinstance(layer, StoreInput)]
        counts = {layer.count() for layer in stores}
        sizes = {layer.plan.batch_size for layer in stores}
        same = len(stores) == len(inputs) and len(counts) == len(sizes) == 1
        # if batch sizes vary, the records of the n-th batch are not known in advance
        sequential = [
            layer.conf_name for layer in net.layers if is_sequential(layer) or (len(sizes) > 1 and layer in stores)
        ]
        n_bytes = sum(
            4 * layer.features[0].size * layer.site.n_steps for layer in net.layers if layer.conf_name in task.layers
        )
        batchsize = sizes.pop() if same else max((layer.features[0].shape[0] for layer in inputs), default=1)
        return NetFacts(
            n_records=counts.pop() if same else None,
            batchsize=batchsize,
            rows=batchsize if sequential or not same else rows_of_pass(net, batchsize),
            sequential=sequential[0] if sequential else "",
            record_bytes=1 if task.topk else n_bytes,
            class_names=tuple(map(net.context.knowledge.known_for, task.labels_of_layers)),
            n_history=max((layer.source.n_history for layer in stores), default=0),
            n_later=max((layer.source.n_later for layer in stores), default=0),
            warnings=tuple(dict.fromkeys(text for layer in stores for text in layer.source.warnings)),
            class_types=tuple(map(net.context.knowledge.type_for, task.labels_of_layers)),
            columns=net.context.knowledge.column_reading(),
        )


def plan_tasks(task: InferenceTask, facts: NetFacts, steps: int, n_workers: int) -> list[InferenceTask]:
    """Divide batches into tasks for ``n_workers`` workers.

    Parameters
    ----------
    task : InferenceTask
        A task with the attributes that all tasks share.
    facts : NetFacts
    steps : int
        Number of batches; 0 uses each record once.
    n_workers : int

    Raises
    ------
    ConfigError
        The number of records is not known, or a layer needs batches of full size.
    """
    size, n, rest = facts.batchsize if steps else facts.rows, steps, 0
    if not steps:
        if facts.n_records is None:
            raise ConfigError(
                "the number of records that the net reads is not known. Give the number of batches, steps."
            )
        n, rest = divmod(facts.n_records, size)
    if rest and facts.sequential:
        raise ConfigError(
            f"layer {facts.sequential!r} takes only batches of {size}, but {facts.n_records} records leave a rest "
            f"of {rest}. Give the number of batches, steps."
        )
    most = max(1, TASK_BYTES // max(1, facts.record_bytes * size))
    each = n if facts.sequential else min(most, math.ceil(n / (TASKS_PER_WORKER * n_workers)))
    cuts = [(first, min(each, n - first)) for first in range(0, n, max(each, 1))]
    sized = _with_rows(task, size, facts) if size != facts.batchsize else task
    tasks = [
        replace(sized, index=i, first=first * size, n_batches=n_batches, batchsize=size)
        for i, (first, n_batches) in enumerate(cuts)
    ]
    if rest:
        last = replace(_with_rows(task, rest, facts), index=len(tasks), first=n * size, n_batches=1, batchsize=rest)
        tasks.append(last)
    return tasks


def _with_rows(task: InferenceTask, n: int, facts: NetFacts) -> InferenceTask:
    """Return the task with batches of ``n`` records, weighted in metrics by this number."""
    job = with_batchsize(JobConf.from_json(task.job, REGISTRIES), n).to_json()
    return replace(task, job=job, weight=n / facts.batchsize)


def merge_metrics(tasks: Sequence[TaskResult | MetricSums], of_pass: PassMetrics | None = None) -> dict[str, float]:
    """Return the mean of each metric over all batches of all tasks, and the metrics of ``of_pass``.

    Raises
    ------
    NumericError
        A mean is not finite.
    """
    totals = add_totals(each for done in tasks for each in done.metrics)
    means = {name: total / count for name, (total, count) in totals.items() if count}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise NumericError(f"{name} is not finite. Check the checkpoint and the data.")
    if of_pass:
        for done in tasks:
            of_pass.merge(done.state)
        means |= of_pass.values()
    return means
