"""The jobs of estimators: a default one from the shape of the data, or the user's with other records."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from singa_dask.errors import ConfigError
from singa_dask.jobs import Job, Net, layer, load
from singa_dask.layers import LAYERS, StoreInput
from singa_dask.layers.records import StoreConf, stored_shape
from singa_dask.registry import suggest

__all__ = ["ACTIVATIONS", "DATA", "Training", "default_job", "given_job", "reads_weights", "record_shape"]

ACTIVATIONS = {"identity": "", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "ReLU"}
"""Names of scikit-learn -> types of layers."""
SMALL = 1 << 24
"""Products in the forward pass of a batch, below which NumPy is faster: a call of oneDNN costs more than it saves."""
DATA = "train"
"""Name of the records among the data of the job."""


@dataclass(frozen=True)
class Training:
    """How an estimator is trained: hyper-parameters, of which None is the job's own value, or the default.

    Attributes
    ----------
    n : int
        Number of records.
    batch_size, max_iter : int or None
        ``max_iter`` is a number of epochs.
    updater : str, mapping or None
        Type, or block of a job file.
    learning_rate, weight_decay, alpha : float or None
        ``alpha`` is the weight decay by record, of weights without biases.
    cluster : str, mapping or None
        Name or file of a topology, or block of a job file.
    seed : int or None
    n_threads : int
        Of a worker; 0 is all of its share.
    """

    n: int
    batch_size: int | None
    max_iter: int | None
    updater: str | Mapping[str, Any] | None
    learning_rate: float | None
    weight_decay: float | None
    alpha: float | None
    cluster: str | os.PathLike[str] | Mapping[str, Any] | None
    seed: int | None
    n_threads: int = 0

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches with all records."""
        return math.ceil(self.n / batch_size)


def default_job(
    n_features: int,
    n_outputs: int,
    loss: str,
    hidden: Sequence[int],
    activation: str,
    training: Training,
    is_weighted: bool,
) -> Job:
    """Return the job of a multi-layer perceptron.

    Parameters
    ----------
    n_features, n_outputs : int
    loss : str
        Type of the loss layer.
    hidden : sequence of int
        Units of each hidden layer.
    activation : str
        One of `ACTIVATIONS`.
    training : Training
    is_weighted : bool
        Whether the loss reads weights of records.

    Raises
    ------
    ConfigError
        A hyper-parameter is wrong.
    """
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation: unknown function {activation!r}. {suggest(activation, ACTIVATIONS)}")
    batch_size = min(training.batch_size or 200, training.n)
    records = {"path": f"dask://{DATA}", "shape": [n_features], "batchsize": batch_size, "shuffle": "full"}
    layers = [layer("RecordInput", name="data", store_conf=records)]
    decay: dict[str, Any] = {} if training.alpha is None else {"param": [{}, {"wd_scale": 0.0}]}
    for number, units in enumerate(hidden, 1):
        layers.append(layer("InnerProduct", name=f"fc{number}", num_output=units, **decay))
        if ACTIVATIONS[activation]:
            layers.append(layer(ACTIVATIONS[activation], name=f"act{number}"))
    layers.append(layer("InnerProduct", name="out", num_output=n_outputs, **decay))
    weights = ["weight"] if is_weighted else []
    if is_weighted:
        layers.append(layer("WeightInput", name="weight", store_conf=records))
    has_labels = loss == "SoftmaxLoss"
    if not has_labels:
        layers.append(layer("TargetInput", name="target", store_conf=records, size=n_outputs))
    layers.append(layer(loss, name="loss", srclayers=["out", "data" if has_labels else "target", *weights]))
    if training.alpha is not None:
        # a SigmoidCrossEntropyLoss is the mean over labels
        n_losses = n_outputs if loss == "SigmoidCrossEntropyLoss" else 1
        training = replace(training, weight_decay=training.alpha / batch_size / n_losses)
    # built once, as that takes longer than an epoch of a small net
    job = Job(
        Net(layers),
        name="regressor" if loss == "EuclideanLoss" else "classifier",
        train_one_batch={"alg": "BP"},
        updater=_updater(training, {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.001}}),
        ops="numpy" if batch_size * _size([n_features, *hidden, n_outputs]) < SMALL else "auto",
        **{"train_steps": 200 * training.steps_per_epoch(batch_size), **_changes(training, batch_size)},
    )
    return job.replace(cluster=training.cluster) if isinstance(training.cluster, str | os.PathLike) else job


def _size(sizes: Sequence[Any]) -> int:
    """Return the number of weights; 0 if a size is none."""
    known = all(isinstance(size, int | np.integer) for size in sizes)
    return sum(n_in * n_out for n_in, n_out in pairwise(sizes)) if known else 0


def given_job(job: Job | str | os.PathLike[str], training: Training) -> Job:
    """Return the user's job with all input layers reading the records of the estimator.

    Raises
    ------
    ConfigError
        It is no job to train, or reads no records.
    """
    made = job if isinstance(job, Job) else load(job)
    names = _stores(made)
    if not names or not made.conf.trains:
        raise ConfigError(f"job {made.name!r}: expected a job to train, with an input layer that has a store_conf.")
    changes: dict[str, Any] = {}
    for name in names:
        changes[f"neuralnet.layer[{name}].store_conf.path"] = f"dask://{DATA}"
        changes[f"neuralnet.layer[{name}].store_conf.backend"] = ""
        if training.batch_size:
            changes[f"neuralnet.layer[{name}].store_conf.batchsize"] = training.batch_size
    # there are no records but those to train with
    changes |= {"test_freq": 0, "validate_freq": 0}
    batch_size = training.batch_size or max(1, *(sum(store.batchsize) for store in names.values()))
    updater = made.conf.updater.model_dump(exclude_unset=True)
    if (new := _updater(training, updater)) != updater:
        changes["updater"] = new
    if training.max_iter is None and made.conf.epochs is not None:
        changes["train_steps"] = math.ceil(made.conf.epochs * training.n / batch_size)
    cluster = None if isinstance(training.cluster, Mapping) else training.cluster
    return made.replace(changes | _changes(training, batch_size), cluster)


def record_shape(job: Job, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a record for a job: that of its first input layer, if flat records have as many values."""
    (first, *_) = (stored_shape(store) for store in _stores(job).values())
    return first if len(shape) == 1 and math.prod(first) == shape[0] else shape


def reads_weights(job: Job) -> bool:
    """Return whether a layer of a job reads weights of records."""
    return any(each.type == "WeightInput" for each in job.conf.neuralnet.layer)


def _stores(job: Job) -> dict[str, StoreConf]:
    """Return what the input layers of a job read, by their names."""
    layers = [each for each in job.conf.neuralnet.layer if issubclass(LAYERS.find(each.type), StoreInput)]
    return {each.name: each.block(StoreConf) for each in layers}


def _updater(training: Training, block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block of an updater with other hyper-parameters."""
    made = dict(block)
    if training.updater is not None:
        given = {"type": training.updater} if isinstance(training.updater, str) else training.updater
        made = {"learning_rate": block["learning_rate"], **given}
    if training.learning_rate is not None:
        made["learning_rate"] = {**made["learning_rate"], "base_lr": training.learning_rate}
    if training.weight_decay is not None:
        made["weight_decay"] = training.weight_decay
    return made


def _changes(training: Training, batch_size: int) -> dict[str, Any]:
    """Return the other keys of a job that differ, so that it tells its loss once an epoch."""
    epoch = training.steps_per_epoch(batch_size)
    changes: dict[str, Any] = {"disp_freq": epoch}
    if training.max_iter is not None:
        changes["train_steps"] = training.max_iter * epoch
    if training.seed is not None:
        changes["seed"] = training.seed
    if training.n_threads:
        changes["threads"] = training.n_threads
    if isinstance(training.cluster, Mapping):
        changes["cluster"] = training.cluster
    return changes
