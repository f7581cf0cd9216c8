"""LocalFit trains a net in the calling thread; FittedNet is the trained net."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice, starmap
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from dask.base import is_dask_collection

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.arrays import Array
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.record_values import value_name
from singa_dask.data.stores.training_knowledge import Learned
from singa_dask.errors import ConfigError, NumericError, Problem
from singa_dask.inference.filled_net import load_modules
from singa_dask.inference.inference_job import inference_job
from singa_dask.inference.predicted_layers import classifier, output_layer
from singa_dask.inference.sized_nets import LoadedValues, SizedNets
from singa_dask.inputs import StoreInput
from singa_dask.jobs.datasets.binding import fit_to_data, readers, with_urls
from singa_dask.jobs.datasets.hosts import local_parts
from singa_dask.jobs.datasets.making import as_datasets
from singa_dask.jobs.job import Job
from singa_dask.layers import Param
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.lookup import load_manifest, load_values
from singa_dask.runtime.checkpoints.singa_checkpoint import Stored
from singa_dask.runtime.job.checks.job import missing_gpus
from singa_dask.runtime.planning.devices import device_of_part
from singa_dask.runtime.planning.nets import build_net, find_ops
from singa_dask.runtime.planning.thread_limits import ThreadPools
from singa_dask.training import ALGORITHMS, UPDATERS, Algorithm, initial_values

MAX_BATCHES, MAX_VALUES = 10, 1 << 20
"""Maximum number of batches of flat records that are computed together, and of the values in them."""


class FittedNet:
    """The net of a job with trained values. It is pickled with these values. Threads can share it.

    Parameters
    ----------
    sources : sequence of Source
        The user's own modules.
    has_classes : bool
        Whether the outputs are class probabilities.
    values : mapping of str to Stored
        Values of the net's params.
    learned : Learned, optional
        Values that the run has learned from the training data in addition to params, such as scalings.
    is_shared : bool
        Whether the net uses the arrays in ``values`` without a copy. Later changes of the arrays then change its
        results. The arrays must have the shapes and dtype of the params.
    """

    def __init__(
        self,
        job: JobConf,
        sources: Sequence[modules.Source],
        has_classes: bool,
        values: Mapping[str, Stored],
        learned: Learned | None = None,
        is_shared: bool = False,
    ) -> None:
        self._job, self._sources, self._has_classes = job, sources, has_classes
        self._values, self.learned, self._is_shared = values, learned, is_shared
        self._lock = threading.Lock()

    @classmethod
    def of(cls, job: Job, url: str, has_classes: bool, scales: bool) -> FittedNet:
        """Return the net of a run directory. The directory may be deleted afterwards.

        Pass ``scales=True`` if the net itself, not the estimator, scales its records.
        """
        stored = load_values(url, job.conf.updater.ema_decay > 0)
        values = {name: Stored(np.array(each.values), each.version) for name, each in stored.items()}
        sources = modules.read(job.conf.modules)
        learned = Learned.of(load_manifest(url))._replace(encodings={})
        return cls(job.conf, sources, has_classes, values, learned if scales else None)

    @property
    def values(self) -> dict[str, Array]:
        """Values of the net's params by name."""
        return {name: each.values for name, each in self._values.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._sources, self._has_classes, dict(self._values), self.learned, self._is_shared
        return _read, (self._job.to_json(), *state)

    def outputs(self, x: Array) -> Array:
        """Compute the class probabilities or predicted values of records (N, ...): (N, outputs)."""
        if not len(x):
            # partitions of a Dask frame may be empty
            return self.outputs(np.zeros((1, *x.shape[1:]), x.dtype))[:0]
        with self._lock:
            batches = list(self._outputs(x))
        return np.concatenate(batches).reshape(len(x), -1)

    def _outputs(self, x: Array) -> Iterator[Array]:
        field = value_name(x.dtype)
        net, layer = self._net
        is_flat = x.ndim == 2 and not net.sequential
        batches = _batches(len(x), net.batchsize, x.shape[1]) if is_flat else starmap(slice, net.batches(len(x)))
        for rows in batches:
            records = {name: {field: x[rows]} for name in net.inputs}
            yield net.compute(records, rows.stop - rows.start, rows.start)[layer]["data"]

    @cached_property
    def _net(self) -> tuple[SizedNets, str]:
        """The net, and the name of its output layer."""
        load_modules(self._sources)
        job = self._job
        if missing_gpus(job):
            job = job.model_copy(update={"gpu": [], "ops": "auto"})
        read = inference_job(job, Phase.TEST, in_order=True, exposed=True)
        layer = (classifier if self._has_classes else output_layer)(job, Phase.TEST)
        ops = find_ops(read.job, device_of_part(read.job, 0))
        shared = {name: (each.values, each.version) for name, each in self._values.items()} if self._is_shared else {}
        loaded = LoadedValues(InitialValues.of(self._values, self.learned), ops, shared, self._sources)
        return SizedNets(read.job, read.phase, loaded, (layer,)), layer


def _batches(n: int, size: int, n_features: int) -> Iterator[slice]:
    """Yield ranges of rows. Each range has several batches, because small batches of a small net are slow."""
    size *= min(MAX_BATCHES, max(1, MAX_VALUES // (size * n_features)))
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def _read(text: str, *state: Any) -> FittedNet:
    """Unpickle a net; ``text`` is its job as JSON."""
    sources = state[0]
    load_modules(sources)
    return FittedNet(JobConf.from_json(text, REGISTRIES), *state)


OTHER_NET = (
    "the fitted values belong to another net. Expected the layers of the previous fit. Call fit with warm_start=False "
    "for a new net."
)


@dataclass
class Stopping:
    """Decides whether a fit ends before its last epoch, with the rule of scikit-learn's MLPClassifier.

    A fit ends after more than ``patience`` consecutive epochs that were not better than the best epoch by ``tol``.
    Epochs are compared by ``score`` of the current values, or else by their mean loss including the L2 penalty.
    """

    tol: float
    patience: int
    score: Callable[[], float] | None = None
    scores: list[float] = field(default_factory=list)
    best_loss: float = np.inf
    best_score: float = -np.inf
    _n_worse: int = 0

    def take(self, loss: float) -> tuple[bool, bool]:
        """Add the loss of an epoch.

        Returns
        -------
        is_best : bool
            Whether the values of this epoch are the best so far and should be kept.
        ends : bool
            Whether the fit should end.
        """
        keeps, improves = False, loss <= self.best_loss - self.tol
        self.best_loss = min(loss, self.best_loss)
        if self.score is not None:
            score = self.score()
            keeps, improves = score > self.best_score, score >= self.best_score + self.tol
            self.scores.append(score)
            self.best_score = max(score, self.best_score)
        self._n_worse = 0 if improves else self._n_worse + 1
        return keeps, self._n_worse > self.patience


class _Group(NamedTuple):
    """Params with equal ``lr_scale`` and ``wd_scale``, stored in one array that is updated at once."""

    values: Array
    grads: Array
    state: Mapping[str, Array]
    scales: tuple[float, float]


class LocalFit:
    """Trains the net of a job in the calling thread.

    Parameters
    ----------
    job : Job
        A job with one worker, and without running statistics.
    data : tuple of array
        Features, targets, and optionally weights: all of them NumPy arrays, or all Dask arrays. Features in memory may
        also be `SparseRecords`.
    rows : (n,) ndarray of int, optional
        Indices of the records in memory to train with. By default all records are used.
    initial : mapping of str to ndarray
        Initial values of all params, or an empty mapping.
    has_classes : bool
        See `FittedNet`.
    """

    def __init__(
        self, job: Job, data: tuple[Any, ...], rows: Array | None, initial: Mapping[str, Array], has_classes: bool
    ) -> None:
        self._values: dict[str, Stored] = {}
        self._job, self._data, self._rows, self._initial = job.conf, data, rows, initial
        self._n = data[0].shape[0] if rows is None else len(rows)
        self._ops = find_ops(self._job, self._job.ops)
        updater = self._job.updater
        if used := [
            key for key in ("clip_norm", "accumulate", "scales", "ema_decay") if key in updater.model_fields_set
        ]:
            raise ConfigError(Problem(("updater", used[0]), "needs servers, but this thread trains. Pass a client."))
        self._updater = UPDATERS.find(self._job.updater.type)(self._job.updater)
        self._updater.ops = self._ops
        self._has_classes = has_classes
        self._groups: list[_Group] = []
        self._step = 0

    @cached_property
    def net(self) -> FittedNet:
        """The net with the current values. It can be used during training."""
        return FittedNet(self._job, (), self._has_classes, self._values, is_shared=True)

    def run(self, n_steps: int, stopping: Stopping, on_epoch: Callable[[int, float], None]) -> tuple[list[float], int]:
        """Train to the end of the job, or until ``stopping`` ends the training.

        If ``stopping`` computes a score, the best values are restored at the end. An epoch has ``n_steps`` steps.
        ``on_epoch`` is called with the number of each epoch, counted from 1, and its loss.

        Returns
        -------
        list of float
            Mean losses, as a job reports them: first the loss of the first step, then once per epoch the mean loss of
            the steps since the last report.
        int
            Number of epochs.
        """
        curve: list[float] = []
        best: list[Array] = []
        n, n_seen, total = self._n, 0, 0.0
        epoch, rest, loss = 0, list[float](), 0.0
        with ExitStack() as stack:
            if self._job.threads:
                stack.enter_context(ThreadPools().limit(self._job.threads))
            stack.enter_context(self._ops.activate())
            net, batches = stack.enter_context(self._net_and_batches(n_steps))
            algorithm = ALGORITHMS.find(self._job.train_one_batch.alg)(net)
            (loss_layer,) = (layer for layer in net.layers if layer.traits.role == "loss")
            size = loss_layer.features[0].shape[0]
            for epoch in range(1, self._job.train_steps // n_steps + 1):
                losses = []
                for batch in islice(batches, n_steps):
                    self._train(algorithm, batch)
                    losses.append(operator.truediv(*loss_layer.take_metrics()["loss"]))
                    n_seen += size
                    total += losses[-1] * size
                    if n_seen >= n:
                        # the last n_seen records of the batch already belong to the next pass over the data
                        n_seen -= n
                        after = _loss_of_last(loss_layer, n_seen) * n_seen if n_seen else 0.0
                        loss, total = (total - after) / n, after
                curve.append(fmean([*rest, losses[0]]))
                rest = losses[1:]
                on_epoch(epoch, loss + self._penalty())
                keeps, ends = stopping.take(loss + self._penalty())
                if keeps:
                    best = [group.values.copy() for group in self._groups]
                if ends:
                    break
        if rest:
            curve.append(fmean(rest))
        for group, values in zip(self._groups, best, strict=False):
            group.values[...] = values
        return curve, epoch

    def _train(self, algorithm: Algorithm, batch: Mapping[str, Array] | None) -> None:
        """Run one step of training."""
        if batch is not None:
            for layer in algorithm.net.layers:
                if isinstance(layer, StoreInput):
                    layer.feed(dict(batch))
        try:
            algorithm.train_one_batch(self._step)
        except NumericError as error:
            message = f"step {self._step}: {error} An estimator sets it by learning_rate_init."
            raise NumericError(message) from None
        for values, grads, state, (lr_scale, wd_scale) in self._groups:
            self._updater.update(self._step, self._step, values, grads, state, lr_scale=lr_scale, wd_scale=wd_scale)
        self._step += 1

    def _penalty(self) -> float:
        """Return the L2 penalty of the current values, in the units of the loss."""
        # the gradient of EuclideanLoss is the gradient of half the loss
        factor = self._job.updater.weight_decay * (1 if self._job.name == "regressor" else 0.5)
        return factor and sum(
            factor * scales[1] * float(np.dot(values, values)) for values, _, _, scales in self._groups
        )

    @contextmanager
    def _net_and_batches(self, n_steps: int) -> Iterator[tuple[NeuralNet, Iterator[Mapping[str, Array] | None]]]:
        """Return a context with the net, and an iterator over the records of each step.

        The records are None if the net reads them itself.
        """
        if not is_dask_collection(self._data[0]):
            net = self._built(self._job)
            yield net, self._batches(net, n_steps)
            return
        job, datasets = fit_to_data(self._job, as_datasets(dict.fromkeys(readers(self._job).values(), self._data)))
        with local_parts(datasets) as urls:
            net = self._built(with_urls(job, urls))
            try:
                yield net, (None for _ in count())
            finally:
                net.close()

    def _batches(self, net: NeuralNet, n_steps: int) -> Iterator[Mapping[str, Array]]:
        """Yield the records of each step, in the order in which the net would read them."""
        layer = next(layer for layer in net.layers if isinstance(layer, StoreInput))
        x, targets, *weights = self._data
        order = layer.plan.order([self._n], "")
        field = "label" if targets.ndim == 1 else "target"
        for step in count(0, n_steps):
            for ids in order.rows(step, n_steps=n_steps):
                rows = ids if self._rows is None else self._rows[ids]
                batch = {"data": x[rows], field: targets[rows]}
                yield {**batch, "weight": weights[0][rows]} if weights else batch

    def _built(self, job: JobConf) -> NeuralNet:
        """Return the training net with memory and initial values."""
        net = build_net(job, Phase.TRAIN, self._ops)
        net.allocate()
        shapes = {owner.name: owner.shape for owner in net.owners}
        if self._initial and shapes != {name: each.shape for name, each in self._initial.items()}:
            raise ConfigError(OTHER_NET)
        owners: dict[tuple[float, float], list[Param]] = {}
        for owner in net.owners:
            owners.setdefault((owner.conf.lr_scale, owner.conf.wd_scale), []).append(owner)
        self._groups = [self._grouped(group, scales) for scales, group in owners.items()]
        return net

    def _grouped(self, owners: list[Param], scales: tuple[float, float]) -> _Group:
        """Allocate params in one array, and set their initial values."""
        shape = (sum(owner.size for owner in owners),)
        values, grads = (self._ops.zeros(shape, owners[0].dtype) for _ in range(2))
        start = 0
        for owner in owners:
            place = slice(start, start + owner.size)
            start += owner.size
            owner.data = values[place].reshape(owner.shape)
            self._values[owner.name] = Stored(owner.data, 0)
            owner.swap_grad(grads[place].reshape(owner.shape))
            init = owner.initial if owner.conf.init is None else owner.conf.init
            if owner.name in self._initial:
                owner.data[...] = self._initial[owner.name]
            elif init is not None:
                owner.data[...] = initial_values(init, owner.name, owner.shape, self._job.seed, owner.dtype)
        state = {name: self._ops.zeros(shape, values.dtype) for name in self._updater.state_names}
        return _Group(values, grads, state, scales)


def _loss_of_last(layer: Any, n: int) -> float:
    """Return the mean loss of the last ``n`` records of a batch."""
    outputs, weights = layer.features[0].data[-n:], None if layer.weights is None else layer.weights[-n:]
    if layer.conf.type == "SoftmaxLoss":
        return float(layer.ops.cross_entropy(outputs, layer.labels(1)[-n:], weights=weights))
    if layer.conf.type == "EuclideanLoss":
        return float(layer.ops.sum_squares(outputs, weights)) / n
    return float(layer.ops.binary_cross_entropy(layer.rows(0)[-n:], layer.rows(1)[-n:], weights) / outputs.size)
