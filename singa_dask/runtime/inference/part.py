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
from typing import Any, NamedTuple

import numpy as np
from distributed import get_worker

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data import STORES, Arrays, fs
from singa_dask.errors import Aborted, ConfigError, SingaError, UnitError
from singa_dask.layers import StoreInput
from singa_dask.net import NeuralNet
from singa_dask.ops import NumpyOps
from singa_dask.registry import suggest
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.devices import device_of_part, explain_memory_errors
from singa_dask.runtime.planning.nets import build_net, find_ops
from singa_dask.runtime.planning.resources import limit_process, limit_thread
from singa_dask.train import ALGORITHMS

__all__ = ["Part", "PartResult", "build", "fill", "load_modules", "locate_errors"]

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


# -- before ----------------------------------------------------------------------------------------------


def build(
    job: JobConf,
    phase: Phase,
    layers: Sequence[str] = (),
    labels: bool = True,
    topk: int = 0,
    ops: NumpyOps | None = None,
) -> NeuralNet:
    """Build the net of a phase, shapes only; if layers are named, no more of it than these need.

    With ``labels`` all input layers stay. Layers that learn without a loss are computed together. ``topk`` is what each
    layer must have values for. ``ops`` are the kernels that will compute it, if any.

    Raises
    ------
    ConfigError
        Everything that is wrong with wiring and shapes, or a layer is not there.
    """
    net = build_net(job, phase, ops)
    known = {layer.conf_name: layer for layer in net.layers}
    for name in layers:
        if name not in known:
            raise ConfigError(f"layer {name!r} is not in the net of this phase. {suggest(name, known)}")
        if len(known[name].features) != 1:
            raise ConfigError(f"layer {name!r} has {len(known[name].features)} outputs, expected one.")
        if topk > known[name].features[0].size:
            raise ConfigError(f"layer {name!r} has {known[name].features[0].size} classes, expected {topk} at least.")
    if layers and not any(layer.is_energy for layer in net.layers):
        home = {feature: layer for layer in net.layers for feature in layer.features}
        waiting = [layer for layer in net.layers if layer.conf_name in layers]
        needed = {layer for layer in net.layers if layer.is_input and labels}
        while waiting:
            layer = waiting.pop()
            if layer not in needed:
                needed.add(layer)
                waiting += [home[source] for source in layer.sources]
        net.leave_out(layer for layer in net.layers if layer not in needed)
    for layer in net.layers:
        if layer.conf_name in layers:
            layer.features[0].read_as.add("data")
    return net


# -- a part ----------------------------------------------------------------------------------------------


def _compute(part: Part, net: NeuralNet) -> PartResult:
    """Compute a part by a net that has no memory yet."""
    job = JobConf.from_json(part.job, REGISTRIES)
    initial = InitialValues(job, part.init_from)
    net.context.class_names.by_layer = initial.class_names()
    inputs = [layer for layer in net.layers if isinstance(layer, StoreInput)]
    for layer in inputs:
        layer.passed = part.first
        layer.read_ahead()
    for each in net.layers:
        each.allocate()
    # random numbers are those of a test when the checkpoint was made
    net.context.step = fill(net, initial)
    conf = job.train_one_batch
    algorithm = ALGORITHMS.find(conf.alg)(net, _no_server, _no_server, conf)
    algorithm.check_params()
    metrics: list[Metrics] = []
    kept: list[list[Arrays]] = [[] for _ in part.layers]
    for _ in range(part.n_batches):
        _go_on()
        with locate_errors(lambda: f"layer {algorithm.layer.name if algorithm.layer else '?'}"):
            algorithm.test_one_batch(Phase(part.phase))
        metrics.append(net.take_metrics())
        for name, arrays in zip(part.layers, kept, strict=True):
            arrays.append(_keep(net, name, part))
    joined = [{key: np.concatenate([each[key] for each in arrays]) for key in arrays[0]} for arrays in kept]
    bad = sum(layer.bad_records for layer in inputs)
    files = inputs[0].record_files(part.first, part.first + part.n_records) if part.files else []
    if not part.folder:
        return PartResult(part, metrics, joined, bad, files)
    for name, values in zip(part.layers, joined, strict=True):
        STORES.find("arrow").write(part.url(name), values)
    return PartResult(part, metrics, [], bad, files)


def _no_server(*_: object) -> None:
    """Stand in for the way to servers."""


def fill(net: NeuralNet, initial: InitialValues) -> int:
    """Give the params of a net the values of checkpoints; return how many updates they have seen, at most.

    Raises
    ------
    CheckpointError
        They have no values of some, or values of other shapes.
    """
    owners = {param.owner.name: param.owner for layer in net.layers for param in layer.params}
    initial.check(((name, owner.shape) for name, owner in owners.items()), complete=True)
    versions = [0]
    for name, owner in owners.items():
        values, version = initial.get(name, owner.shape)
        owner.data = net.ops.empty(owner.shape, owner.dtype)
        net.ops.copy(np.ascontiguousarray(values, owner.dtype), out=owner.data)
        versions.append(version)
    return max(versions)


def _keep(net: NeuralNet, name: str, part: Part) -> Arrays:
    """Copy what a layer has computed of a batch: a record for each record read, its time steps side by side."""
    pieces = []
    for layer in net.layers:
        if layer.conf_name == name:
            feature = layer.features[0]
            values = np.asarray(layer.ops.to_host(feature.data), np.float32)
            pieces.append(values.reshape(layer.n_steps, -1, *feature.shape[1:]))
    steps = np.concatenate(pieces)
    values = steps[0] if len(steps) == 1 else steps.swapaxes(0, 1)
    if part.topk:
        values = _top(values.reshape(len(values), len(steps), -1), part.topk)
    arrays: Arrays = {"data": np.array(values.reshape(len(values), *(values.shape[1:] or (1,))), np.float32, order="C")}
    labels = [layer.features[0].labels for layer in net.layers if layer.is_input and part.labels]
    found = next((each for each in labels if each is not None and np.shape(each) == (len(values),)), None)
    if found is not None:
        arrays["label"] = np.array(found, np.int32)
    return arrays


def _top(scores: Any, n: int) -> Any:
    """Return (place, value) of the highest scores of each record, best first; of equal ones the higher place."""
    places = np.argsort(scores, axis=-1, kind="stable")[..., ::-1][..., :n]
    pairs = np.stack([places.astype(np.float32), np.take_along_axis(scores, places, -1)], axis=-1)
    return pairs.reshape(len(scores), -1)


def load_modules(sources: Sequence[modules.Source]) -> None:
    """Load the user's modules; without any, those of a job that runs in this process stay the latest."""
    if sources:
        modules.load(sources, REGISTRIES.values())


def _go_on() -> None:
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
