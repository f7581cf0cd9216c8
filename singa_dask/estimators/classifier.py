"""SingaClassifier: a net that tells classes apart, with the contract of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from singa_dask.estimators.base import SingaEstimator, documented
from singa_dask.estimators.checked import Records, classes_of, labels_of

__all__ = ["SingaClassifier"]

Array = npt.NDArray[Any]


@documented
class SingaClassifier(ClassifierMixin, SingaEstimator):  # type: ignore[misc]
    """Classifier: by default a multi-layer perceptron with a SoftmaxLoss, else the net of a job.

    The default net reads features with mean 0 and variance 1: mean and standard deviation of each column of X in `fit`
    are kept, and applied in `predict`. The classes are the values in y, in sorted order: numbers or strings.
    ``classes_`` has them after the fit.
    """

    kind = "classifier"
    classes_: Any

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> SingaClassifier:
        """Train for one epoch of these records, from the fitted values; the updater and its learning rate begin anew.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. The default net goes on with mean and standard deviation of the first call.
        classes : (classes,) array, optional
            All classes that y of any call has. Needed in the first call.

        Returns
        -------
        SingaClassifier
            This one.

        Raises
        ------
        ValueError
            The data or a parameter are wrong.
        SingaError
            The training has failed.
        """
        goes_on = self.__sklearn_is_fitted__()
        if classes is None and not goes_on:
            raise ValueError("classes: none are given. Expected those of all calls in the first call of partial_fit.")
        if goes_on and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes: {_shown(classes)}. Expected those of the first fit: {_shown(self.classes_)}.")
        return self._fit(X, y, sample_weight, 1, goes_on, classes)

    def _targets(self, records: Records, goes_on: bool, classes: Any) -> tuple[Any, int]:
        found = classes_of(records.y_facts)
        known = self.classes_ if goes_on else found if classes is None else np.unique(classes)
        unknown = set(found.tolist()) - set(known.tolist())
        if unknown:
            raise ValueError(f"y has unknown classes: {_shown(unknown)}. Known: {_shown(known)}.")
        self.classes_ = known
        return labels_of(records.y, known), len(known)

    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each of ``classes_``: (n, classes) float32; see `predict`."""
        return self._predict(X, proba=True)

    def _predicted(self, x: Array, proba: bool) -> Array:
        # the net of a job may have more outputs than there are classes
        probabilities: Array = self._net.outputs(self._records(x))[:, : len(self.classes_)]
        found: Array = probabilities if proba else self.classes_[np.argmax(probabilities, axis=1)]
        return found


def _shown(classes: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, classes)))
