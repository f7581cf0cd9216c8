"""Parameters of the estimators: what they mean, and which go together."""

from __future__ import annotations

from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

import numpy as np

from singa_dask.errors import ConfigError
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
        Cluster to train on, or the address of its scheduler; give the address to clone or pickle the estimator.
        Default: this process, or processes that are started for one fit.
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
        made: Any = cls
        shared, own = (signature(each).parameters for each in (super(made, made).__init__, made.__init__))
        known = {**shared, **{name: each for name, each in own.items() if each.kind != Parameter.VAR_KEYWORD}}
        made.__init__.__signature__ = Signature(list(known.values()))
    return cls


def is_distributed(estimator: Any) -> bool:
    """Return whether workers and servers train it, and not this thread."""
    return any(getattr(estimator, name) for name in ("job", "cluster", "client", "run_dir", "init_from"))


def updater_of(estimator: Any) -> Any:
    """Return the type or the block of its updater, None for that of the job."""
    if estimator.solver == "sgd":
        return {"type": "Nesterov", "momentum": estimator.momentum}
    return estimator.updater or ("Adam" if estimator.solver else None)


def check_parameters(estimator: Any, max_iter: int | None, partial: bool) -> None:
    """Check parameters that no job checks; ConfigError if one is wrong or excludes others."""
    given = {name: getattr(estimator, name) for name in ("batch_size", "n_jobs", "n_iter_no_change")}
    for name, value in {**given, "max_iter": max_iter}.items():
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
