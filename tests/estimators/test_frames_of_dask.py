"""Texts and categories in frames of Dask: encoded as those of the same frame of pandas, whatever its partitions."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from singa_dask import SingaClassifier
from singa_dask.estimators.fit_records import checked_features

N = 300
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "plan": RNG.choice(["basic", "plus", "pro"], N),
        "state": pd.Categorical(RNG.choice(["CA", "NY"], N), categories=["TX", "NY", "CA"]),
        "member": RNG.random(N) < 0.5,
    }
)
# of the first partition alone, and missing in the last one
FRAME["note"] = np.where(np.arange(N) < 3, "first", "others")
FRAME.loc[N - 1, "note"] = None
Y = pd.Series(np.where((FRAME["plan"] == "pro") | (FRAME["age"] > 70), "yes", "no"), name="kept")
QUICK: dict[str, Any] = {"max_iter": 30, "random_state": 0}


def lazy(frame: Any, n: int = 4) -> Any:
    return dd.from_pandas(frame, npartitions=n)


@pytest.mark.parametrize("converts", [True, False], ids=["string", "object"])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_codes_are_those_of_the_same_frame_of_pandas(converts: bool, is_known: bool) -> None:
    memory = SingaClassifier(**QUICK).fit(FRAME, Y)
    with dask.config.set({"dataframe.convert-string": converts}):
        frame = lazy(FRAME)
        if not is_known:
            frame["state"] = frame["state"].cat.as_unknown()
        found = SingaClassifier(**QUICK).fit(frame, lazy(Y))
        assert list(found.feature_names_in_) == list(FRAME.columns)
        codes = checked_features(found, frame, several_axes=False).compute()
        np.testing.assert_array_equal(codes, checked_features(memory, FRAME, several_axes=False))
        assert codes.shape == (N, 3 + 3 + 3 + 2)
        predicted = found.predict(frame)
        assert predicted.numblocks == (4,)
        np.testing.assert_array_equal(predicted.compute(), found.predict(FRAME))
        assert found.score(frame, lazy(Y)) > 0.9


def test_a_fit_of_dask_knows_categories_of_any_partition() -> None:
    found = SingaClassifier(**QUICK).fit(lazy(FRAME), lazy(Y))
    assert len(found.predict(FRAME.iloc[-5:])) == 5
    other = lazy(FRAME.assign(plan="gold"))
    with pytest.raises(ValueError, match=r"column 'plan' of X has unknown categories: gold\. Known: basic, plus, pro"):
        found.predict(other).compute()
    assert len(found.set_params(handle_unknown="ignore").predict(other).compute()) == N
    with pytest.raises(ValueError, match="X has no columns by name"):
        found.predict(lazy(FRAME).to_dask_array())


def test_frames_of_dask_that_are_refused_or_have_one_column() -> None:
    found = SingaClassifier(**QUICK).fit(lazy(FRAME), lazy(Y).to_frame("label"))
    assert list(found.classes_) == sorted(set(Y))
    hole = FRAME.assign(age=FRAME["age"].where(np.arange(N) != N - 1).astype(float))
    with pytest.raises(ValueError, match=r"Input X contains NaN in the columns 'age' \(1 of \d+\)"):
        SingaClassifier(**QUICK).fit(lazy(hole), lazy(Y))
    with pytest.raises(ValueError, match="column 'day' of X has values of type datetime64"):
        SingaClassifier(**QUICK).fit(lazy(FRAME.assign(day=pd.Timestamp("2024-01-31"))), lazy(Y))


def test_objects_that_are_numbers_are_numbers() -> None:
    with dask.config.set({"dataframe.convert-string": False}):
        frame = lazy(FRAME[["age"]].assign(number=pd.Series(range(N), dtype=object)))
        found = SingaClassifier(**QUICK).fit(frame, lazy(Y))
        assert len(found.predict(frame).compute()) == N


def test_a_score_of_records_held_out_and_weights() -> None:
    found = SingaClassifier(early_stopping=True, **QUICK).fit(lazy(FRAME), lazy(Y))
    assert found.best_validation_score_ > 0.7
    weights = lazy(pd.Series(np.linspace(0, 1, N)))
    assert SingaClassifier(**QUICK).fit(lazy(FRAME), lazy(Y), sample_weight=weights).score(lazy(FRAME), lazy(Y)) > 0.8
