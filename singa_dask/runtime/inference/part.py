"""Parts of an inference: some whole batches of records, which any process can compute.

The records of a batch do not depend on which process computes it, so metrics, features and predictions are the same for
any number of workers. If each record is used once, batches have the size of the job, in file order; the remaining
records are a smaller batch in a part of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from distributed import get_worker

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data import STORES, Arrays, fs
from singa_dask.data.convert.tasks import report
from singa_dask.data.stores.class_names import ClassNames
from singa_dask.errors import Aborted
from singa_dask.layers import StoreInput
from singa_dask.layers.metrics import Totals
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.inference.net import build, keep_outputs, load_modules, locate_errors, prepare_net
from singa_dask.runtime.planning.devices import device_of_part, explain_memory_errors
from singa_dask.runtime.planning.nets import find_ops
from singa_dask.runtime.planning.resources import limit_process, limit_thread
from singa_dask.training import Algorithm
from singa_dask.training.pass_metrics import PassMetrics, State


class PartResult(NamedTuple):
    """Result of a part.

    Attributes
    ----------
    part : Part
    metrics : list of dict
        (sum, count) of each metric, for each batch; of means times ``weight`` of the part.
    arrays : list of dict of str to ndarray
        Outputs of each layer, if they are not written to a folder.
    bad_records : int
    files : list of str
        URL of the file of each record, if the part keeps them and each record has its own file.
    state : State
        Of the `PassMetrics` of the part.
    """

    part: Part
    metrics: list[Totals]
    arrays: list[Arrays]
    bad_records: int
    files: list[str]
    state: State


@dataclass(frozen=True)
class Part:
    """Some batches to compute with a net; call it to compute them. Holds only text and numbers.

    Attributes
    ----------
    job : str
        As JSON, of `inference.job.inference_job`.
    phase : int
        Of the net.
    init_from : tuple of str
        URLs of checkpoints, instead of the job's ``checkpoint_path``; later ones win.
    layers : tuple of str
        Layers whose values are kept.
    labels : bool
        Keep the labels of the records too, if there are any.
    label_layers : tuple of str
        For each of ``layers``, or of others, the input layer that has its labels; empty if not known.
    topk : int
        Keep only this many of the highest values, as pairs of index and value; 0 keeps all.
    files : bool
        Keep the URLs of the records' files too.
    folder : str
        Directory to write outputs to; if empty they are returned.
    sources : tuple of Source
        The user's own modules.
    n_threads : int
    index, first, n_batches, batchsize : int
        Index among the parts; number of records before the first batch; number of batches, and records of each.
    weight : float
        Records of a batch by those of a whole one.
    metric_names : tuple of str
        See `PassMetrics`.
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

    # name of the work, for progress and messages
    step = "inference"

    @property
    def n_records(self) -> int:
        """Number of records of all batches."""
        return self.n_batches * self.batchsize

    @property
    def labels_of_layers(self) -> tuple[str, ...]:
        """``label_layers``, if not empty."""
        return self.label_layers or ("",) * len(self.layers)

    def __call__(self) -> PartResult:
        """Compute the part.

        Raises
        ------
        SingaError
            For any error: an exception class of the user's code might not exist in the process that receives it.
        """
        with locate_errors(lambda: f"records from {self.first} on"), ExitStack() as stack:
            stack.enter_context(limit_process(self.n_threads))
            stack.enter_context(limit_thread(self.n_threads))
            load_modules(self.sources)
            job = JobConf.from_json(self.job, REGISTRIES)
            ops = find_ops(job, device_of_part(job, self.index))
            net = build(job, Phase(self.phase), self.layers, self.labels, ops=ops)
            stack.enter_context(explain_memory_errors(lambda: [net]))
            stack.enter_context(ops.activate())
            stack.callback(net.close)
            return _compute(self, net)

    def url(self, layer: str) -> str:
        """Return the URL that the outputs of a layer are written to."""
        return fs.join(self.folder, f"{self.layers.index(layer)}-{self.index:05d}.arrow")


def _compute(part: Part, net: NeuralNet) -> PartResult:
    """Compute a part with a net that has no memory yet."""
    algorithm = _prepare(part, net)
    metrics: list[Totals] = []
    of_pass = PassMetrics(net, part.metric_names)
    kept: list[list[Arrays]] = [[] for _ in part.layers]
    for _ in range(part.n_batches):
        check_wanted()
        with locate_errors(lambda: f"layer {algorithm.layer.name if algorithm.layer else '?'}"):
            algorithm.test_one_batch(Phase(part.phase))
        of_pass.add(net)
        metrics.append(net.take_metrics(part.weight))
        for name, labels, arrays in zip(part.layers, part.labels_of_layers, kept, strict=False):
            arrays.append(keep_outputs(net, name, part.labels, part.topk, labels))
        report(part.batchsize)
    joined = [{key: np.concatenate([each[key] for each in arrays]) for key in arrays[0]} for arrays in kept]
    inputs = _inputs(net)
    bad = len(set().union(*(layer.bad_ids() for layer in inputs)))
    files = inputs[0].record_files(part.first, part.first + part.n_records) if part.files else []
    for name, values in zip(part.layers, joined, strict=True) if part.folder else ():
        STORES.find("arrow").write(part.url(name), values)
    return PartResult(part, metrics, [] if part.folder else joined, bad, files, of_pass.state())


def _prepare(part: Part, net: NeuralNet) -> Algorithm:
    """Give a net memory, the values of checkpoints, and the first records of a part; return its algorithm."""
    job = JobConf.from_json(part.job, REGISTRIES)
    initial = InitialValues(job, part.init_from)
    net.context.class_names = ClassNames(initial.learned())
    for layer in _inputs(net):
        layer.passed = part.first
        layer.read_ahead()
    return prepare_net(net, job, initial)


def _inputs(net: NeuralNet) -> list[StoreInput]:
    return [layer for layer in net.layers if isinstance(layer, StoreInput)]


def check_wanted() -> None:
    """Raise an error if Dask does not need the result of this task any more.

    Raises
    ------
    Aborted
        The task was cancelled.
    """
    try:
        worker = get_worker()
    except ValueError:
        return
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state != "executing":
        raise Aborted("the task was cancelled")
