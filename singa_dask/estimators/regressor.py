"""SingaRegressor: a net that predicts numbers, with the contract of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from singa_dask.estimators.base import SingaEstimator, documented
from singa_dask.estimators.scaling import Scaling

__all__ = ["SingaRegressor"]

Array = npt.NDArray[Any]


@documented
class SingaRegressor(RegressorMixin, SingaEstimator):  # type: ignore[misc]
    """Regressor: by default a multi-layer perceptron with a EuclideanLoss, else the net of a job.

    The default net reads features and learns targets with mean 0 and variance 1: mean and standard deviation of each
    column of X and y in `fit` are kept; `predict` applies those of X, and undoes those of y.
    """

    kind = "regressor"

    def fit(self, X: Any, y: Any) -> SingaRegressor:
        """Train a new net.

        Parameters
        ----------
        X : (n, features) array or frame
            Of NumPy, pandas or Dask; with ``job`` also of several axes, (n, ...).
        y : (n,) or (n, targets) array, series or frame
            Numbers to predict.

        Returns
        -------
        SingaRegressor
            This one.

        Raises
        ------
        ValueError
            The data or a parameter are wrong.
        SingaError
            The training has failed.
        """
        x, y = self._check_fit(X, y, multi_output=True, y_numeric=True)
        self._has_one_target = y.ndim == 1
        targets = y.reshape(len(y), -1)
        self._target_scaling = Scaling.of(targets) if self.job is None else None
        scaled = self._target_scaling.scale(targets) if self._target_scaling else targets.astype(np.float32)
        self._fit(x, scaled, targets.shape[1])
        return self

    def predict(self, X: Any) -> Any:
        """Predict the targets: (n,) or (n, targets); for collections of Dask an array of Dask with the same partitions.

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

    def _predicted(self, x: Array, proba: bool) -> Array:
        found = self._net.outputs(self._records(x))
        if self._target_scaling is not None:
            found = self._target_scaling.undo(found)
        return found[:, 0] if self._has_one_target else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
