"""Parameters of estimators, and the jobs that they describe."""

from __future__ import annotations

import math
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from distributed import Client

from singa_dask.conf.layer import PHASES
from singa_dask.errors import ConfigError
from singa_dask.inputs import StoreInput
from singa_dask.inputs.record_shapes import stored_shape
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs.cluster import check_client, find_cluster
from singa_dask.jobs.job import Job, as_job
from singa_dask.jobs.net_values import Net, layer
from singa_dask.jobs.torch_jobs import module_layer, source_files
from singa_dask.layers import LAYERS
from singa_dask.runtime import blind_workers
from singa_dask.wording import listed, suggest

C = TypeVar("C", bound=type)

SOLVERS = ("adam", "sgd")
TOL, PATIENCE = 1e-4, 10
"""Defaults of ``tol`` and ``n_iter_no_change``."""

PARAMETERS = """
    Parameters
    ----------
    hidden_layer_sizes : sequence of int, or int
        Number of units of each hidden layer of the default net. An int is the size of a single hidden layer.
    activation : {"identity", "logistic", "tanh", "relu"}
        Activation of the hidden layers of the default net.
    job : Job or path, optional
        Job, or job file, to train instead of the default net. The input layers of the job read X and y; the key
        ``path`` is ignored. X is not scaled, so the job has to do this, e.g. with ``std_value`` or a BatchNorm layer.
        The job's tests do not run during training.
    module : class, function or str, optional
        Class of a module of PyTorch, a function that returns the module, or a name such as ``"mymodels:Net"``, to train
        instead of the default net. Arguments of the class have the prefix ``module__``, as in ``module__dim=64``. X is
        not scaled, and the module reads it as float32. For a classifier, the module needs one output for each class,
        before softmax. For a regressor, it needs one output for each target; the loss is a EuclideanLoss.
    solver : {"adam", "sgd"}, optional
        Adam, or SGD with Nesterov's momentum. Default: Adam, or the updater of the job.
    momentum : float
        Momentum of the solver ``"sgd"``.
    updater : str or mapping, optional
        Type of the updater, or its block as in a job file. Pass it instead of ``solver``, e.g. for other decay rates
        than Adam's 0.9 and 0.999, or for a learning rate schedule.
    learning_rate_init : float, optional
        Initial learning rate: ``base_lr`` of the updater. Default: 0.001, or the job's.
    alpha : float, optional
        L2 penalty of weights, divided by the number of records of a batch. Biases have no penalty. Default: 0. Not
        allowed with ``job`` or ``module``.
    weight_decay : float, optional
        Weight decay of the updater. It also applies to biases, and is not divided by the number of records. Pass it
        instead of ``alpha``. Default: 0, or the job's.
    batch_size : int, optional
        Number of records in a step, over all workers of a group. Default: 200, or all records if there are fewer; or
        the job's.
    max_iter : int, optional
        Maximum number of epochs. An epoch has ``ceil(n / batch_size)`` steps. Default: 200, or the ``train_steps`` of
        the job.
    tol, n_iter_no_change : float, int
        The fit ends after more than ``n_iter_no_change`` epochs in a row that did not improve on the best epoch by
        ``tol``. Epochs are compared by the mean training loss, or by the score of ``early_stopping``. With ``job``,
        ``module``, ``cluster``, ``client``, ``run_dir`` or ``init_from``, only the score of ``early_stopping`` can end
        a fit; without ``early_stopping`` both parameters must then have their defaults.
    early_stopping : bool
        Hold out ``validation_fraction`` of the records, and return the values of the epoch with the best score on
        these records: accuracy, or R2. In memory the split is stratified by class; records of Dask are drawn
        uniformly. With Dask data, ``job``, ``module``, ``cluster``, ``client``, ``run_dir`` or ``init_from``, workers
        compute the score. This needs one worker group, no ``sample_weight`` and one class for each record.
    validation_fraction : float
        Share of the records that ``early_stopping`` holds out.
    handle_unknown : {"error", "ignore"}
        Whether `predict` raises an error for unknown categories or encodes them as zeros. `set_params` may change it
        after `fit`.
    n_jobs : int, optional
        Number of threads of a worker. Default: the worker's share of the cores.
    random_state : int, RandomState or None
        Source of the job's seed. Default: a new seed in each fit, or the job's.
    warm_start : bool
        Start `fit` with the fitted values, if there are any, as `partial_fit` does.
    init_from : Run, str, path or sequence of them
        Runs or checkpoints with initial values. Fitted values take precedence.
    cluster : str, path or mapping, optional
        Topology: a name such as ``"allreduce"``, a file, or the ``cluster`` block of a job file. Default: one worker,
        or the job's.
    client : distributed.Client or str, optional
        Client of the Dask cluster that trains and that computes Dask collections, or the address of its scheduler. An
        estimator with a Client cannot be cloned or pickled; pass the address for that. Default: train in this process
        or in processes started for the fit, and compute Dask collections as Dask is configured.
    run_dir : str, path or Run, optional
        URL of the run directory, a different one for each fit. Default: a temporary directory, deleted after the fit.
        Needed if the Dask workers share no directory with this process.
    verbose : bool
        Show progress on stderr.

    Attributes
    ----------
    n_features_in_ : int
        Number of features in `fit`.
    feature_names_in_ : (n_features_in_,) ndarray of str
        Names of the features. Exists only if the columns of X have names.
    n_iter_ : int
        Number of epochs, including unfinished ones, of all fits that led to the values.
    loss_curve_ : list of float
        Mean training loss of the first step of a fit, then once per epoch the mean loss of the steps since then.
    best_loss_ : float
        Smallest mean loss of an epoch in the last fit, with the L2 penalty; None with ``early_stopping``.
    validation_scores_, best_validation_score_ : list of float, float
        Score of each epoch of the last fit, and the best score; None without ``early_stopping``.
"""


def documented(cls: C) -> C:
    """Add the parameters of all estimators to the docstring and the ``__init__`` signature of a class."""
    cls.__doc__ = f"{cls.__doc__}{PARAMETERS}"
    if "__init__" in vars(cls):
        typed: Any = cls
        shared, own = (signature(each).parameters for each in (super(typed, typed).__init__, typed.__init__))
        known = {name: each for name, each in {**shared, **own}.items() if each.kind != Parameter.VAR_KEYWORD}
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
"""Parameter names of other packages -> names of these estimators."""
MODULE = "module__"
"""Prefix of the estimator parameters that are passed to ``module``."""


def _name_unknown(cls: Any) -> None:
    """Make the ``__init__`` of a class suggest a similar name for an unknown argument."""
    make, parameters = cls.__init__, signature(cls).parameters.values()
    known = [each.name for each in parameters if each.kind != Parameter.VAR_KEYWORD]

    @wraps(make)
    def init(self: Any, *values: Any, **given: Any) -> None:
        for name in given:
            if name not in known and not name.startswith(MODULE):
                raise TypeError(f"{cls.__name__}: unknown argument {name!r}. {suggest(MEANT.get(name, name), known)}")
        make(self, *values, **given)

    cls.__init__ = init


def module_args(estimator: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that are arguments of ``module``, with their prefix."""
    return {name: value for name, value in vars(estimator).items() if name.startswith(MODULE)}


def is_distributed(estimator: Any) -> bool:
    """Return whether workers and servers train an estimator, instead of the calling thread."""
    return any(getattr(estimator, name) for name in ("job", "module", "cluster", "client", "run_dir", "init_from"))


def check_parameters(estimator: Any, max_iter: int | None, partial: bool) -> None:
    """Raise a ConfigError if a parameter is wrong, or two parameters exclude each other.

    Only parameters that the job itself does not check are checked here.
    """
    counts = {name: getattr(estimator, name) for name in ("batch_size", "n_jobs", "n_iter_no_change")}
    for name, value in {**counts, "max_iter": max_iter}.items():
        if value is not None and (isinstance(value, str) or value < 1) and not (name == "n_jobs" and value == -1):
            raise ConfigError(f"{name}: {value}. Expected an integer from 1 on, or None.")
    for name in ("learning_rate_init", "alpha", "weight_decay", "momentum", "tol"):
        value = getattr(estimator, name)
        if value is not None and not (isinstance(value, (int, float)) and value >= 0):
            raise ConfigError(f"{name}: {value!r}. Expected a number from 0 on.")
    if estimator.job is not None:
        _check_columns(as_job(estimator.job))
    solver = estimator.solver
    if solver == "lbfgs":
        raise ConfigError(
            "solver='lbfgs' is not supported. Expected 'adam' or 'sgd'. For few records use smaller batches or more "
            "epochs, or scikit-learn's MLPClassifier and MLPRegressor."
        )
    if solver is not None and solver not in SOLVERS:
        raise ConfigError(f"solver: unknown {solver!r}. {suggest(str(solver), SOLVERS)}")
    pairs = ("solver", "updater"), ("alpha", "weight_decay"), ("alpha", "job"), ("alpha", "module"), ("module", "job")
    for one, other in pairs:
        if getattr(estimator, one) is not None and getattr(estimator, other) is not None:
            raise ConfigError(f"{one} and {other} are given. Expected one of them.")
    has_defaults = estimator.activation == "relu" and (*np.ravel(estimator.hidden_layer_sizes),) == (100,)
    if estimator.module is not None and not has_defaults:
        raise ConfigError("hidden_layer_sizes, activation: the module has layers of its own. Expected the defaults.")
    if estimator.module is None and (args := module_args(estimator)):
        raise ConfigError(f"{', '.join(args)}: there is no module. Pass module, or leave these arguments out.")
    if estimator.early_stopping and partial:
        raise ConfigError("early_stopping: not with partial_fit. Expected False.")
    epochs = np.inf if estimator.job is not None and max_iter is None else max_iter or 200
    if is_distributed(estimator) and not estimator.early_stopping and estimator.n_iter_no_change < epochs:
        if (estimator.tol, estimator.n_iter_no_change) != (TOL, PATIENCE):
            raise ConfigError(
                "tol, n_iter_no_change: with job, module, cluster, client, run_dir or init_from the loss does not end "
                f"a fit. Expected early_stopping=True, or the defaults, {TOL} and {PATIENCE}, to train all epochs."
            )
    if estimator.early_stopping and not 0 < estimator.validation_fraction < 1:
        raise ConfigError(f"validation_fraction: {estimator.validation_fraction}. Expected a number between 0 and 1.")


def check_shared(client: Client | str) -> None:
    """Raise a ConfigError if Dask workers cannot access the temporary directories of this process.

    If ``run_dir`` is not set, a fit writes its checkpoints there.
    """
    check_client(client, "net.fit, X, y")
    with tempfile.TemporaryDirectory(prefix="singa-dask-") as directory, find_cluster(client) as cluster:
        blind = blind_workers(cluster, directory)
    if blind:
        raise ConfigError(
            f"run_dir: missing. The Dask workers {listed(blind, 3)} do not share the directory "
            f"{tempfile.gettempdir()} with this process on {socket.gethostname()}, so they cannot pass it the trained "
            "values. Expected run_dir= with a URL that all hosts reach, such as "
            "'hdfs://namenode:8020/user/me/runs/x', or a directory that all of them mount."
        )


def _check_columns(job: Job) -> None:
    """Raise a ConfigError if input layers of a job read columns by name, which arrays do not have."""
    stores = _stores(job)
    named = [name for name, conf in stores.items() if conf.categories or conf.texts or conf.dates]
    if len({tuple(conf.features) for conf in stores.values() if conf.features}) > 1:
        named = [*stores]
    if named:
        raise ConfigError(
            f"job {job.name!r}: layers {', '.join(named)} read columns by name, and an estimator passes X as one array "
            "of numbers. Instead, set path: dask://train in these layers, and call sd.train(job, data=frame) and "
            "sd.predict."
        )


ACTIVATIONS = {"identity": "", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "ReLU"}
"""scikit-learn's names of activations -> types of layers."""
SMALL = 1 << 24
"""Number of multiplications in a forward pass below which NumPy is faster than oneDNN."""
DATA, HELD_OUT = "train", "held_out"
"""Names of the job's datasets with the training records and the held-out records."""
FEATURES = "data"
"""Name of the input layer of the default net."""


def default_job(
    estimator: Any,
    shape: tuple[int, ...],
    n_outputs: int,
    loss: str,
    max_iter: int | None,
    seed: int | None,
    is_weighted: bool,
) -> Job:
    """Return the job that trains the default net of an estimator, or its ``module``.

    Parameters
    ----------
    estimator : SingaEstimator
    shape : tuple of int
        Shape of the features, (records, features). With ``module``, records may have several axes.
    n_outputs : int
        Number of outputs of the net.
    loss : str
        Type of the loss layer.
    max_iter : int or None
        Number of epochs.
    seed : int or None
    is_weighted : bool
        Whether records have weights.

    Raises
    ------
    ConfigError
        A parameter is wrong.
    """
    activation, alpha, sizes = estimator.activation, estimator.alpha, estimator.hidden_layer_sizes
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation: unknown function {activation!r}. {suggest(activation, ACTIVATIONS)}")
    n, *record = shape
    batch_size = min(estimator.batch_size or 200, n)
    if not estimator.batch_size:
        batch_size = max(batch_size - batch_size % _group_size(estimator.cluster), 1)
    records = {"path": f"dask://{DATA}", "shape": record, "batchsize": batch_size, "shuffle": "full"}
    layers = [layer("RecordInput", name=FEATURES, store_conf=records)]
    hidden = (int(sizes),) if isinstance(sizes, int | np.integer) else sizes
    if estimator.module is None:
        decay: dict[str, Any] = {} if alpha is None else {"param": [{}, {"wd_scale": 0.0}]}
        for number, units in enumerate(hidden, 1):
            layers.append(layer("InnerProduct", name=f"fc{number}", num_output=units, **decay))
            if ACTIVATIONS[activation]:
                layers.append(layer(ACTIVATIONS[activation], name=f"act{number}"))
        layers.append(layer("InnerProduct", name="out", num_output=n_outputs, **decay))
    else:
        args = {name.removeprefix(MODULE): value for name, value in module_args(estimator).items()}
        layers.append(module_layer(estimator.module, "out", args))
    if is_weighted:
        layers.append(layer("WeightInput", name="weight", store_conf=records))
    has_labels = loss == "SoftmaxLoss"
    if not has_labels:
        layers.append(layer("TargetInput", name="target", store_conf=records, size=n_outputs))
    sources = ["out", FEATURES if has_labels else "target", *(["weight"] if is_weighted else [])]
    layers.append(layer(loss, name="loss", srclayers=sources))
    # SigmoidCrossEntropyLoss is a mean over labels, so also divide the weight decay by the number of labels
    n_losses = n_outputs if loss == "SigmoidCrossEntropyLoss" else 1
    weight_decay = estimator.weight_decay if alpha is None else alpha / batch_size / n_losses
    adam = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.001}}
    # build the job once, because building takes longer than an epoch of a small net
    job = Job(
        Net(layers),
        name="regressor" if loss == "EuclideanLoss" else "classifier",
        train_one_batch={"alg": "BP"},
        updater=_updater(estimator, adam, weight_decay),
        ops="numpy" if batch_size * _size([math.prod(record), *hidden, n_outputs]) < SMALL else "auto",
        modules=source_files(estimator.module),
        **_changes(estimator, n, batch_size, 200 if max_iter is None else max_iter, seed),
    )
    return job.replace(cluster=estimator.cluster) if isinstance(estimator.cluster, str | os.PathLike) else job


def _group_size(cluster: str | os.PathLike[str] | Mapping[str, Any] | None) -> int:
    """Return the number of workers that share a batch: the size of a worker group."""
    if cluster is None:
        return 1
    changes, name = ({"cluster": cluster}, None) if isinstance(cluster, Mapping) else ({}, cluster)
    return Job(Net([layer("ReLU", name="any")])).replace(changes, name).conf.cluster.nworkers_per_group


def _size(sizes: Sequence[Any]) -> int:
    """Return the number of weights between layers of these sizes; 0 if a size is not an integer."""
    known = all(isinstance(size, int | np.integer) for size in sizes)
    return sum(n_in * n_out for n_in, n_out in pairwise(sizes)) if known else 0


def given_job(estimator: Any, n: int, max_iter: int | None, seed: int | None) -> Job:
    """Return the user's job, with input layers changed to read the ``n`` records of the estimator.

    See `default_job` for the arguments.
    """
    job = as_job(estimator.job)
    names = _stores(job)
    if not names or not job.conf.trains:
        raise ConfigError(f"job {job.name!r}: expected a job to train, with an input layer that has a store_conf.")
    # an estimator has only training records, so disable tests and validations
    changes: dict[str, Any] = {"test_freq": 0, "validate_freq": 0}
    types = {each.name: each.type for each in job.conf.neuralnet.layer}
    for name in names:
        if types[name] == "CSVInput":  # the estimator supplies the records as arrays
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


def standardising(job: Job) -> Job:
    """Return the job of a default net, with input layers changed to standardise their records."""
    return job.replace({f"neuralnet.layer[{name}].store_conf.standardise": True for name in _stores(job)})


def tested_job(job: Job, estimator: Any, loss: str, is_weighted: bool) -> Job:
    """Return a job that tests the held-out records after each epoch, and stops as `Stopping` does.

    The run keeps the newest checkpoint, and the checkpoint with the best score.
    """
    metric = {"SoftmaxLoss": "top_1_accuracy", "EuclideanLoss": "r2"}.get(loss, "")
    # with several worker groups, values of params change between a test and its checkpoint
    reasons = {"several labels": not metric, "sample_weight": is_weighted}
    reasons["several worker groups"] = job.conf.cluster.nworker_groups > 1
    if wrong := [reason for reason, holds in reasons.items() if holds]:
        raise ConfigError(f"early_stopping: workers cannot compute a score with {wrong[0]}. Leave one of the two out.")
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
    """Return the shape of a record for a job.

    For flat records, the shape in the first input layer is returned, if the layer sets a shape with the same number of
    values.
    """
    (first, *_) = (stored_shape(store) for store in _stores(job).values())
    return first if len(shape) == 1 and math.prod(first) == shape[0] else shape


def _stores(job: Job) -> dict[str, StoreConf]:
    """Return ``store_conf`` of each input layer of a job, by the name of the layer."""
    layers = [each for each in job.conf.neuralnet.layer if issubclass(LAYERS.find(each.type), StoreInput)]
    return {each.name: each.block(StoreConf) for each in layers}


def _updater(estimator: Any, block: Mapping[str, Any], weight_decay: float | None) -> dict[str, Any]:
    """Return an updater block changed by the parameters of an estimator."""
    changed, chosen = dict(block), estimator.updater or ("Adam" if estimator.solver else None)
    if estimator.solver == "sgd":
        chosen = {"type": "Nesterov", "momentum": estimator.momentum}
    if chosen is not None:
        changed = {"learning_rate": block["learning_rate"], **({"type": chosen} if isinstance(chosen, str) else chosen)}
    if estimator.learning_rate_init is not None:
        changed["learning_rate"] = {**changed["learning_rate"], "base_lr": estimator.learning_rate_init}
    return changed if weight_decay is None else {**changed, "weight_decay": weight_decay}


def _changes(estimator: Any, n: int, batch_size: int, max_iter: int | None, seed: int | None) -> dict[str, Any]:
    """Return changes of a job that do not concern its net.

    The changed job reports its loss once per epoch.
    """
    epoch = math.ceil(n / batch_size)
    changes = {
        "disp_freq": epoch,
        "train_steps": None if max_iter is None else max_iter * epoch,
        "seed": seed,
        "threads": max(estimator.n_jobs or 0, 0) or None,
        "cluster": estimator.cluster if isinstance(estimator.cluster, Mapping) else None,
    }
    return {key: value for key, value in changes.items() if value is not None}
