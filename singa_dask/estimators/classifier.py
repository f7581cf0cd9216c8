"""SingaClassifier: a net that tells classes apart, with the contract of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from singa_dask.arrays import Array
from singa_dask.estimators.base import SingaEstimator
from singa_dask.estimators.checked import Records, classes_of, labels_of
from singa_dask.estimators.parameters import documented
from singa_dask.registry import suggest


@documented
class SingaClassifier(ClassifierMixin, SingaEstimator):  # type: ignore[misc]
    """Classifier: by default a multi-layer perceptron with a SoftmaxLoss, else the net of a job.

    The default net reads features with mean 0 and variance 1: mean and standard deviation of each column of X in `fit`
    are kept, and applied in `predict`; of sparse X the deviation only. The classes are the values in y, in sorted
    order: numbers or strings. ``classes_`` has them after the fit.

    If y has several columns, of 0 and 1, each of them is a label that a record has or has not: the default net has a
    SigmoidCrossEntropyLoss, whose loss is the mean over labels; `predict` returns such columns, and `predict_proba` the
    probability of each label.

    Beside the parameters below it has ``class_weight``, a dict of weights by class, others being 1, or ``"balanced"``,
    inversely proportional to the number of records of a class; they multiply ``sample_weight``.
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
        """Train for one epoch of these records, from the fitted values; see `fit`. The updater begins anew.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. The default net goes on with mean and standard deviation of the first call.
        classes : (classes,) array, optional
            All classes that y of any call has. Needed in the first call, unless y has several columns.
        """
        goes_on = self.__sklearn_is_fitted__()
        if classes is None and not goes_on and np.ndim(y) < 2:
            raise ValueError("classes: none are given. Expected those of all calls in the first call of partial_fit.")
        if goes_on and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes: {_shown(classes)}. Expected those of the first fit: {_shown(self.classes_)}.")
        if isinstance(self.class_weight, str):
            raise ValueError("class_weight: 'balanced' needs all records at once. Expected a dict for partial_fit.")
        return self._fit(X, y, sample_weight, 1, goes_on, classes, partial=True)

    @property
    def _loss(self) -> str:
        return "SigmoidCrossEntropyLoss" if self._is_multilabel else "SoftmaxLoss"

    def _targets(self, records: Records, goes_on: bool, classes: Any) -> tuple[Any, int]:
        y = records.y
        is_multilabel = y.ndim == 2
        if is_multilabel and not set(records.y_facts.distinct.tolist()) <= {0, 1}:
            raise ValueError(
                f"y has {y.shape[1]} columns with other values than 0 and 1. Expected one column of classes, or one of "
                "0 and 1 for each label. sklearn.multioutput.MultiOutputClassifier fits several columns of classes."
            )
        found = np.arange(y.shape[1]) if is_multilabel else classes_of(records.y_facts)
        known = self.classes_ if goes_on else found if classes is None else np.unique(classes)
        if (goes_on and is_multilabel != self._is_multilabel) or (is_multilabel and len(known) != len(found)):
            raise ValueError(f"y of shape {y.shape}. Expected as many columns as in the first fit.")
        unknown = set(found.tolist()) - set(known.tolist())
        if unknown:
            raise ValueError(f"y has unknown classes: {_shown(unknown)}. Known: {_shown(known)}.")
        self.classes_, self._is_multilabel = known, is_multilabel
        return y.astype(np.float32) if is_multilabel else labels_of(y, known), len(known)

    def _weights(self, weights: Any, targets: Any) -> Any:
        if self.class_weight is None:
            return weights
        if self._is_multilabel:
            raise ValueError(
                "class_weight: y has several labels. Expected one class for each record, or sample_weight."
            )
        factors = np.ones(len(self.classes_))
        if self.class_weight == "balanced":
            counts: Any = da.bincount(da.asarray(targets), minlength=len(factors))  # type: ignore[no-untyped-call]
            counts = counts.compute()
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
        """Predict the probability of each of ``classes_``, or of each label: (n, classes) float32; see `predict`."""
        return self._predict(X, proba=True)

    def _decoded(self, outputs: Array, proba: bool) -> Array:
        # the net of a job may have more outputs than there are classes
        probabilities = outputs[:, : len(self.classes_)]
        if proba:
            return probabilities
        if self._is_multilabel:
            return (probabilities > 0.5).astype(np.int64)
        found: Array = self.classes_[np.argmax(probabilities, axis=1)]
        return found

    def _score(self, y: Any, found: Any, weights: Any) -> float:
        return float(accuracy_score(y, found, sample_weight=weights))

    score = SingaEstimator.score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _shown(classes: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, classes)))
