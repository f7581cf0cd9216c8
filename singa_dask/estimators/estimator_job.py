"""The jobs of estimators: a default one from the shape of the data, or the user's with other records."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from singa_dask.conf.layer import PHASES
from singa_dask.errors import ConfigError
from singa_dask.estimators.parameters import updater_of
from singa_dask.jobs import Job, Net, layer, load
from singa_dask.layers import LAYERS, StoreInput
from singa_dask.layers.records import StoreConf, stored_shape
from singa_dask.registry import suggest

ACTIVATIONS = {"identity": "", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "ReLU"}
"""Names of scikit-learn -> types of layers."""
SMALL = 1 << 24
"""Products in the forward pass of a batch, below which NumPy is faster: a call of oneDNN costs more than it saves."""
DATA, HELD_OUT = "train", "held_out"
"""Names of the records among the data of the job."""


def default_job(
    estimator: Any,
    shape: tuple[int, ...],
    n_outputs: int,
    loss: str,
    max_iter: int | None,
    seed: int | None,
    is_weighted: bool,
) -> Job:
    """Return the job of a multi-layer perceptron with the parameters of an estimator.

    Parameters
    ----------
    estimator : SingaEstimator
    shape : (int, int)
        Records and features.
    n_outputs, max_iter, seed : int
        ``max_iter`` is a number of epochs. None is the default.
    loss : str
        Type of the loss layer.
    is_weighted : bool
        Whether the loss reads weights of records.

    Raises
    ------
    ConfigError
        A parameter is wrong.
    """
    activation, alpha, sizes = estimator.activation, estimator.alpha, estimator.hidden_layer_sizes
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation: unknown function {activation!r}. {suggest(activation, ACTIVATIONS)}")
    n, n_features = shape
    batch_size = min(estimator.batch_size or 200, n)
    records = {"path": f"dask://{DATA}", "shape": [n_features], "batchsize": batch_size, "shuffle": "full"}
    layers = [layer("RecordInput", name="data", store_conf=records)]
    decay: dict[str, Any] = {} if alpha is None else {"param": [{}, {"wd_scale": 0.0}]}
    hidden = (int(sizes),) if isinstance(sizes, int | np.integer) else sizes
    for number, units in enumerate(hidden, 1):
        layers.append(layer("InnerProduct", name=f"fc{number}", num_output=units, **decay))
        if ACTIVATIONS[activation]:
            layers.append(layer(ACTIVATIONS[activation], name=f"act{number}"))
    layers.append(layer("InnerProduct", name="out", num_output=n_outputs, **decay))
    if is_weighted:
        layers.append(layer("WeightInput", name="weight", store_conf=records))
    has_labels = loss == "SoftmaxLoss"
    if not has_labels:
        layers.append(layer("TargetInput", name="target", store_conf=records, size=n_outputs))
    sources = ["out", "data" if has_labels else "target", *(["weight"] if is_weighted else [])]
    layers.append(layer(loss, name="loss", srclayers=sources))
    # a SigmoidCrossEntropyLoss is the mean over labels
    n_losses = n_outputs if loss == "SigmoidCrossEntropyLoss" else 1
    weight_decay = estimator.weight_decay if alpha is None else alpha / batch_size / n_losses
    adam = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.001}}
    # built once, as that takes longer than an epoch of a small net
    job = Job(
        Net(layers),
        name="regressor" if loss == "EuclideanLoss" else "classifier",
        train_one_batch={"alg": "BP"},
        updater=_updater(estimator, adam, weight_decay),
        ops="numpy" if batch_size * _size([n_features, *hidden, n_outputs]) < SMALL else "auto",
        **_changes(estimator, n, batch_size, 200 if max_iter is None else max_iter, seed),
    )
    return job.replace(cluster=estimator.cluster) if isinstance(estimator.cluster, str | os.PathLike) else job


def _size(sizes: Sequence[Any]) -> int:
    """Return the number of weights; 0 if a size is none."""
    known = all(isinstance(size, int | np.integer) for size in sizes)
    return sum(n_in * n_out for n_in, n_out in pairwise(sizes)) if known else 0


def given_job(estimator: Any, n: int, max_iter: int | None, seed: int | None) -> Job:
    """Return the user's job with all input layers reading the ``n`` records of the estimator; see `default_job`."""
    made = estimator.job if isinstance(estimator.job, Job) else load(estimator.job)
    names = _stores(made)
    if not names or not made.conf.trains:
        raise ConfigError(f"job {made.name!r}: expected a job to train, with an input layer that has a store_conf.")
    # there are no records but those to train with
    changes: dict[str, Any] = {"test_freq": 0, "validate_freq": 0}
    types = {each.name: each.type for each in made.conf.neuralnet.layer}
    for name in names:
        if types[name] == "CSVInput":  # the data are no file, and have no columns of such names
            changes[f"neuralnet.layer[{name}].type"] = "RecordInput"
        changes |= {f"neuralnet.layer[{name}].store_conf.{key}": [] for key in ("features", "label", "target")}
        changes[f"neuralnet.layer[{name}].store_conf.path"] = f"dask://{DATA}"
        changes[f"neuralnet.layer[{name}].store_conf.backend"] = ""
        if estimator.batch_size:
            changes[f"neuralnet.layer[{name}].store_conf.batchsize"] = estimator.batch_size
    batch_size = estimator.batch_size or max(1, *(sum(store.batchsize) for store in names.values()))
    updater = made.conf.updater.model_dump(exclude_unset=True)
    if (new := _updater(estimator, updater, estimator.weight_decay)) != updater:
        changes["updater"] = new
    if max_iter is None and made.conf.epochs is not None:
        changes["train_steps"] = math.ceil(made.conf.epochs * n / batch_size)
    cluster = None if isinstance(estimator.cluster, Mapping) else estimator.cluster
    return made.replace(changes | _changes(estimator, n, batch_size, max_iter, seed), cluster)


def tested_job(job: Job, estimator: Any, loss: str, is_weighted: bool) -> Job:
    """Return a job that ends by the score of records held out after each epoch, as `Stopping` does; see `default_job`.

    Input layers of its test net read these. Its run keeps the newest checkpoint, and the one with the best score.
    """
    metric = {"SoftmaxLoss": "top_1_accuracy", "EuclideanLoss": "r2"}.get(loss, "")
    # several groups change values between a test and its checkpoint
    reasons = {"several labels": not metric, "sample_weight": is_weighted}
    reasons["several worker groups"] = job.conf.cluster.nworker_groups > 1
    if wrong := [reason for reason, holds in reasons.items() if holds]:
        raise ConfigError(f"early_stopping: workers compute no score with {wrong[0]}. Leave one of the two out.")
    layers: list[dict[str, Any]] = []
    for each in job.conf.neuralnet.layer:
        made = each.model_dump(exclude_unset=True)
        if each.in_phase(PHASES["test"]) and issubclass(LAYERS.find(each.type), StoreInput):
            if phases := [name for name in ("train", "val") if each.in_phase(PHASES[name])]:
                layers.append({**made, "include": phases, "exclude": []})
            store = {**made["store_conf"], "path": f"dask://{HELD_OUT}"}
            made |= {"include": ["test"], "exclude": [], "store_conf": store}
        layers.append(made)
    epoch, watched = job.conf.disp_freq, {"metric": f"test.{metric}"}
    patience = {"patience": estimator.n_iter_no_change + 1, "min_delta": estimator.tol, "every_best": True}
    keys = job.conf.model_dump(exclude_unset=True)
    keys |= dict.fromkeys(("test_freq", "test_after", "checkpoint_freq", "checkpoint_after"), epoch)
    keys |= {"metrics": [*job.conf.metrics, metric], "keep_checkpoints": {"best": 1, **watched}, "test_steps": None}
    return Job({**keys.pop("neuralnet"), "layer": layers}, **keys, early_stopping={**watched, **patience})


def record_shape(job: Job, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a record for a job: that of its first input layer, if flat records have as many values."""
    (first, *_) = (stored_shape(store) for store in _stores(job).values())
    return first if len(shape) == 1 and math.prod(first) == shape[0] else shape


def _stores(job: Job) -> dict[str, StoreConf]:
    """Return what the input layers of a job read, by their names."""
    layers = [each for each in job.conf.neuralnet.layer if issubclass(LAYERS.find(each.type), StoreInput)]
    return {each.name: each.block(StoreConf) for each in layers}


def _updater(estimator: Any, block: Mapping[str, Any], weight_decay: float | None) -> dict[str, Any]:
    """Return the block of an updater with the parameters of an estimator."""
    made, given = dict(block), updater_of(estimator)
    if given is not None:
        made = {"learning_rate": block["learning_rate"], **({"type": given} if isinstance(given, str) else given)}
    if estimator.learning_rate_init is not None:
        made["learning_rate"] = {**made["learning_rate"], "base_lr": estimator.learning_rate_init}
    return made if weight_decay is None else {**made, "weight_decay": weight_decay}


def _changes(estimator: Any, n: int, batch_size: int, max_iter: int | None, seed: int | None) -> dict[str, Any]:
    """Return the other keys of a job that differ, so that it tells its loss once an epoch."""
    epoch = math.ceil(n / batch_size)
    changes = {
        "disp_freq": epoch,
        "train_steps": None if max_iter is None else max_iter * epoch,
        "seed": seed,
        "threads": max(estimator.n_jobs or 0, 0) or None,
        "cluster": estimator.cluster if isinstance(estimator.cluster, Mapping) else None,
    }
    return {key: value for key, value in changes.items() if value is not None}
