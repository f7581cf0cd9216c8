"""SingaClassifier: a net that tells classes apart, with the contract of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin

from singa_dask.estimators.base import SingaEstimator, documented
from singa_dask.estimators.checked import classes_of, labels_of

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

    def fit(self, X: Any, y: Any) -> SingaClassifier:
        """Train a new net.

        Parameters
        ----------
        X : (n, features) array or frame
            Of NumPy, pandas or Dask; with ``job`` also of several axes, (n, ...).
        y : (n,) array or series
            The class of each record.

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
        x, y = self._check_fit(X, y)
        self.classes_ = classes_of(y)
        self._fit(x, labels_of(y, self.classes_), len(self.classes_))
        return self

    def predict(self, X: Any) -> Any:
        """Predict the class of each record: (n,); for collections of Dask an array of Dask with the same partitions.

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

    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each of ``classes_``: (n, classes) float32; see `predict`."""
        return self._predict(X, proba=True)

    def _predicted(self, x: Array, proba: bool) -> Array:
        # the net of a job may have more outputs than there are classes
        probabilities: Array = self._net.outputs(self._records(x))[:, : len(self.classes_)]
        found: Array = probabilities if proba else self.classes_[np.argmax(probabilities, axis=1)]
        return found
