"""The jobs of estimators: a default one from the shape of the data, or the user's with other records."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from singa_dask.errors import ConfigError
from singa_dask.jobs import Job, Net, layer, load
from singa_dask.layers import LAYERS, StoreInput
from singa_dask.layers.records import StoreConf, stored_shape
from singa_dask.registry import suggest

__all__ = ["ACTIVATIONS", "DATA", "Training", "default_job", "given_job", "reads_weights", "record_shape"]

ACTIVATIONS = {"identity": "", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "ReLU"}
"""Names of scikit-learn -> types of layers."""
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
    learning_rate, weight_decay : float or None
    cluster : str, mapping or None
        Name or file of a topology, or block of a job file.
    seed : int or None
    """

    n: int
    batch_size: int | None
    max_iter: int | None
    updater: str | Mapping[str, Any] | None
    learning_rate: float | None
    weight_decay: float | None
    cluster: str | os.PathLike[str] | Mapping[str, Any] | None
    seed: int | None

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches with all records."""
        return math.ceil(self.n / batch_size)


def default_job(
    n_features: int,
    n_outputs: int,
    kind: str,
    hidden: Sequence[int],
    activation: str,
    training: Training,
    is_weighted: bool,
) -> Job:
    """Return the job of a multi-layer perceptron.

    Parameters
    ----------
    n_features, n_outputs : int
    kind : str
        ``"classifier"`` or ``"regressor"``.
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
    batch_size = training.batch_size or min(200, training.n)
    records = {"path": f"dask://{DATA}", "shape": [n_features], "batchsize": batch_size, "shuffle": "full"}
    layers = [layer("RecordInput", name="data", store_conf=records)]
    for number, units in enumerate(hidden, 1):
        layers.append(layer("InnerProduct", name=f"fc{number}", num_output=units))
        if ACTIVATIONS[activation]:
            layers.append(layer(ACTIVATIONS[activation], name=f"act{number}"))
    layers.append(layer("InnerProduct", name="out", num_output=n_outputs))
    weights = ["weight"] if is_weighted else []
    if is_weighted:
        layers.append(layer("WeightInput", name="weight", store_conf=records))
    if kind == "classifier":
        layers.append(layer("SoftmaxLoss", name="loss", srclayers=["out", "data", *weights]))
    else:
        layers.append(layer("TargetInput", name="target", store_conf=records, size=n_outputs))
        layers.append(layer("EuclideanLoss", name="loss", srclayers=["out", "target", *weights]))
    job = Job(
        Net(layers),
        name=kind,
        train_one_batch={"alg": "BP"},
        updater={"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.001}},
        train_steps=200 * training.steps_per_epoch(batch_size),
    )
    return _trained_by(job, training, batch_size)


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
    return _trained_by(made.replace(changes), training, batch_size)


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


def _trained_by(job: Job, training: Training, batch_size: int) -> Job:
    """Return a job with other hyper-parameters, that tells its loss once an epoch."""
    epoch = training.steps_per_epoch(batch_size)
    changes: dict[str, Any] = {"disp_freq": epoch}
    if training.updater is not None:
        given = {"type": training.updater} if isinstance(training.updater, str) else training.updater
        rate = job.conf.updater.learning_rate.model_dump(exclude_unset=True)
        changes["updater"] = {"learning_rate": rate, **given}
    if training.learning_rate is not None:
        changes["updater.learning_rate.base_lr"] = training.learning_rate
    if training.weight_decay is not None:
        changes["updater.weight_decay"] = training.weight_decay
    if training.max_iter is not None:
        changes["train_steps"] = training.max_iter * epoch
    elif job.conf.epochs is not None:
        changes["train_steps"] = math.ceil(job.conf.epochs * training.n / batch_size)
    if training.seed is not None:
        changes["seed"] = training.seed
    cluster = training.cluster
    if isinstance(cluster, Mapping):
        changes["cluster"] = cluster
        cluster = None
    return job.replace(changes, cluster)
