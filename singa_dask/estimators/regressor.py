"""SingaRegressor: a net that predicts numbers, with the contract of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from singa_dask.arrays import Array
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.estimators.base import SingaEstimator
from singa_dask.estimators.checked import Records
from singa_dask.estimators.parameters import documented


@documented
class SingaRegressor(RegressorMixin, SingaEstimator):  # type: ignore[misc]
    """Regressor: by default a multi-layer perceptron with a EuclideanLoss, else the net of a job.

    The default net reads features and learns targets with mean 0 and variance 1: mean and standard deviation of each
    column of X and y in `fit` are kept; of sparse X the deviation only. `predict` applies those of X, and undoes those
    of y.
    """

    _checks: ClassVar[Mapping[str, bool]] = {"multi_output": True, "y_numeric": True}

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SingaRegressor:
        """Train for one epoch of these records, from the fitted values; see `fit`. The updater begins anew.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. The default net goes on with means and standard deviations of the first call.
        """
        return self._fit(X, y, sample_weight, 1, self.__sklearn_is_fitted__(), partial=True)

    @property
    def _loss(self) -> str:
        return "EuclideanLoss"

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

    def _decoded(self, outputs: Array, proba: bool) -> Array:
        found = outputs if self._target_scaling is None else self._target_scaling.undo(outputs)
        return found if self._n_targets else found[:, 0]

    def _score(self, y: Any, found: Any, weights: Any) -> float:
        return float(r2_score(y, found, sample_weight=weights))

    score = SingaEstimator.score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
