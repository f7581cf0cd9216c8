"""What estimators are given: their parameters and the jobs that these make, and features, targets and weights."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed
from distributed import Client
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_array, check_X_y, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import count_nonzero, mean_variance_axis, min_max_axis
from sklearn.utils.validation import _check_sample_weight, validate_data

from singa_dask.arrays import Array
from singa_dask.comm.remote_import import Guarded
from singa_dask.conf.layer import PHASES
from singa_dask.data.codecs.record import find_wrong_weight
from singa_dask.data.codecs.scaling import Moments, Scaling
from singa_dask.errors import ConfigError
from singa_dask.estimators.categories import categories_of, categories_of_parts, refuse_missing
from singa_dask.jobs.cluster import compute_on
from singa_dask.jobs.datasets.lazy_parts import array_of, map_parts, parts_of
from singa_dask.jobs.job import Job, as_job
from singa_dask.jobs.net_values import Net, layer
from singa_dask.layers import LAYERS, StoreInput
from singa_dask.layers.record_shapes import stored_shape
from singa_dask.layers.store_conf import StoreConf
from singa_dask.registry import suggest

C = TypeVar("C", bound=type)

SOLVERS = ("adam", "sgd")
TOL, PATIENCE = 1e-4, 10
"""Defaults of ``tol`` and ``n_iter_no_change``."""

PARAMETERS = """
    Parameters
    ----------
    hidden_layer_sizes : sequence of int, or int
        Units of each hidden layer of the default net, or of the only one.
    activation : {"identity", "logistic", "tanh", "relu"}
        Activation of its hidden layers.
    job : Job or path, optional
        Job, or job file, to train in place of the default one. Its input layers read X and y, whatever their ``path``.
        X is given to it as it is: scaling is the job's, e.g. by ``std_value`` or a BatchNorm layer. It is not tested
        while it trains.
    solver : {"adam", "sgd"}, optional
        Adam, or SGD with Nesterov's momentum. Default: Adam, or the updater of the job.
    momentum : float
        Of the solver ``"sgd"``.
    updater : str or mapping, optional
        Type of the updater, or its block of a job file with all that there is, in place of ``solver``: other rates of
        decay than Adam's 0.9 and 0.999, or a learning rate that changes.
    learning_rate_init : float, optional
        ``base_lr`` of the learning rate. Default: 0.001, or the job's.
    alpha : float, optional
        L2 penalty of weights, not of biases, divided by the records of a batch. Default: 0. Not with a ``job``.
    weight_decay : float, optional
        Of the updater, in place of ``alpha``: of biases too, and not divided. Default: 0, or the job's.
    batch_size : int, optional
        Records of a step, of all workers of a group together. Default: 200, or all if there are fewer; or the job's.
    max_iter : int, optional
        Largest number of epochs, of ``ceil(n / batch_size)`` steps. Default: 200, or the ``train_steps`` of the job.
    tol, n_iter_no_change : float, int
        The fit ends once more than ``n_iter_no_change`` epochs in a row were not better than the best one by ``tol``:
        by the mean loss of training, or by the score of ``early_stopping``. With ``job``, ``cluster``, ``client``,
        ``run_dir`` or ``init_from`` only by that score: without it the fit takes all epochs, and refuses other values
        than the defaults that could end it earlier.
    early_stopping : bool
        Hold out ``validation_fraction`` of the records, and keep the values of the epoch with the best score of these:
        accuracy, or R2. In memory each class has the same share of them; of Dask all records are drawn alike. Workers
        compute the score of data of Dask, and of a ``job``, ``cluster``, ``client``, ``run_dir`` or ``init_from``:
        in one group, without ``sample_weight``, of one class a record.
    validation_fraction : float
    handle_unknown : {"error", "ignore"}
        What `predict` does with categories that the fit has not seen: ignored, a record has none of the known ones.
    n_jobs : int, optional
        Threads of a worker. Default: all of its share of the cores.
    random_state : int, RandomState or None
        Where the seed of the job comes from. Default: another one in each fit, or the job's.
    warm_start : bool
        Let `fit` start from the fitted values, if there are any, as `partial_fit` does.
    init_from : str or sequence of str
        Runs or checkpoints to start with the values of; fitted values go before them.
    cluster : str, path or mapping, optional
        Topology: a name such as ``"allreduce"``, a file, or a block of a job file. Default: one worker, or the job's.
    client : distributed.Client or str, optional
        Cluster to train and compute collections of Dask on, or the address of its scheduler; give the address to clone
        or pickle the estimator. Default: this process, or processes that are started for one fit, and collections of
        Dask are computed as Dask is configured.
    run_dir : str, optional
        URL to keep the run at, another one for each fit. Default: a temporary directory that is deleted after the fit.
    verbose : bool
        Show progress on stderr.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) ndarray of str
        If the columns of X have names.
    n_iter_ : int
        Epochs, begun ones counted, of all fits that the values come from.
    loss_curve_ : list of float
        Mean loss of training: of the first step of a fit, then of the steps since, once an epoch.
    best_loss_ : float
        Smallest mean loss of an epoch of the last fit, with the L2 penalty; None with ``early_stopping``.
    validation_scores_, best_validation_score_ : list of float, float
        Of each epoch of the last fit with ``early_stopping``, and the best one; else None.
"""


def documented(cls: C) -> C:
    """Add what the estimators share to the docstring of one, and to the signature of its own ``__init__``."""
    cls.__doc__ = f"{cls.__doc__}{PARAMETERS}"
    if "__init__" in vars(cls):
        typed: Any = cls
        shared, own = (signature(each).parameters for each in (super(typed, typed).__init__, typed.__init__))
        known = {**shared, **{name: each for name, each in own.items() if each.kind != Parameter.VAR_KEYWORD}}
        typed.__init__.__signature__ = Signature(list(known.values()))
    _name_unknown(cls)
    return cls


MEANT = {
    "lr": "learning_rate_init",
    "epochs": "max_iter",
    "optimizer": "updater",
    "patience": "n_iter_no_change",
    "seed": "random_state",
}
"""Names of other packages, and what they are called here."""


def _name_unknown(cls: Any) -> None:
    """Have the ``__init__`` of a class suggest what an unknown argument may mean."""
    make, known = cls.__init__, [name for name in signature(cls).parameters if name != "self"]

    @wraps(make)
    def init(self: Any, *values: Any, **given: Any) -> None:
        for name in given:
            if name not in known:
                raise TypeError(f"{cls.__name__}: unknown argument {name!r}. {suggest(MEANT.get(name, name), known)}")
        make(self, *values, **given)

    cls.__init__ = init


def is_distributed(estimator: Any) -> bool:
    """Return whether workers and servers train it, and not this thread."""
    return any(getattr(estimator, name) for name in ("job", "cluster", "client", "run_dir", "init_from"))


def check_parameters(estimator: Any, max_iter: int | None, partial: bool) -> None:
    """Check parameters that no job checks; ConfigError if one is wrong or excludes others."""
    counts = {name: getattr(estimator, name) for name in ("batch_size", "n_jobs", "n_iter_no_change")}
    for name, value in {**counts, "max_iter": max_iter}.items():
        if value is not None and (isinstance(value, str) or value < 1) and not (name == "n_jobs" and value == -1):
            raise ConfigError(f"{name}: {value}. Expected an integer from 1 on, or None.")
    for name in ("learning_rate_init", "alpha", "weight_decay", "momentum", "tol"):
        value = getattr(estimator, name)
        if value is not None and not (isinstance(value, (int, float)) and value >= 0):
            raise ConfigError(f"{name}: {value!r}. Expected a number from 0 on.")
    solver = estimator.solver
    if solver == "lbfgs":
        raise ConfigError(
            "solver: 'lbfgs' is none of these nets. Expected 'adam' or 'sgd'; for few records take smaller batches or "
            "more epochs, or MLPClassifier and MLPRegressor of scikit-learn."
        )
    if solver is not None and solver not in SOLVERS:
        raise ConfigError(f"solver: unknown {solver!r}. {suggest(str(solver), SOLVERS)}")
    for one, other in (("solver", "updater"), ("alpha", "weight_decay"), ("alpha", "job")):
        if getattr(estimator, one) is not None and getattr(estimator, other) is not None:
            raise ConfigError(f"{one} and {other} are given. Expected one of them.")
    if estimator.early_stopping and partial:
        raise ConfigError("early_stopping: not with partial_fit. Expected False.")
    epochs = np.inf if estimator.job is not None and max_iter is None else max_iter or 200
    if is_distributed(estimator) and not estimator.early_stopping and estimator.n_iter_no_change < epochs:
        if (estimator.tol, estimator.n_iter_no_change) != (TOL, PATIENCE):
            raise ConfigError(
                "tol, n_iter_no_change: with job, cluster, client, run_dir and init_from no fit ends by its loss. "
                f"Expected early_stopping=True, or the defaults, {TOL} and {PATIENCE}, with which it takes all epochs."
            )
    if estimator.early_stopping and not 0 < estimator.validation_fraction < 1:
        raise ConfigError(f"validation_fraction: {estimator.validation_fraction}. Expected a number between 0 and 1.")


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
    if not estimator.batch_size:
        batch_size = max(batch_size - batch_size % _group_size(estimator.cluster), 1)
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


def _group_size(cluster: str | os.PathLike[str] | Mapping[str, Any] | None) -> int:
    """Return how many workers share a batch."""
    if cluster is None:
        return 1
    changes, name = ({"cluster": cluster}, None) if isinstance(cluster, Mapping) else ({}, cluster)
    return Job(Net([layer("ReLU", name="any")])).replace(changes, name).conf.cluster.nworkers_per_group


def _size(sizes: Sequence[Any]) -> int:
    """Return the number of weights; 0 if a size is none."""
    known = all(isinstance(size, int | np.integer) for size in sizes)
    return sum(n_in * n_out for n_in, n_out in pairwise(sizes)) if known else 0


def given_job(estimator: Any, n: int, max_iter: int | None, seed: int | None) -> Job:
    """Return the user's job with all input layers reading the ``n`` records of the estimator; see `default_job`."""
    job = as_job(estimator.job)
    names = _stores(job)
    if not names or not job.conf.trains:
        raise ConfigError(f"job {job.name!r}: expected a job to train, with an input layer that has a store_conf.")
    # there are no records but those to train with
    changes: dict[str, Any] = {"test_freq": 0, "validate_freq": 0}
    types = {each.name: each.type for each in job.conf.neuralnet.layer}
    for name in names:
        if types[name] == "CSVInput":  # the data are no file, and have no columns of such names
            changes[f"neuralnet.layer[{name}].type"] = "RecordInput"
        changes |= {f"neuralnet.layer[{name}].store_conf.{key}": [] for key in ("features", "label", "target")}
        changes[f"neuralnet.layer[{name}].store_conf.path"] = f"dask://{DATA}"
        changes[f"neuralnet.layer[{name}].store_conf.backend"] = ""
        if estimator.batch_size:
            changes[f"neuralnet.layer[{name}].store_conf.batchsize"] = estimator.batch_size
    batch_size = estimator.batch_size or max(1, *(sum(store.batchsize) for store in names.values()))
    updater = job.conf.updater.model_dump(exclude_unset=True)
    if (new := _updater(estimator, updater, estimator.weight_decay)) != updater:
        changes["updater"] = new
    if max_iter is None and job.conf.epochs is not None:
        changes["train_steps"] = math.ceil(job.conf.epochs * n / batch_size)
    cluster = None if isinstance(estimator.cluster, Mapping) else estimator.cluster
    return job.replace(changes | _changes(estimator, n, batch_size, max_iter, seed), cluster)


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
        block = each.model_dump(exclude_unset=True)
        if each.in_phase(PHASES["test"]) and issubclass(LAYERS.find(each.type), StoreInput):
            if phases := [name for name in ("train", "val") if each.in_phase(PHASES[name])]:
                layers.append({**block, "include": phases, "exclude": []})
            store = {**block["store_conf"], "path": f"dask://{HELD_OUT}"}
            block |= {"include": ["test"], "exclude": [], "store_conf": store}
        layers.append(block)
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
    changed, chosen = dict(block), estimator.updater or ("Adam" if estimator.solver else None)
    if estimator.solver == "sgd":
        chosen = {"type": "Nesterov", "momentum": estimator.momentum}
    if chosen is not None:
        changed = {"learning_rate": block["learning_rate"], **({"type": chosen} if isinstance(chosen, str) else chosen)}
    if estimator.learning_rate_init is not None:
        changed["learning_rate"] = {**changed["learning_rate"], "base_lr": estimator.learning_rate_init}
    return changed if weight_decay is None else {**changed, "weight_decay": weight_decay}


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


# What estimators check of features, targets and weights, and learn of them before a fit; sparse rows; categories.


BLOCK = 1 << 22
"""Values of a dense block."""
ROWS = 200


def is_sparse(x: Any) -> bool:
    """Return whether an array is a sparse matrix."""
    return hasattr(x, "toarray")


def scaling_of_sparse(x: Any) -> Scaling:
    """Return the scaling of the columns of a sparse matrix, which leaves zeros what they are: nothing is subtracted."""
    mean, variance = mean_variance_axis(x.astype(np.float64), axis=0)
    low, high = min_max_axis(x, axis=0)
    moments = Moments(x.shape[0], mean, variance * x.shape[0], low, high, count_nonzero(x, axis=0))
    scaling = Scaling.of(moments)
    return Scaling(np.zeros_like(mean), scaling.std)


class SparseRecords:
    """The rows of a sparse matrix (n, features), CSR, scaled; ``records`` makes of dense rows what the net reads."""

    def __init__(self, x: Any, scaling: Scaling | None, records: Callable[[Array], Array]) -> None:
        self.shape = x.shape
        self._x, self._records = x, records
        if scaling is not None and not scaling.mean.any():
            # only what is not 0 has to be scaled
            self._x = x.astype(np.float32)
            self._x.data[...] = x.data / scaling.divisor[x.indices]
            self._records = np.asarray

    def __getitem__(self, rows: Any) -> Array:
        return self._records(self._x[rows].toarray())

    def slices(self) -> list[slice]:
        """Return the rows of each block."""
        n = max(1, BLOCK // self.shape[1] // ROWS) * ROWS
        return [slice(first, min(first + n, self.shape[0])) for first in range(0, self.shape[0], n)]

    def to_dask(self) -> Any:
        """Return an array of Dask of its blocks."""
        first, rows = self[:1], delayed(Guarded(self.__getitem__))
        return da.concatenate(  # type: ignore[no-untyped-call]
            [da.from_delayed(rows(of), (of.stop - of.start, *first.shape[1:]), first.dtype) for of in self.slices()]  # type: ignore[no-untyped-call]
        )


Parts = list[Any]

FLOATS = (np.float64, np.float32)


class FitRecords(NamedTuple):
    """Features and targets to fit to, and what is known of them.

    Attributes
    ----------
    x, y : (N, ...) array
        Of NumPy, or of Dask with the same chunks of records; ``x`` may be a sparse matrix, in CSR format.
    weights : (N,) array or None
    x_facts, y_facts : ArrayFacts
        With the moments of dense features (N, D) of a new net without a job, the classes of a classifier, and the
        moments of the targets of a regressor.
    """

    x: Any
    y: Any
    weights: Any
    x_facts: ArrayFacts
    y_facts: ArrayFacts


def checked_records(
    estimator: BaseEstimator, x: Any, y: Any, weights: Any, several_axes: bool, reset: bool = True, **given: Any
) -> FitRecords:
    """Return features and targets to fit to, of records whose weight is not 0; partitions of Dask are computed once.

    The estimator gets ``n_features_in_`` and ``feature_names_in_``.

    Parameters
    ----------
    x, y, weights
        As in `SingaEstimator.fit`.
    several_axes : bool
        Whether a record may have several axes, and its values may be uint8.
    reset : bool
        Whether the names and the number of features may be others than in the fit before.
    **given
        Options of `sklearn.utils.validation.validate_data`.
    """
    _refuse_masked(X=x, y=y, sample_weight=weights)
    wanted = reset and not several_axes, is_classifier(estimator)
    if not is_dask_collection(x):
        y, weights = (compute_on(estimator.client, each)[0] for each in (y, weights))
        x, y = _checked(estimator, several_axes, reset, x, y, **given)
        if is_classifier(estimator) and y.ndim == 2:
            y = column_or_1d(y, warn=True) if y.shape[1] == 1 else y
        y = y.toarray() if is_sparse(y) else y
        if weights is not None:
            x, y, weights = _weighted(x, y, weights)
        if is_sparse(x):
            # its values are finite, and no other facts of it are needed
            return FitRecords(x, y, weights, ArrayFacts((len(y),), True), facts_of_both(y, y, False, wanted[1])[1])
        return FitRecords(x, y, weights, *facts_of_both(x, y, *wanted))
    x = _checked_meta(estimator, x, several_axes, reset=reset)
    if not is_dask_collection(y):
        y = da.from_array(np.asarray(y), chunks=-1)  # type: ignore[no-untyped-call]
    if weights is not None and hasattr(x, "chunks") and hasattr(y, "chunks") and x.shape[0] == y.shape[0]:
        y = y.rechunk({0: x.chunks[0]})
    if y.ndim == 2 and hasattr(y, "columns") and len(y.columns) == 1:
        y = y[y.columns[0]]
    y = _of_one_type(y)
    parts = parts_of(x), parts_of(y)
    if weights is not None:
        parts, weights = _with_weights(x, *parts, weights)
    facts = facts_of_parts(*parts, *wanted, estimator.client)
    for name, each in zip("Xy", facts, strict=True):
        if not each.is_finite:
            raise ValueError(
                f"Input {name} contains NaN or infinity. Expected finite numbers: leave out or fill in others."
            )
    n, n_targets = (sum(each.lengths) for each in facts)
    if n != n_targets:
        raise ValueError(f"X has {n} records, but y has {n_targets}.")
    if not n:
        raise ValueError("X has no records. Expected at least one.")
    x, y = (array_of(of, known.lengths, _meta_of(each)) for of, known, each in zip(parts, facts, (x, y), strict=True))
    if weights is not None:
        weights = array_of(weights, facts[0].lengths, np.empty(0))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return FitRecords(x, y.rechunk({0: x.chunks[0], **dict.fromkeys(range(1, y.ndim), -1)}), weights, *facts)


def _weighted(x: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return the records in memory whose weight is not 0, and their weights."""
    weights = _check_sample_weight(weights, x, dtype=np.float64, ensure_non_negative=True)
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight: all are 0. Expected a positive one for at least one record.")
    return (x, y, weights) if kept.all() else (x[kept], y[kept], weights[kept])


def _with_weights(x: Any, x_parts: Parts, y_parts: Parts, weights: Any) -> tuple[tuple[Parts, Parts], Parts]:
    """Return the partitions of features, targets and weights of the records whose weight is not 0.

    Weights have the partitions of X, or are any array if X is an array of known chunks. A ValueError says that they
    differ; to compute a partition raises it if there are more or fewer weights than records, or a wrong one.
    """
    chunks = x.chunks[0] if hasattr(x, "chunks") else (np.nan,)
    is_known = not np.isnan(chunks).any()
    if not is_dask_collection(weights):
        if not is_known:
            raise ValueError(
                "sample_weight: in memory, but X is of Dask. Expected one of Dask with the partitions of X."
            )
        weights = da.from_array(np.asarray(weights), chunks=-1)  # type: ignore[no-untyped-call]
    if hasattr(weights, "chunks"):
        if weights.ndim != 1 or (is_known and weights.shape[0] != sum(chunks)):
            raise ValueError(f"sample_weight: shape {weights.shape}, expected a weight for each record of X.")
        weights = weights.rechunk((chunks,)) if is_known else weights
    parts = parts_of(weights)
    counts = {len(x_parts), len(y_parts), len(parts)}
    if len(counts) > 1:
        counted = f"X has {len(x_parts)} partitions, y {len(y_parts)} and sample_weight {len(parts)}"
        raise ValueError(f"{counted}. Expected the same of all.")
    return (map_parts(_kept, x_parts, parts), map_parts(_kept, y_parts, parts)), map_parts(_kept, parts, parts)


def _kept(part: Any, weights: Any) -> Array:
    """Return the records of a partition whose weight is not 0."""
    values, factors = np.asarray(part), np.asarray(weights, np.float64).reshape(-1)
    if len(values) != len(factors):
        raise ValueError(f"sample_weight: {len(factors)} in a partition of {len(values)} records. Expected as many.")
    wrong = find_wrong_weight(factors)
    if wrong is not None:
        raise ValueError(f"sample_weight: record {wrong[0]} of a partition: {wrong[1]}.")
    return values if factors.all() else values[factors > 0]


def _meta_of(collection: Any) -> Any:
    """Return a collection without records."""
    return np.empty((0, *collection.shape[1:]), collection.dtype) if hasattr(collection, "chunks") else collection._meta


def checked_features(estimator: BaseEstimator, x: Any, several_axes: bool) -> Any:
    """Return features to predict from, of those that the estimator was fitted to; collections of Dask stay ones."""
    _refuse_masked(X=x)
    if is_dask_collection(x):
        return _checked_meta(estimator, x, several_axes, reset=False)
    return _checked(estimator, several_axes, False, x)


def _refuse_masked(**arrays: Any) -> None:
    """Raise a ValueError for masked values, which scikit-learn takes for valid ones; of Dask for arrays with masks."""
    for name, values in arrays.items():
        is_lazy = is_dask_collection(values)
        sample = getattr(values, "_meta", None) if is_lazy else values
        if isinstance(sample, np.ma.MaskedArray) and (is_lazy or np.ma.is_masked(sample)):
            raise ValueError(f"{name} has masked values. Expected a value everywhere: fill them, e.g. by filled(0).")


def _checked(estimator: Any, several_axes: bool, reset: bool, x: Any, *y: Any, **given: Any) -> Any:
    """Check values in memory; return features, or features and targets, with the codes of categories."""
    kinds = (*FLOATS, np.uint8) if several_axes else FLOATS
    options = {"dtype": kinds, "allow_nd": several_axes, "accept_sparse": "csr", **given}
    _refuse_times(x)
    if reset:
        estimator._categories = None if several_axes else categories_of(x, estimator.handle_unknown)
    refuse_missing(x, [] if estimator._categories is None else estimator._categories.columns)
    for each in y:
        _refuse_missing_labels(each)
    if estimator._categories is None:
        return validate_data(estimator, x, *y, reset=reset, **options)
    _check_named(x)
    validate_data(estimator, x, skip_check_array=True, reset=reset)
    x = estimator._categories.encode(x)
    return check_X_y(x, *y, **options) if y else check_array(x, **options)


def _checked_meta(estimator: BaseEstimator, x: Any, several_axes: bool, reset: bool) -> Any:
    """Check names, number and types of the features of a collection.

    Return it with one type of NumPy; a frame with texts or categories as an array with their codes.
    """
    options = {"dtype": "numeric", "allow_nd": several_axes, "ensure_min_samples": 0, "reset": reset}
    meta = _meta_of(x)
    _refuse_times(meta)
    if reset:
        estimator._categories = None if several_axes else categories_of_parts(x, meta, estimator)
    if estimator._categories is None:
        x = _of_one_type(x)
        validate_data(estimator, _meta_of(x), **options)
        return x
    _check_named(meta)
    validate_data(estimator, meta, skip_check_array=True, reset=reset)
    parts, encode = parts_of(x), estimator._categories.encode
    return array_of(map_parts(encode, parts), (np.nan,) * len(parts), encode(meta))


def _refuse_times(x: Any) -> None:
    """Raise a ValueError that names a column of a frame that has dates, times or durations."""
    if hasattr(x, "dtypes") and getattr(x, "ndim", 0) == 2:
        for name, dtype in zip(x.columns, x.dtypes, strict=True):
            if getattr(dtype, "kind", "") in "mM":
                number = "month" if dtype.kind == "M" else "total_seconds()"
                raise ValueError(
                    f"column {name!r} of X has values of type {dtype}. Expected numbers, texts or categories: drop it, "
                    f"or give numbers of it, e.g. X[{name!r}].dt.{number}."
                )


def _refuse_missing_labels(y: Any) -> None:
    """Raise a ValueError if a pandas object or an array of objects lacks labels."""
    if hasattr(y, "isna"):
        missing = np.asarray(y.isna())
    elif isinstance(y, np.ndarray) and y.dtype.kind == "O":
        missing = np.array([each is None or each != each for each in y.ravel()])
    else:
        return
    if missing.any():
        raise ValueError(
            f"Input y contains NaN: {missing.sum()} of {missing.size} values are missing. Leave these records out of X "
            "and y."
        )


def _check_named(x: Any) -> None:
    if not hasattr(x, "iloc"):
        raise ValueError("X has no columns by name. Expected a frame with the columns of fit.")


def _of_one_type(x: Any) -> Any:
    """Return a collection; the numbers of a frame as floats, if NumPy would make objects of them.

    It does so of bool beside numbers, and of the types of pandas, such as Int64 and Sparse. Objects are numbers here.
    """
    types = set(_meta_of(x).dtypes) if hasattr(x, "to_dask_array") and x.ndim == 2 else set()
    is_plain = len(types) < 2 and all(isinstance(each, np.dtype) for each in types)
    return x if is_plain or any(each.kind not in "biufO" for each in types) else x.astype(np.float64)


def classes_of(facts: ArrayFacts) -> Any:
    """Return the classes among labels, sorted; ValueError if they are numbers of a continuous scale."""
    classes = facts.distinct
    # scikit-learn warns where more than half of the labels differ
    check_classification_targets(np.resize(classes, min(sum(facts.lengths), 2 * len(classes))))
    return classes


def labels_of(y: Any, classes: Any) -> Any:
    """Return the indices of the classes of labels, (N,) int32."""
    if is_dask_collection(y):
        return y.map_blocks(Guarded(labels_of), classes, dtype=np.int32)
    return np.searchsorted(classes, y).astype(np.int32)


def drawn(lengths: Sequence[int], n: int, seed: int) -> Any:
    """Return which of the records of chunks of Dask are among ``n`` drawn at random: (N,) bool of Dask."""
    counts = np.random.default_rng(seed).multivariate_hypergeometric(lengths, n, method="marginals")
    sizes: Any = da.from_array(np.stack([lengths, counts], axis=1), chunks=(1, 2))  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {"dtype": bool, "meta": np.empty(0, bool)}
    return sizes.map_blocks(Guarded(_drawn_of), seed, chunks=(tuple(lengths),), drop_axis=1, **options)


def _drawn_of(sizes: Array, seed: int, block_id: Sequence[int]) -> Any:
    ((length, n),) = sizes
    return np.random.default_rng([seed, *block_id]).permutation(length) < n


# -- facts that a fit needs before it trains, from one pass over features and targets --------------------------


class ArrayFacts(NamedTuple):
    """What is known of an array: moments of columns and distinct values, sorted, if they were asked for.

    ``lengths`` are the numbers of records of its partitions. If it has NaN or infinity, nothing else is known.
    """

    lengths: tuple[int, ...]
    is_finite: bool
    moments: Moments | None = None
    distinct: Any = None

    def merged(self, other: ArrayFacts) -> ArrayFacts:
        """Return those of both together."""
        lengths = self.lengths + other.lengths
        if not (self.is_finite and other.is_finite):
            return ArrayFacts(lengths, False)
        moments, distinct = self.moments, self.distinct
        if moments is not None and other.moments is not None:
            moments = moments.merged(other.moments)
        if distinct is not None and other.distinct is not None:
            distinct = _distinct(np.concatenate([distinct, other.distinct]))
        return ArrayFacts(lengths, True, moments, distinct)


def facts_of_both(x: Any, y: Any, moments: bool, distinct: bool) -> tuple[ArrayFacts, ArrayFacts]:
    """Return the facts of features and targets in memory; see `facts_of_parts`."""
    return _facts_of(x, moments, False), _facts_of(y, not distinct, distinct)


def facts_of_parts(
    x: list[Any], y: list[Any], moments: bool, distinct: bool, client: Client | str | None = None
) -> tuple[ArrayFacts, ArrayFacts]:
    """Return the facts of features and targets of Dask, whose partitions are computed once, in any order.

    ``moments`` are those of the features, ``distinct`` the values of the targets, of which else the moments are known.
    """
    x_facts, y_facts = compute_on(
        client,
        _reduced(map_parts(partial(_facts_of, moments=moments, distinct=False), x)),
        _reduced(map_parts(partial(_facts_of, moments=not distinct, distinct=distinct), y)),
    )
    return x_facts, y_facts


def _facts_of(part: Any, moments: bool, distinct: bool) -> ArrayFacts:
    values = np.asarray(part)
    lengths = (len(values),)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return ArrayFacts(lengths, False)
    return ArrayFacts(lengths, True, Moments.of(values) if moments else None, _distinct(values) if distinct else None)


def _distinct(values: Array) -> Array:
    try:
        return np.unique(values)
    except TypeError as error:
        raise ValueError(
            "y has missing values, or values of several types. Expected numbers or texts: leave out or fill in others."
        ) from error


def _reduced(parts: list[Any]) -> Any:
    """Return facts together, merged two by two in a fixed order."""
    while len(parts) > 1:
        parts = map_parts(ArrayFacts.merged, parts[::2], parts[1::2]) + parts[len(parts) // 2 * 2 :]
    return parts[0]
