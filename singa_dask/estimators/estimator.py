"""SingaClassifier and SingaRegressor: nets with the interface of scikit-learn."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from distributed import Client
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.validation import check_is_fitted

from singa_dask import fs
from singa_dask.arrays import Array
from singa_dask.data.codecs.class_types import BOOLEAN, INTEGER, NUMBER, class_values, likeliest
from singa_dask.data.codecs.equal_names import name_key
from singa_dask.data.tables.scaling import Scaling
from singa_dask.errors import ConfigError, warn_caller
from singa_dask.estimators import arguments, fit_records, sparse
from singa_dask.estimators.local_fit import OTHER_NET, FittedNet, LocalFit, Stopping
from singa_dask.estimators.not_numbers import naming_values
from singa_dask.exports.importing import import_into, write_values
from singa_dask.inference.predicting import map_blocks
from singa_dask.jobs.cluster import compute_on
from singa_dask.jobs.datasets.array_records import ArrayWriter
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.jobs.datasets.records import Dataset
from singa_dask.jobs.job import Job
from singa_dask.jobs.run import AnyRun, urls_of
from singa_dask.jobs.train import train
from singa_dask.runtime.checkpoints.lookup import find_steps
from singa_dask.shown import STDERR
from singa_dask.wording import listed, suggest

E = TypeVar("E", bound="SingaEstimator")


class SingaEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators."""

    loss_curve_: list[float]
    n_iter_: int
    _net: FittedNet
    _checks: ClassVar[Mapping[str, bool]] = {}
    """Options that `sklearn.utils.validation.validate_data` needs for y."""

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (100,),
        activation: str = "relu",
        *,
        job: Job | str | os.PathLike[str] | None = None,
        module: Callable[..., Any] | str | None = None,
        solver: str | None = None,
        momentum: float = 0.9,
        updater: str | Mapping[str, Any] | None = None,
        learning_rate_init: float | None = None,
        alpha: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        max_iter: int | None = None,
        tol: float = arguments.TOL,
        n_iter_no_change: int = arguments.PATIENCE,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        handle_unknown: str = "error",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        init_from: AnyRun | Sequence[AnyRun] = (),
        cluster: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        client: Client | str | None = None,
        run_dir: AnyRun | None = None,
        verbose: bool = False,
        **module_args: Any,
    ) -> None:
        # scikit-learn requires that each parameter is stored unchanged, in an attribute with the same name
        values = locals()
        self.__dict__ |= {name: values[name] for name in SingaEstimator._get_param_names()} | module_args

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, including arguments of ``module``."""
        return {**super().get_params(deep), **arguments.module_args(self)}

    def set_params(self: E, **params: Any) -> E:
        """Set parameters, including arguments of ``module``."""
        args = {name: params.pop(name) for name in list(params) if name.startswith(arguments.MODULE)}
        super().set_params(**params)
        self.__dict__ |= args
        return self

    def fit(
        self: E, X: Any, y: Any, sample_weight: Any = None, *, on_epoch: Callable[[int, float], Any] | None = None
    ) -> E:
        """Train a new net; with ``warm_start``, continue with the fitted net.

        Parameters
        ----------
        X : (n, features) array or frame
            Features as a NumPy, pandas or Dask collection, or as a SciPy sparse matrix. With ``job`` or ``module``,
            records may have several axes, (n, ...). Columns of text or categories are one-hot encoded.
        y : (n,), (n, labels) or (n, targets) array, series or frame
            For a classifier, the class of each record, or 0 or 1 for each label. For a regressor, the numbers to
            predict.
        sample_weight : (n,) array or series, optional
            Weight of each record in the loss, at least 0; the default is 1. Records of weight 0 are ignored. For Dask,
            the weights must have the same partitions as X. If ``job`` is set, it needs a WeightInput to use weights.
        on_epoch : callable, optional
            Called after each epoch with the number of the epoch, counted from 1, and its loss. An exception that it
            raises ends the training.

        Returns
        -------
        SingaEstimator
            The estimator itself.

        Raises
        ------
        ValueError
            The data or a parameter is wrong.
        SingaError
            The training failed.
        """
        goes_on = self.warm_start and self.__sklearn_is_fitted__()
        return self._fit(X, y, sample_weight, self.max_iter, goes_on, on_epoch=on_epoch)

    def predict(self, X: Any) -> Any:
        """Predict the class, the labels or the targets of each record.

        The result has the shape (n,), (n, labels) or (n, targets). For a Dask collection, the result is a Dask array
        with the same partitions.

        Parameters
        ----------
        X
            Features as in `fit`.

        Raises
        ------
        ValueError
            The number, names or types of the features differ from the features in `fit`.
        """
        return self._predict(X)

    def _fit(
        self: E,
        x: Any,
        y: Any,
        weights: Any,
        max_iter: int | None,
        goes_on: bool,
        classes: Any = None,
        partial: bool = False,
        on_epoch: Callable[[int, float], Any] | None = None,
    ) -> E:
        """Train a new net for some epochs; with ``goes_on``, train the fitted net."""
        arguments.check_parameters(self, max_iter, partial)
        if self.client is not None and not self.run_dir:
            arguments.check_shared(self.client)
        if not goes_on:
            # remove the fitted net: if the new fit fails, the old values must not be used with the new scaling
            self.__dict__.pop("_net", None)
        own_net = self._has_own_net
        records = fit_records.checked_records(
            self, x, y, weights, several_axes=own_net, reset=not goes_on, **self._checks
        )
        x = records.x
        targets, n_outputs = self._targets(records, goes_on, classes)
        weights = self._weights(records.weights, targets)
        if not goes_on:
            moments = records.x_facts.moments
            self._scaling = Scaling.of(moments) if moments else None
            if sparse.is_sparse(x) and not own_net:
                self._scaling = sparse.scaling_of_sparse(x)
            self._random = check_random_state(self.random_state)
        n_held_out = math.ceil(self.validation_fraction * x.shape[0]) if self.early_stopping else 0
        rows, held_out = self._split(records, n_held_out) if n_held_out else (None, None)
        job = self._job((x.shape[0] - n_held_out, *x.shape[1:]), n_outputs, max_iter, weights is not None)
        by_workers = arguments.is_distributed(self) or (rows is not None and is_dask_collection(x))
        if weights is None and any(each.type == "WeightInput" for each in job.conf.neuralnet.layer):
            weights = (da if is_dask_collection(x) else np).ones(x.shape[0])
        self._record_shape = (*x.shape[1:],) if self.job is None else arguments.record_shape(job, x.shape[1:])
        others = (targets, *(() if weights is None else (weights,)))
        before: tuple[list[float], int] = (self.loss_curve_, self.n_iter_) if goes_on else ([], 0)
        stopping = Stopping(self.tol, self.n_iter_no_change)
        if by_workers:
            parts = {arguments.DATA: rows} if held_out is None else {arguments.DATA: rows, arguments.HELD_OUT: held_out}
            is_scaled = not own_net and self._scaling is not None
            run_job = arguments.standardising(job) if is_scaled else job
            if rows is not None:
                is_weighted = records.weights is not None
                job, run_job = (arguments.tested_job(each, self, self._loss, is_weighted) for each in (job, run_job))
            x = _unscaled(x) if is_scaled else self._records(x)
            curve, n_epochs = self._train(job, run_job, (x, *others), parts, goes_on, stopping, on_epoch)
        else:
            data = (self._records(x), *others)
            fit = LocalFit(job, data, rows, self._net.values if goes_on else {}, self._has_classes)
            if held_out is not None:
                stopping.score = self._scorer(fit, data[0], records, held_out)

            def tell(epoch: int, loss: float) -> None:
                if self.verbose:
                    print(f"epoch {epoch}: loss {loss:.6g}", file=STDERR)
                if on_epoch is not None:
                    on_epoch(epoch, loss)

            curve, n_epochs = fit.run(job.conf.disp_freq, stopping, tell)
            self._net = fit.net
        self.loss_curve_, self.n_iter_ = before[0] + curve, before[1] + n_epochs
        self.best_loss_ = None if self.early_stopping else stopping.best_loss
        self.validation_scores_ = stopping.scores if self.early_stopping else None
        self.best_validation_score_ = stopping.best_score if self.early_stopping else None
        return self

    def _train(
        self,
        job: Job,
        run_job: Job,
        data: Any,
        parts: Any,
        goes_on: bool,
        stopping: Stopping,
        on_epoch: Callable[[int, float], Any] | None,
    ) -> tuple[list[float], int]:
        """Train with workers and servers; return the losses and the number of epochs.

        Scores are stored in ``stopping``. ``run_job`` is the job to run; it reads ``data``. ``job`` has the same net as
        ``run_job``, but expects scaled records.
        """
        losses: dict[int, float] = {}
        scores: dict[int, float] = {}

        def note(event: Mapping[str, Any]) -> None:
            if event["event"] == "metrics" and event["phase"] == "train" and event["group"] == 0:
                step, loss = event["step"], sum(value for name, value in event.items() if name.endswith("loss"))
                losses[step] = loss
                if on_epoch is not None and step:
                    on_epoch(math.ceil(step / job.conf.disp_freq), loss)
            if event["event"] == "metrics" and event["phase"] == "test":
                scores[event["step"]] = event[job.conf.metrics[-1]]

        x, *others = data
        arrays = (x.to_dask() if isinstance(x, sparse.SparseRecords) else x, *others)
        with self._places(job, goes_on) as (run_dir, init_from):
            run = train(
                run_job,
                data={
                    name: self._dataset(name, arrays if of is None else tuple(each[of] for each in arrays))
                    for name, of in parts.items()
                },
                client=self.client,
                run_dir=run_dir,
                init_from=init_from,
                progress=self.verbose,
                on_event=note,
            )
            steps = find_steps(run.url)
            best = max(sorted(scores.keys() & steps), key=scores.__getitem__, default=-1)
            self._net = FittedNet.of(job, steps.get(best, run.url), self._has_classes, self.job is not None)
        curve, stopping.scores = ([values[step] for step in sorted(values)] for values in (losses, scores))
        stopping.best_loss, stopping.best_score = min(curve, default=np.inf), scores.get(best, -np.inf)
        if stopping.best_score < max(stopping.scores, default=-np.inf):
            warn_caller(f"early_stopping: better values than those of step {best} were not kept.")
        return curve, len(scores) or math.ceil(job.conf.train_steps / job.conf.disp_freq)

    def _split(self, records: fit_records.FitRecords, n_held_out: int) -> tuple[Any, Any]:
        """Return the records to train with, and the records to hold out: row numbers or Dask masks."""
        n = len(records.y)
        if not 2 <= n_held_out < n:
            raise ValueError(
                f"validation_fraction: {self.validation_fraction} of {n} records are {n_held_out}. "
                "Expected at least two, and others to train with. Set another one, or early_stopping=False."
            )
        if is_dask_collection(records.x):
            is_held_out = fit_records.drawn(
                records.x_facts.lengths, n_held_out, self._random.randint(np.iinfo(np.int32).max)
            )
            return ~is_held_out, is_held_out
        train_rows, held_out = train_test_split(
            np.arange(n),
            test_size=self.validation_fraction,
            stratify=records.y if self._has_classes else None,
            random_state=self._random,
        )
        return np.sort(train_rows), np.sort(held_out)

    def _scorer(self, fit: LocalFit, x: Any, records: fit_records.FitRecords, rows: Array) -> Callable[[], float]:
        """Return a function that computes the score of the current net on the records ``rows``."""
        x, y = x[rows], records.y[rows]
        weights = None if records.weights is None else records.weights[rows]
        return lambda: self._score(y, self._decoded(fit.net.outputs(x), False), weights)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_net")

    @property
    def _has_own_net(self) -> bool:
        """Whether the user's job or module replaces the default net. Only the default net scales its records."""
        return self.job is not None or self.module is not None

    @property
    def _loss(self) -> str:
        """Type of the loss layer of the default net."""
        raise NotImplementedError

    @property
    def _has_classes(self) -> bool:
        """Whether each record has exactly one class."""
        return self._loss == "SoftmaxLoss"

    def _weights(self, weights: Any, targets: Any) -> Any:
        """Return the weight of each record; ``weights`` are the weights passed to `fit`."""
        return weights

    def _score(self, y: Any, found: Any, weights: Any) -> float:
        """Return the score of predictions."""
        raise NotImplementedError

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the score of predictions: the accuracy of a classifier, or R2 of a regressor.

        With several targets, the score is the mean of their R2.

        Parameters
        ----------
        X, y, sample_weight
            Data as in `fit`. Dask data are predicted partition by partition.
        """
        return self._score(*(compute_on(self.client, each)[0] for each in (y, self.predict(X), sample_weight)))

    def _targets(self, records: fit_records.FitRecords, goes_on: bool, classes: Any) -> tuple[Any, int]:
        """Return labels (N,) int32 or targets (N, K) float32, and the number of outputs of the net."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _places(self, job: Job, goes_on: bool) -> Iterator[tuple[str, Sequence[str]]]:
        """Return a context with the URL of the run directory, and the URLs of initial values.

        To continue with fitted values, they are written to a temporary checkpoint.
        """
        with tempfile.TemporaryDirectory(prefix="singa-dask-") as directory:
            run_dir = os.fspath(self.run_dir or os.path.join(directory, "run"))
            urls = [*urls_of(self.init_from)]
            scalings = {} if self.job is not None or self._scaling is None else {arguments.FEATURES: self._scaling}
            encodings = self._encodings()
            if not (goes_on or scalings or encodings):
                yield run_dir, urls
                return
            url = f"{run_dir}.initial-{uuid.uuid4().hex[:8]}"
            try:
                if goes_on:
                    urls = [f"{url}/values"]
                    self._write_values(job, urls[0])
                if scalings or encodings:
                    urls.append(f"{url}/encoding")
                    write_values(fs.absolute(urls[-1]), job.conf, {}, scalings, encodings)
                yield run_dir, urls
            finally:
                fs.remove_tree(fs.absolute(url))

    def _write_values(self, job: Job, url: str) -> None:
        """Write the fitted values as a checkpoint of a job."""
        scalings = self._net.learned.scalings if self._net.learned else {}
        names = {name: name for name in self._net.values}
        try:
            import_into(job.conf, "the fitted values", self._net.values, url, names, scalings=scalings)
        except ConfigError as error:
            raise ConfigError(OTHER_NET) from error

    def _encodings(self) -> dict[str, str]:
        """Return the conversions of records or outputs that the estimator makes outside of its net.

        A job file cannot describe these conversions; see `Learned.encodings`.
        """
        if self._categories is None:
            return {}
        return {arguments.FEATURES: f"encodes the texts of {listed([*map(repr, self._categories.columns)])}"}

    def _dataset(self, name: str, value: tuple[Any, ...]) -> Dataset:
        """Return the dataset with this name for a job."""
        return as_dataset(name, value, self.client)

    def _job(self, shape: tuple[int, ...], n_outputs: int, max_iter: int | None, is_weighted: bool) -> Job:
        seed = None
        if self.job is None or self.random_state is not None:
            seed = int(self._random.randint(np.iinfo(np.int32).max))
        if self.job is not None:
            return arguments.given_job(self, shape[0], max_iter, seed)
        return arguments.default_job(self, shape, n_outputs, self._loss, max_iter, seed, is_weighted)

    def _records(self, x: Any) -> Any:
        """Return features in the form that the net reads. Rows of a sparse matrix are converted when read."""
        if sparse.is_sparse(x):
            return sparse.SparseRecords(x, self._scaling, self._records)
        scaled = x if self._scaling is None else self._scaling.scale(x)
        return scaled if scaled.shape[1:] == self._record_shape else scaled.reshape(len(x), *self._record_shape)

    def _predict(self, x: Any, proba: bool = False) -> Any:
        """Predict records in memory; for a Dask collection, return a lazy result."""
        check_is_fitted(self)
        x = fit_records.checked_features(self, x, several_axes=self._has_own_net)
        if not is_dask_collection(x):
            return self._predicted(x, proba)
        x = x.to_dask_array() if hasattr(x, "to_dask_array") else x
        fitted = copy.copy(self).set_params(client=None)  # no client, because a client cannot be pickled
        sample = self._predicted(np.zeros((1, *x.shape[1:])), proba)
        return map_blocks(partial(fitted._predicted_block, proba), x, sample)

    def _predicted_block(self, proba: bool, x: Array) -> Array:
        with naming_values(getattr(self, "feature_names_in_", None), X=x):
            assert_all_finite(x, input_name="X")
            return self._predicted(x, proba)

    def _predicted(self, x: Any, proba: bool) -> Array:
        """Predict the records of an array in memory, or of a sparse matrix."""
        records = self._records(x)
        blocks = records.slices() if sparse.is_sparse(x) else [slice(None)]
        return self._decoded(np.concatenate([self._net.outputs(records[rows]) for rows in blocks]), proba)

    def _decoded(self, outputs: Array, proba: bool) -> Array:
        """Convert outputs of the net to predictions."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@arguments.documented
class SingaClassifier(ClassifierMixin, SingaEstimator):  # type: ignore[misc]
    """Classifier.

    By default it is a multi-layer perceptron with a SoftmaxLoss. Pass ``job`` or ``module`` for another net. The
    default net standardises features with the mean and standard deviation that each column of X has in `fit`. For
    sparse X, the mean is not subtracted. ``classes_`` has the sorted values of y, numbers or strings.

    If y has several columns of 0 and 1, each column is a label. The default net then has a SigmoidCrossEntropyLoss,
    averaged over the labels. `predict` returns such columns, and `predict_proba` the probability of each label.

    ``class_weight`` is a further parameter: a dict of weights by class, in which missing classes have weight 1, or
    ``"balanced"`` for weights inversely proportional to the number of records of a class. Class weights multiply
    ``sample_weight``.
    """

    classes_: Any
    _is_multilabel = False
    _checks: ClassVar[Mapping[str, bool]] = {"multi_output": True}

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (100,),
        activation: str = "relu",
        *,
        class_weight: Mapping[Any, float] | str | None = None,
        **others: Any,
    ) -> None:
        super().__init__(hidden_layer_sizes, activation, **others)
        self.class_weight = class_weight

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> SingaClassifier:
        """Train the fitted net for one epoch on these records; see `fit`.

        The training starts with the fitted values, but with a new state of the updater.

        Parameters
        ----------
        X, y, sample_weight
            Data as in `fit`. The default net standardises with the mean and standard deviation of the first call.
        classes : (classes,) array, optional
            All classes that y has in any call. Required in the first call, unless y has several columns.
        """
        goes_on = self.__sklearn_is_fitted__()
        if classes is None and not goes_on and np.ndim(y) < 2:
            raise ValueError("classes: missing. Pass the classes of all calls in the first call of partial_fit.")
        if goes_on and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes: {_shown(classes)}. Expected those of the first fit: {_shown(self.classes_)}.")
        if isinstance(self.class_weight, str):
            raise ValueError("class_weight: 'balanced' needs all records at once. Expected a dict for partial_fit.")
        return self._fit(X, y, sample_weight, 1, goes_on, classes, partial=True)

    def _class_names(self) -> tuple[tuple[str, ...], str]:
        """Return the names of the classes and their `label_type`.

        The names are empty if names cannot represent the classes.
        """
        classes = self.classes_.tolist()
        kind = {bool: BOOLEAN, int: INTEGER, float: NUMBER}.get(type(classes[0]), "")
        names = tuple(map(str, classes))
        if len({*map(name_key, names)}) < len(names) or class_values(names, kind).tolist() != classes:
            return (), ""
        return names, kind

    def _encodings(self) -> dict[str, str]:
        found = super()._encodings()
        if self._has_classes and not self._class_names()[0]:
            found["label"] = f"names the classes {listed([*map(repr, self.classes_.tolist())])}"
        return found

    def _dataset(self, name: str, value: tuple[Any, ...]) -> Dataset:
        found = super()._dataset(name, value)
        if not self._has_classes or not isinstance(found.write_part, ArrayWriter):
            return found
        names, kind = self._class_names()
        return replace(found, write_part=replace(found.write_part, classes=names, class_type=kind, is_numbered=True))

    @property
    def _loss(self) -> str:
        return "SigmoidCrossEntropyLoss" if self._is_multilabel else "SoftmaxLoss"

    def _targets(self, records: fit_records.FitRecords, goes_on: bool, classes: Any) -> tuple[Any, int]:
        y = records.y
        is_multilabel = y.ndim == 2
        if is_multilabel and not set(records.y_facts.distinct.tolist()) <= {0, 1}:
            raise ValueError(
                f"y has {y.shape[1]} columns with other values than 0 and 1. Expected one column of classes, or one of "
                "0 and 1 for each label. sklearn.multioutput.MultiOutputClassifier fits several columns of classes."
            )
        found = np.arange(y.shape[1]) if is_multilabel else fit_records.classes_of(records.y_facts)
        known = self.classes_ if goes_on else found if classes is None else np.unique(classes)
        if (goes_on and is_multilabel != self._is_multilabel) or (is_multilabel and len(known) != len(found)):
            raise ValueError(f"y of shape {y.shape}. Expected as many columns as in the first fit.")
        unknown = set(found.tolist()) - set(known.tolist())
        if unknown:
            raise ValueError(f"y has unknown classes: {_shown(unknown)}. Known: {_shown(known)}.")
        if len(known) == 1 and not is_multilabel:
            warn_caller(f"y has only the class {known.tolist()[0]!r}. The net predicts it for every record.")
        self.classes_, self._is_multilabel = known, is_multilabel
        return y.astype(np.float32) if is_multilabel else fit_records.labels_of(y, known), len(known)

    def _weights(self, weights: Any, targets: Any) -> Any:
        if self.class_weight is None:
            return weights
        if self._is_multilabel:
            raise ValueError(
                "class_weight: y has several labels. Expected one class for each record, or sample_weight."
            )
        factors = np.ones(len(self.classes_))
        if self.class_weight == "balanced":
            counted: Any = da.bincount(da.asarray(targets), minlength=len(factors))  # type: ignore[no-untyped-call]
            (counts,) = compute_on(self.client, counted)
            factors = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
        elif isinstance(self.class_weight, Mapping):
            known = {each: index for index, each in enumerate(self.classes_.tolist())}
            for name, factor in self.class_weight.items():
                if name not in known:
                    raise ValueError(f"class_weight: no class {name!r} in y. {suggest(str(name), map(str, known))}")
                if not 0 <= factor < np.inf:
                    raise ValueError(f"class_weight: {factor} of class {name!r}. Expected a number from 0 on.")
                factors[known[name]] = factor
        else:
            raise ValueError(
                f"class_weight: {self.class_weight!r}. Expected 'balanced', or a dict of weights by class."
            )
        is_lazy = is_dask_collection(targets)
        own = targets.map_blocks(factors.__getitem__, dtype=float) if is_lazy else factors[targets]
        return own if weights is None else own * weights

    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each class of ``classes_``, or of each label: (n, classes) float32.

        See `predict` for ``X`` and errors.
        """
        return self._predict(X, proba=True)

    def _decoded(self, outputs: Array, proba: bool) -> Array:
        # the net of a user's job may have more outputs than classes
        probabilities = outputs[:, : len(self.classes_)]
        if proba:
            return probabilities
        if self._is_multilabel:
            return (probabilities > 0.5).astype(np.int64)
        found: Array = self.classes_[likeliest(probabilities)]
        return found

    def _score(self, y: Any, found: Any, weights: Any) -> float:
        return float(accuracy_score(y, found, sample_weight=weights))

    score = SingaEstimator.score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _unscaled(x: Any) -> Any:
    """Return features that are not scaled, as floats."""
    if sparse.is_sparse(x):
        return sparse.SparseRecords(x, None, np.asarray)
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def _shown(classes: Iterable[Any]) -> str:
    return listed(sorted(map(str, classes)))


@arguments.documented
class SingaRegressor(RegressorMixin, SingaEstimator):  # type: ignore[misc]
    """Regressor.

    By default it is a multi-layer perceptron with a EuclideanLoss. Pass ``job`` or ``module`` for another net. The
    default net standardises features and targets with the mean and standard deviation that each column of X and y has
    in `fit`. For sparse X, the mean is not subtracted. `predict` returns targets on their original scale.
    """

    _checks: ClassVar[Mapping[str, bool]] = {"multi_output": True, "y_numeric": True}

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SingaRegressor:
        """Train the fitted net for one epoch on these records; see `fit`.

        The training starts with the fitted values, but with a new state of the updater.

        Parameters
        ----------
        X, y, sample_weight
            Data as in `fit`. The default net standardises with the means and standard deviations of the first call.
        """
        return self._fit(X, y, sample_weight, 1, self.__sklearn_is_fitted__(), partial=True)

    @property
    def _loss(self) -> str:
        return "EuclideanLoss"

    def _targets(self, records: fit_records.FitRecords, goes_on: bool, classes: Any) -> tuple[Any, int]:
        y, moments = records.y, records.y_facts.moments
        targets = y.reshape(len(y), -1)
        if not goes_on:
            self._n_targets = targets.shape[1] if y.ndim > 1 else 0
            self._target_scaling = Scaling.of(moments) if not self._has_own_net and moments is not None else None
        n_targets = targets.shape[1]
        if n_targets != max(self._n_targets, 1):
            raise ValueError(f"y has {n_targets} targets. Expected {max(self._n_targets, 1)}, as in the first fit.")
        scaled = self._target_scaling.scale(targets) if self._target_scaling else targets.astype(np.float32)
        return scaled, n_targets

    def _encodings(self) -> dict[str, str]:
        scales = {} if self._target_scaling is None else {"target": "scales the targets"}
        return super()._encodings() | scales

    def _decoded(self, outputs: Array, proba: bool) -> Array:
        found = outputs if self._target_scaling is None else self._target_scaling.undo(outputs)
        return found if self._n_targets else found[:, 0]

    def _score(self, y: Any, found: Any, weights: Any) -> float:
        with naming_values(y=y):
            return float(r2_score(y, found, sample_weight=weights))

    score = SingaEstimator.score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
