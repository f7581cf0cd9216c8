"""What one pass over arrays and frames tells: moments, classes, values that are wrong, and what it costs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import singa_dask as sd
from singa_dask.data.tables.scaling import Moments, Scaling
from singa_dask.estimators.fit_facts import ArrayFacts, facts_of_both, facts_of_parts
from singa_dask.estimators.fit_records import classes_of
from singa_dask.jobs.datasets.lazy_parts import parts_of

Array = npt.NDArray[Any]

QUICK: dict[str, Any] = {"hidden_layer_sizes": (), "batch_size": 20, "max_iter": 1, "random_state": 1}


@pytest.mark.parametrize("chunks", [(1000,), (1, 0, 400, 599), (143,) * 6 + (142,)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_moments_are_those_of_numpy(chunks: tuple[int, ...], dtype: Any) -> None:
    scale, shift = np.array([1, 1e-3, 1e3, 1e4]) * 50, [0, 5, -1e8, 1e4]
    x = (np.random.default_rng(0).standard_normal((1000, 4)) * scale + shift).astype(dtype)
    parts = parts_of(da.from_array(x, chunks=(chunks, 4)))
    facts, same = (facts_of_parts(parts, parts, moments=True, distinct=False)[0] for _ in range(2))
    assert facts.lengths == chunks
    found = Scaling.of(facts.moments or pytest.fail("none"))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found.mean, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.std, wide.std(axis=0), rtol=1e-10)
    for one, other in zip(facts.moments or (), same.moments or (), strict=True):
        assert np.array_equal(one, other)


def test_constant_columns_are_exact_however_many_records_there_are() -> None:
    x = np.full((300_000, 2), [0.1, 3e20])
    found = Scaling.of(Moments.of(x).merged(Moments.of(x[:7])))
    assert found.mean.tolist() == [0.1, 3e20]
    assert found.scale(np.array([[0.1, 3e20], [7, -1]])).tolist() == [[0, 0], [0, 0]]
    assert found.undo(np.array([[0.0, 5.0]])).tolist() == [[0.1, 3e20]]


@pytest.mark.parametrize("labels", [["b", "a", "c"], [3, -7, 11], [2.0, 1.0, 4.0], [True, False, True]])
def test_classes_of_all_partitions(labels: list[Any]) -> None:
    y = np.array(labels * 30)
    parts = parts_of(da.from_array(y, chunks=11))
    for facts in (facts_of_parts(parts, parts, False, True)[1], facts_of_both(y, y, False, True)[1]):
        assert list(classes_of(facts)) == sorted(set(labels))


def test_labels_that_may_be_numbers_of_a_scale() -> None:
    with pytest.warns(UserWarning, match="greater than 50% of the number of samples"):
        classes_of(ArrayFacts((30,), True, distinct=np.arange(20)))
    assert len(classes_of(ArrayFacts((41,), True, distinct=np.arange(20)))) == 20


CALLS = Counter[int]()


def _frame_of(index: int) -> pd.DataFrame:
    CALLS[index] += 1
    values = np.random.default_rng(index).normal(5, 3, (40 + index, 3))
    return pd.DataFrame(values, columns=["a", "b", "c"]).assign(label=np.arange(len(values)) % 2)


def _array_of(block_id: tuple[int, ...]) -> Array:
    return _frame_of(block_id[0]).to_numpy()


@pytest.mark.parametrize("kind", [sd.SingaClassifier, sd.SingaRegressor])
@pytest.mark.parametrize("data", ["frame", "array", "array of unknown lengths"])
def test_partitions_are_computed_once_for_facts_and_once_to_be_written(kind: Any, data: str) -> None:
    frame = dd.from_map(_frame_of, range(3), meta=_frame_of(0).iloc[:0])
    lengths = (40, 41, 42) if data == "array" else (np.nan,) * 3
    array = da.map_blocks(_array_of, chunks=(lengths, (4,)), dtype=float, meta=np.empty((0, 0)))
    x, y = (frame[["a", "b", "c"]], frame["label"]) if data == "frame" else (array[:, :3], array[:, 3])
    CALLS.clear()
    with dask.config.set(scheduler="synchronous"):
        fitted = kind(**QUICK).fit(x, y)
    assert CALLS == dict.fromkeys(range(3), 2)
    values = [np.asarray(each) for each in dask.compute(x, y)]
    in_memory = kind(**QUICK).fit(*values)
    np.testing.assert_allclose(fitted._scaling.mean, in_memory._scaling.mean, rtol=1e-12)
    assert fitted.loss_curve_ == pytest.approx(in_memory.loss_curve_, rel=1e-4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", None, "b"], "y has missing values, or values of several types"),
        ([0.0, np.nan, 1.0], "Input y contains NaN"),
        ([], "X has no records"),
    ],
)
def test_labels_that_are_wrong(labels: list[Any], message: str) -> None:
    frame = dd.from_pandas(pd.DataFrame({"a": np.ones(len(labels)), "label": labels}), npartitions=1)
    with pytest.raises(ValueError, match=message):
        sd.SingaClassifier().fit(frame[["a"]], frame["label"])


MIXED = pd.DataFrame({"a": np.linspace(-1, 1, 60), "n": np.arange(60) % 5, "kind": list("xyz") * 20})
FRAMES: dict[str, Any] = {
    "get_dummies": pd.get_dummies(MIXED),
    "sparse": pd.get_dummies(MIXED, sparse=True),
    "Int64": MIXED[["a", "n"]].astype({"n": "Int64"}),
    "Float64": MIXED[["a", "n"]].astype({"a": "Float64"}),
    "boolean": MIXED[["a"]].assign(b=pd.array(MIXED["n"] > 2, dtype="boolean")),
    "arrow": MIXED[["a", "n"]].astype({"a": "double[pyarrow]", "n": "int8[pyarrow]"}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_columns_of_several_types_are_read_as_floats(name: str) -> None:
    x = FRAMES[name]
    y = x.iloc[:, :2]
    lazy_x, lazy_y = (dd.from_pandas(each, npartitions=3) for each in (x, y))
    floats = x.astype(float)
    here = sd.SingaRegressor(**QUICK).fit(floats, floats.iloc[:, :2])
    there = sd.SingaRegressor(**QUICK).fit(lazy_x, lazy_y)
    np.testing.assert_allclose(np.asarray(there.predict(lazy_x)), here.predict(floats), rtol=1e-5)
