"""Texts and dates where estimators expect numbers: the column, the first value and the remedy are named."""

from __future__ import annotations

import datetime
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from singa_dask.estimators import SingaClassifier, SingaRegressor

N = 40
X = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 2)), columns=["a", "b"])
Y = (X["a"] > 0).astype(int)
WORDS = pd.Series(["1.5"] * 5 + ["n/a"] * (N - 5), dtype=object)
DAYS = pd.Series([datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(N)])
NAMES = pd.Series(["u", "v"] * (N // 2))


def classifier() -> SingaClassifier:
    return SingaClassifier(4, max_iter=1)


def regressor() -> SingaRegressor:
    return SingaRegressor(4, max_iter=1)


def lazy(values: Any) -> Any:
    return dd.from_pandas(values, npartitions=2)


DAY = r"column 'b' of X has '2024-01-01' of type date\. .*Drop the column, .*pd\.to_datetime\(X\['b'\]\)\.dt\.month"
WORD = r"column 'b' of X has 'n/a'\. .*pd\.to_numeric\(X\['b'\], errors='coerce'\)"
Y_WORD = r"^y has 'n/a'\. .*pd\.to_numeric\(y, errors='coerce'\).*SingaClassifier"
CASES: dict[str, tuple[Any, str]] = {
    "dates": (lambda: classifier().fit(X.assign(b=DAYS), Y), DAY),
    "dates beside categories": (lambda: classifier().fit(X.assign(b=DAYS, c=NAMES), Y), DAY),
    "an array with texts": (
        lambda: classifier().fit(X.assign(b=WORDS).to_numpy(), Y),
        "column 1 of X has 'n/a'.*frames of pandas",
    ),
    "predict": (lambda: classifier().fit(X, Y).predict(X.assign(b=WORDS)), WORD),
    "predict dates": (lambda: classifier().fit(X, Y).predict(X.assign(b=DAYS)), DAY),
    "predict beside categories": (
        lambda: classifier().fit(X.assign(c=NAMES), Y).predict(X.assign(b=WORDS, c=NAMES)),
        WORD,
    ),
    "predict of Dask": (lambda: classifier().fit(X, Y).predict(lazy(X.assign(b=WORDS))).compute(), WORD),
    "partial_fit": (lambda: classifier().fit(X, Y).partial_fit(X.assign(b=WORDS), Y), WORD),
    "classes that are dates": (lambda: classifier().fit(X, DAYS), r"y has '2024-01-01' of type date\. .*y\.astype"),
    "targets": (lambda: regressor().fit(X, WORDS), Y_WORD),
    "targets in a list": (lambda: regressor().fit(X, list(WORDS)), Y_WORD),
    "targets of Dask": (lambda: regressor().fit(lazy(X), lazy(WORDS)), Y_WORD),
    "several targets": (lambda: regressor().fit(X, X.assign(b=WORDS)), "column 'b' of y has 'n/a'"),
    "targets that are dates": (lambda: regressor().fit(X, DAYS), "y has '2024-01-01' of type date.*days since"),
    "targets that are times": (lambda: regressor().fit(X, pd.to_datetime(DAYS)), "y has '2024-01-01.*days since"),
    "score": (lambda: regressor().fit(X, X["a"]).score(X, WORDS), Y_WORD),
    "weights": (lambda: classifier().fit(X, Y, WORDS), "sample_weight has 'n/a'"),
    "weights of Dask": (lambda: classifier().fit(lazy(X), lazy(Y), lazy(WORDS)), "sample_weight has 'n/a'"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_is_no_number_is_named(name: str) -> None:
    call, said = CASES[name]
    with pytest.raises(ValueError, match=said):
        call()


def test_texts_of_numbers_and_other_errors_stay() -> None:
    texts = X.assign(b=X["b"].astype(str).astype(object))
    fitted = classifier().fit(X, Y)
    np.testing.assert_array_equal(fitted.predict(texts), fitted.predict(X))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier().fit(X.to_numpy(), Y[:-1])
