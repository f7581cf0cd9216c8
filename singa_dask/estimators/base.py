"""SingaEstimator: what classifier and regressor share."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from dask.base import is_dask_collection
from distributed import Client
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted

from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.estimators.checked import Records, checked_features, checked_records
from singa_dask.estimators.estimator_job import DATA, Training, default_job, given_job, reads_weights, record_shape
from singa_dask.estimators.facts import Scaling
from singa_dask.estimators.fitted_net import FittedNet
from singa_dask.exports import import_weights
from singa_dask.jobs import Job, train

__all__ = ["SingaEstimator", "documented"]

Array = npt.NDArray[Any]
C = TypeVar("C", bound=type)
E = TypeVar("E", bound="SingaEstimator")

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
    updater : str or mapping, optional
        Type of the updater, or its block of a job file. Default: Adam, or the job's.
    learning_rate_init : float, optional
        ``base_lr`` of the learning rate. Default: 0.001, or the job's.
    weight_decay : float, optional
        Of the updater. Default: 0, or the job's.
    batch_size : int, optional
        Records of a step, of all workers of a group together. Default: 200, or all if there are fewer; or the job's.
    max_iter : int, optional
        Number of epochs, of ``ceil(n / batch_size)`` steps. Default: 200, or the ``train_steps`` of the job.
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
"""


def documented(cls: C) -> C:
    """Add what the estimators share to the docstring of one."""
    cls.__doc__ = f"{cls.__doc__}{PARAMETERS}"
    return cls


class SingaEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators."""

    loss_curve_: list[float]
    n_iter_: int
    kind: ClassVar[str]
    _checks: ClassVar[Mapping[str, bool]] = {}
    """Options of `sklearn.utils.validation.validate_data` for y."""

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (100,),
        activation: str = "relu",
        *,
        job: Job | str | os.PathLike[str] | None = None,
        updater: str | Mapping[str, Any] | None = None,
        learning_rate_init: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        init_from: str | Sequence[str] = (),
        cluster: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        client: Client | str | None = None,
        run_dir: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.job = job
        self.updater = updater
        self.learning_rate_init = learning_rate_init
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.random_state = random_state
        self.warm_start = warm_start
        self.init_from = init_from
        self.cluster = cluster
        self.client = client
        self.run_dir = run_dir
        self.verbose = verbose

    def fit(self: E, X: Any, y: Any, sample_weight: Any = None) -> E:
        """Train a net: a new one, or with ``warm_start`` the fitted one.

        Parameters
        ----------
        X : (n, features) array or frame
            Of NumPy, pandas or Dask; with ``job`` also of several axes, (n, ...).
        y : (n,) or (n, targets) array, series or frame
            The class of each record, or the numbers to predict; several only of the regressor.
        sample_weight : (n,) array or series, optional
            Weight of each record in the loss, from 0 on; by default 1. Records of weight 0 are left out. With X of Dask
            of the same partitions. A ``job`` needs a WeightInput for it.

        Returns
        -------
        SingaEstimator
            This one.

        Raises
        ------
        ValueError
            The data or a parameter are wrong.
        SingaError
            The training has failed.
        """
        goes_on = self.warm_start and self.__sklearn_is_fitted__()
        return self._fit(X, y, sample_weight, self.max_iter, goes_on)

    def predict(self, X: Any) -> Any:
        """Predict the class of each record, (n,), or its targets, (n,) or (n, targets).

        For collections of Dask these are an array of Dask with the same partitions.

        Parameters
        ----------
        X
            As in `fit`.

        Raises
        ------
        ValueError
            The features differ from those of `fit`.
        """
        return self._predict(X)

    def _fit(self: E, x: Any, y: Any, weights: Any, max_iter: int | None, goes_on: bool, classes: Any = None) -> E:
        """Train a net for some epochs: the fitted one, or a new one, of these classes if they are given."""
        for name, value in (("batch_size", self.batch_size), ("max_iter", max_iter)):
            if value is not None and (isinstance(value, str) or value < 1):
                raise ValueError(f"{name}: {value}. Expected an integer from 1 on, or None.")
        if not goes_on:
            # no values of before with the scaling of a fit that fails
            self.__dict__.pop("_net", None)
        has_job = self.job is not None
        records = checked_records(self, x, y, weights, several_axes=has_job, reset=not goes_on, **self._checks)
        x = records.x
        targets, n_outputs = self._targets(records, goes_on, classes)
        if not goes_on:
            self._scaling = None if records.x_facts.moments is None else Scaling.of(records.x_facts.moments)
            self._random = check_random_state(self.random_state)
        job = self._job(x.shape, n_outputs, max_iter, records.weights is not None)
        weights = records.weights
        if weights is None and reads_weights(job):
            weights = np.ones(len(x))
        self._record_shape = (*x.shape[1:],) if self.job is None else record_shape(job, x.shape[1:])
        losses: dict[int, float] = {}

        def note(event: Mapping[str, Any]) -> None:
            if event["event"] == "metrics" and event["phase"] == "train" and event["group"] == 0:
                losses[event["step"]] = sum(value for name, value in event.items() if name.endswith("loss"))

        with self._run_directory() as run_dir, self._initial(job, run_dir, goes_on) as init_from:
            run = train(
                job,
                data={DATA: (self._records(x), targets, *(() if weights is None else (weights,)))},
                client=self.client,
                run_dir=run_dir,
                init_from=init_from,
                progress=self.verbose,
                on_event=note,
            )
            self._net = FittedNet.of(job, run.url, self.kind == "classifier")
        before: tuple[list[float], int] = (self.loss_curve_, self.n_iter_) if goes_on else ([], 0)
        self.loss_curve_ = before[0] + [losses[step] for step in sorted(losses)]
        self.n_iter_ = before[1] + math.ceil(job.conf.train_steps / job.conf.disp_freq)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_net")

    def _targets(self, records: Records, goes_on: bool, classes: Any) -> tuple[Any, int]:
        """Return what the net learns, labels (N,) int32 or targets (N, K) float32, and the number of its outputs."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _initial(self, job: Job, run_dir: str, goes_on: bool) -> Iterator[str | Sequence[str]]:
        """Yield what a fit starts from; the fitted values are a checkpoint beside the run until it ends."""
        if not goes_on:
            yield self.init_from
            return
        url = f"{run_dir}.initial-{uuid.uuid4().hex[:8]}"
        try:
            import_weights(self._net.values, job, url)
        except ConfigError as error:
            raise ConfigError(
                f"{type(self).__name__}: the fitted values are those of another net. Expected the layers of the fit "
                f"before. Call fit with warm_start=False for a new net."
            ) from error
        try:
            yield url
        finally:
            fs.remove_tree(fs.absolute(url))

    def _job(self, shape: tuple[int, ...], n_outputs: int, max_iter: int | None, is_weighted: bool) -> Job:
        seed = None
        if self.job is None or self.random_state is not None:
            seed = int(self._random.randint(np.iinfo(np.int32).max))
        training = Training(
            n=shape[0],
            batch_size=self.batch_size,
            max_iter=max_iter,
            updater=self.updater,
            learning_rate=self.learning_rate_init,
            weight_decay=self.weight_decay,
            cluster=self.cluster,
            seed=seed,
        )
        if self.job is not None:
            return given_job(self.job, training)
        sizes = self.hidden_layer_sizes
        hidden = (int(sizes),) if isinstance(sizes, int | np.integer) else sizes
        return default_job(shape[1], n_outputs, self.kind, hidden, self.activation, training, is_weighted)

    @contextlib.contextmanager
    def _run_directory(self) -> Iterator[str]:
        """Yield the URL of the run; a temporary directory is deleted afterwards."""
        if self.run_dir is not None:
            yield self.run_dir
            return
        with tempfile.TemporaryDirectory(prefix="singa-dask-") as directory:
            yield os.path.join(directory, "run")

    def _records(self, x: Any) -> Any:
        """Return features as the net reads them."""
        scaled = x if self._scaling is None else self._scaling.scale(x)
        return scaled if scaled.shape[1:] == self._record_shape else scaled.reshape(len(x), *self._record_shape)

    def _predict(self, x: Any, proba: bool = False) -> Any:
        """Predict records in memory, or those of a collection of Dask, which stays one."""
        check_is_fitted(self)
        x = checked_features(self, x, several_axes=self.job is not None)
        if not is_dask_collection(x):
            return self._predicted(x, proba)
        sample = self._predicted(np.zeros((1, *x.shape[1:])), proba)
        if hasattr(x, "to_dask_array"):
            x = x.to_dask_array()
        x = x.rechunk(dict.fromkeys(range(1, x.ndim), -1))
        shape: dict[str, Any] = {"drop_axis": list(range(1, x.ndim))}
        if sample.ndim == 2:
            shape = {"chunks": (x.chunks[0], sample.shape[1:]), "drop_axis": list(range(2, x.ndim))}
        return x.map_blocks(self._predicted_block, proba, dtype=sample.dtype, meta=sample[:0], **shape)

    def _predicted_block(self, x: Array, proba: bool) -> Array:
        assert_all_finite(x, input_name="X")
        return self._predicted(x, proba)

    def _predicted(self, x: Array, proba: bool) -> Array:
        """Return what is predicted from the outputs of the net for an array in memory."""
        raise NotImplementedError
