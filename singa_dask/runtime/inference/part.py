"""Inference: what a trained net computes of records, in parts that any process can compute.

A part is some whole batches. Which records make a batch does not depend on who computes it, so that metrics, features
and predictions are the same for any number of workers. All records, each once, are batches of the job's size in file
order, and at the end a part of its own, a smaller batch of those that are left.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from distributed import get_worker

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data import STORES, Arrays, fs
from singa_dask.errors import Aborted, SingaError, UnitError
from singa_dask.layers import StoreInput
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.inference.net import build, fill
from singa_dask.runtime.inference.outputs import keep_outputs
from singa_dask.runtime.planning.devices import device_of_part, explain_memory_errors
from singa_dask.runtime.planning.nets import find_ops
from singa_dask.runtime.planning.resources import limit_process, limit_thread
from singa_dask.train import ALGORITHMS, Algorithm

__all__ = ["Part", "PartResult", "load_modules", "locate_errors"]

Metrics = dict[str, tuple[float, float]]


class PartResult(NamedTuple):
    """What became of a part.

    Attributes
    ----------
    part : Part
    metrics : list of dict
        Of each batch.
    arrays : list of dict of str to ndarray
        Of each layer, where they are not written to a folder.
    bad_records : int
    files : list of str
        URL of the file of each record, where the part keeps them and each record has its own.
    """

    part: Part
    metrics: list[Metrics]
    arrays: list[Arrays]
    bad_records: int
    files: list[str]


@dataclass(frozen=True)
class Part:
    """Some batches of a net; call it to compute them. It holds nothing but text and numbers.

    Attributes
    ----------
    job : str
        As JSON, of `inference.job.inference_job`.
    phase : int
        The net's.
    init_from : tuple of str
        URLs of checkpoints, instead of the job's ``checkpoint_path``; later ones win.
    layers : tuple of str
        Layers whose values are kept.
    labels : bool
        Keep the labels of the records too, where they have any.
    topk : int
        Keep only this many of the highest values, as pairs of place and value; 0 keeps all.
    files : bool
        Keep the URLs of the records' files too.
    folder : str
        Where what is kept is written; returned if empty.
    sources : tuple of Source
        The user's own modules.
    n_threads : int
    index, first, n_batches, batchsize : int
        Place among the parts; records before the first batch; batches, and records of each.
    """

    job: str
    phase: int
    init_from: tuple[str, ...]
    layers: tuple[str, ...] = ()
    labels: bool = True
    topk: int = 0
    files: bool = False
    folder: str = ""
    sources: tuple[modules.Source, ...] = ()
    n_threads: int = 1
    index: int = 0
    first: int = 0
    n_batches: int = 0
    batchsize: int = 0

    # what the person is told is done
    step = "inference"

    @property
    def n_records(self) -> int:
        """Records of all its batches."""
        return self.n_batches * self.batchsize

    def __call__(self) -> PartResult:
        """Compute it.

        Raises
        ------
        SingaError
            Whatever went wrong: what users' code raises might not be known where this is told.
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
        """Return where the values of a layer are written."""
        return fs.join(self.folder, f"{self.layers.index(layer)}-{self.index:05d}.arrow")


def _compute(part: Part, net: NeuralNet) -> PartResult:
    """Compute a part by a net that has no memory yet."""
    algorithm = _prepare(part, net)
    metrics: list[Metrics] = []
    kept: list[list[Arrays]] = [[] for _ in part.layers]
    for _ in range(part.n_batches):
        _check_wanted()
        with locate_errors(lambda: f"layer {algorithm.layer.name if algorithm.layer else '?'}"):
            algorithm.test_one_batch(Phase(part.phase))
        metrics.append(net.take_metrics())
        for name, arrays in zip(part.layers, kept, strict=True):
            arrays.append(keep_outputs(net, name, part.labels, part.topk))
    joined = [{key: np.concatenate([each[key] for each in arrays]) for key in arrays[0]} for arrays in kept]
    inputs = _inputs(net)
    bad = sum(layer.bad_records for layer in inputs)
    files = inputs[0].record_files(part.first, part.first + part.n_records) if part.files else []
    if not part.folder:
        return PartResult(part, metrics, joined, bad, files)
    for name, values in zip(part.layers, joined, strict=True):
        STORES.find("arrow").write(part.url(name), values)
    return PartResult(part, metrics, [], bad, files)


def _prepare(part: Part, net: NeuralNet) -> Algorithm:
    """Give a net memory, the values of checkpoints, and the first record of a part; return what computes it."""
    job = JobConf.from_json(part.job, REGISTRIES)
    initial = InitialValues(job, part.init_from)
    net.context.class_names.by_layer = initial.class_names()
    for layer in _inputs(net):
        layer.passed = part.first
        layer.read_ahead()
    for each in net.layers:
        each.allocate()
    # random numbers are those of a test when the checkpoint was made
    net.context.step = fill(net, initial)
    conf = job.train_one_batch
    algorithm: Algorithm = ALGORITHMS.find(conf.alg)(net, _no_server, _no_server, conf)
    algorithm.check_params()
    return algorithm


def _inputs(net: NeuralNet) -> list[StoreInput]:
    return [layer for layer in net.layers if isinstance(layer, StoreInput)]


def _no_server(*_: object) -> None:
    """Stand in for the way to servers."""


def load_modules(sources: Sequence[modules.Source]) -> None:
    """Load the user's modules; without any, those of a job that runs in this process stay the latest."""
    if sources:
        modules.load(sources, REGISTRIES.values())


def _check_wanted() -> None:
    """End a task whose result Dask does not want any more.

    Raises
    ------
    Aborted
        This is one.
    """
    try:
        worker = get_worker()
    except ValueError:
        return
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state != "executing":
        raise Aborted("the task was cancelled")


@contextlib.contextmanager
def locate_errors(where: Callable[[], str]) -> Iterator[None]:
    """Turn what is no error of ours into one that says where it happened: in the user's code first, if it was there."""
    try:
        yield
    except Exception as error:
        found = modules.blame(error)
        if found is not None:
            raise UnitError(f"{found.place}: {found.text} ({where()})\n{found.traceback.rstrip()}") from None
        if isinstance(error, SingaError):
            raise
        shown = traceback.format_exc().rstrip()
        raise UnitError(f"{where()}: {type(error).__name__}: {error}\n{shown}") from None
