"""SingaEstimator: what classifier and regressor share."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from dask.base import is_dask_collection
from distributed import Client
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from singa_dask.estimators.checked import checked_features, checked_records
from singa_dask.estimators.estimator_job import DATA, Training, default_job, given_job, record_shape
from singa_dask.estimators.fitted_net import FittedNet
from singa_dask.estimators.scaling import Scaling
from singa_dask.jobs import Job, train

__all__ = ["SingaEstimator", "documented"]

Array = npt.NDArray[Any]
C = TypeVar("C", bound=type)

PARAMETERS = """
    Parameters
    ----------
    hidden_layer_sizes : sequence of int
        Units of each hidden layer of the default net.
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
    init_from : str or sequence of str
        Runs or checkpoints to start with the values of.
    cluster : str, path or mapping, optional
        Topology: a name such as ``"allreduce"``, a file, or a block of a job file. Default: one worker, or the job's.
    client : distributed.Client or str, optional
        Cluster to train on, or the address of its scheduler; give the address to clone or pickle the estimator.
        Default: this process, or processes that are started for one fit.
    run_dir : str, optional
        URL to keep the run at. Default: a temporary directory that is deleted after the fit.
    verbose : bool
        Show progress on stderr.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : (n_features_in_,) ndarray of str
        If the columns of X have names.
    n_iter_ : int
        Epochs, begun ones counted.
    loss_curve_ : list of float
        Mean loss of training: of the first step, then of the steps since, once an epoch.
"""


def documented(cls: C) -> C:
    """Add what the estimators share to the docstring of one."""
    cls.__doc__ = f"{cls.__doc__}{PARAMETERS}"
    return cls


class SingaEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators."""

    kind: str

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (100,),
        activation: str = "relu",
        *,
        job: Job | str | os.PathLike[str] | None = None,
        updater: str | Mapping[str, Any] | None = None,
        learning_rate_init: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        random_state: Any = None,
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
        self.init_from = init_from
        self.cluster = cluster
        self.client = client
        self.run_dir = run_dir
        self.verbose = verbose

    def _check_fit(self, x: Any, y: Any, **given: Any) -> tuple[Any, Any]:
        """Return features and targets, as arrays of NumPy or Dask; see `checked_records`."""
        return checked_records(self, x, y, several_axes=self.job is not None, **given)

    def _fit(self, x: Any, y: Any, n_outputs: int) -> None:
        """Train a net on features (N, ...), and labels (N,) int32 or targets (N, K) float32."""
        self._scaling = Scaling.of(x) if self.job is None else None
        job = self._job(x.shape, n_outputs)
        self._record_shape = (*x.shape[1:],) if self.job is None else record_shape(job, x.shape[1:])
        losses: dict[int, float] = {}

        def note(event: Mapping[str, Any]) -> None:
            if event["event"] == "metrics" and event["phase"] == "train" and event["group"] == 0:
                losses[event["step"]] = sum(value for name, value in event.items() if name.endswith("loss"))

        with self._run_directory() as run_dir:
            run = train(
                job,
                data={DATA: (self._records(x), y)},
                client=self.client,
                run_dir=run_dir,
                init_from=self.init_from,
                progress=self.verbose,
                on_event=note,
            )
            self._net = FittedNet.of(job, run.url, self.kind == "classifier")
        self.loss_curve_ = [losses[step] for step in sorted(losses)]
        self.n_iter_ = math.ceil(job.conf.train_steps / job.conf.disp_freq)

    def _job(self, shape: tuple[int, ...], n_outputs: int) -> Job:
        seed = None
        if self.job is None or self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        training = Training(
            n=shape[0],
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            updater=self.updater,
            learning_rate=self.learning_rate_init,
            weight_decay=self.weight_decay,
            cluster=self.cluster,
            seed=seed,
        )
        if self.job is not None:
            return given_job(self.job, training)
        return default_job(shape[1], n_outputs, self.kind, self.hidden_layer_sizes, self.activation, training)

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
        return x.map_blocks(self._predicted, proba, dtype=sample.dtype, meta=sample[:0], **shape)

    def _predicted(self, x: Array, proba: bool) -> Array:
        """Return what is predicted from the outputs of the net for an array in memory."""
        raise NotImplementedError
