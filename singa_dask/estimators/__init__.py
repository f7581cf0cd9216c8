"""Estimators with the interface of scikit-learn. They fit nets to arrays.

The names are imported on first use, because they require scikit-learn (extra ``sklearn``).

`estimator` has the estimators; `arguments` has the parameters of estimators, and builds the jobs that estimators run.
`fit_records` checks features and targets, `fit_facts` computes their statistics, and `local_fit` trains in this
process. `sparse` handles sparse matrices, `categories` encodes columns of text, and `not_numbers` raises errors for
text and dates among numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from singa_dask.lazy import lazy_names, require

if TYPE_CHECKING:
    from singa_dask.estimators.estimator import SingaClassifier, SingaRegressor

__all__ = ["SingaClassifier", "SingaRegressor"]

_load = lazy_names(__name__, {"estimator": __all__})


def __getattr__(name: str) -> Any:
    if name in __all__:
        require("sklearn", "sklearn", name)
    return _load(name)
