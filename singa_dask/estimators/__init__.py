"""Estimators with the contract of scikit-learn: nets that are fitted to arrays.

Names are imported on first use, as scikit-learn (extra ``sklearn``) is needed for them.

`estimator`: the estimators. `arguments`: their parameters, and jobs made of these. `local_fit`: fits in this process.
`fit_records`: features and targets, checked. `fit_facts`: what is learned of these. `sparse`: sparse matrices.
`categories`: columns of names. `not_numbers`: errors that name texts and dates among numbers.
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
