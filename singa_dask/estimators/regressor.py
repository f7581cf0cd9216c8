"""SingaRegressor: a net that predicts numbers, with the contract of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from singa_dask.estimators.base import SingaEstimator, documented
from singa_dask.estimators.checked import Records
from singa_dask.estimators.facts import Scaling

__all__ = ["SingaRegressor"]

Array = npt.NDArray[Any]


@documented
class SingaRegressor(RegressorMixin, SingaEstimator):  # type: ignore[misc]
    """Regressor: by default a multi-layer perceptron with a EuclideanLoss, else the net of a job.

    The default net reads features and learns targets with mean 0 and variance 1: mean and standard deviation of each
    column of X and y in `fit` are kept; `predict` applies those of X, and undoes those of y.
    """

    kind = "regressor"

    _checks: ClassVar[Mapping[str, bool]] = {"multi_output": True, "y_numeric": True}

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SingaRegressor:
        """Train for one epoch of these records, from the fitted values; the updater and its learning rate begin anew.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. The default net goes on with means and standard deviations of the first call.

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
        return self._fit(X, y, sample_weight, 1, goes_on=self.__sklearn_is_fitted__())

    def _targets(self, records: Records, goes_on: bool, classes: Any) -> tuple[Any, int]:
        y, moments = records.y, records.y_facts.moments
        targets = y.reshape(len(y), -1)
        if not goes_on:
            self._n_targets = targets.shape[1] if y.ndim > 1 else 0
            self._target_scaling = Scaling.of(moments) if self.job is None and moments is not None else None
        n_targets = targets.shape[1]
        if n_targets != max(self._n_targets, 1):
            raise ValueError(f"y has {n_targets} targets. Expected {max(self._n_targets, 1)}, as in the first fit.")
        scaled = self._target_scaling.scale(targets) if self._target_scaling else targets.astype(np.float32)
        return scaled, n_targets

    def _predicted(self, x: Array, proba: bool) -> Array:
        found = self._net.outputs(self._records(x))
        if self._target_scaling is not None:
            found = self._target_scaling.undo(found)
        return found if self._n_targets else found[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
