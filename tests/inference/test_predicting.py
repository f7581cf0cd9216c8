"""Predictions for collections of Dask and frames of pandas: the same values, chunks, divisions and index."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import singa_dask as sd
from singa_dask.errors import DataError
from tests.jobs.conftest import KEYS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sd.Model:
    """Return a classifier of two columns."""
    folder = tmp_path_factory.mktemp("table")
    frame(60).to_csv(folder / "train.csv", index=False)
    records = {"path": str(folder / "train.csv"), "batchsize": 8, "features": ["a", "b"], "label": "kind"}
    net = sd.Net(
        [
            sd.layer("CSVInput", name="data", store_conf=records),
            sd.layer("InnerProduct", name="fc", num_output=3),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    sd.train(sd.Job(net, train_steps=20, **KEYS), run_dir=str(folder / "run"), progress=False)
    return sd.load_model(str(folder / "run"))


def frame(n: int) -> pd.DataFrame:
    """Return numbers and a class of each row, with an index that does not count from 0."""
    values = np.random.default_rng(1).normal(size=(n, 2))
    found = pd.DataFrame(values, columns=["a", "b"], index=np.arange(n) * 10)
    return found.assign(kind=np.array(["ant", "bee", "cow"])[np.argmax(np.c_[values, -values.sum(axis=1)], axis=1)])


def test_frames_keep_their_index_and_divisions(model: sd.Model) -> None:
    x = frame(30)
    kinds = sd.predict(model, x)
    assert isinstance(kinds, pd.Series)
    assert kinds.index.equals(x.index)
    assert (kinds.to_numpy() == model.predict(x)).all()
    given = dd.from_pandas(x, npartitions=3)
    found, shares = sd.predict(model, given), sd.predict(model, given, proba=True)
    assert found.divisions == shares.divisions == given.divisions
    assert list(shares.columns) == ["ant", "bee", "cow"]
    with dask.config.set(scheduler="sync"):
        pd.testing.assert_series_equal(found.compute(), kinds)
        computed = shares.compute()
    assert (computed.dtypes == np.float32).all()
    np.testing.assert_allclose(computed, model.predict_proba(x), rtol=1e-5)
    assert sd.extract(model, x, "fc").shape == (30, 3)


def test_a_model_computes_a_frame_of_dask_and_finds_its_columns_by_name(model: sd.Model) -> None:
    x = frame(20)
    with dask.config.set(scheduler="sync"):
        assert (model.predict(dd.from_pandas(x[x.columns[::-1]], npartitions=2)) == model.predict(x)).all()


def test_arrays_keep_their_chunks(model: sd.Model) -> None:
    x = frame(30)[["a", "b"]].to_numpy()
    given = da.from_array(x, chunks=((10, 16, 4), (1, 1)))
    found, shares = sd.predict(model, given), sd.predict(model, given, proba=True)
    assert (found.chunks, shares.chunks) == (((10, 16, 4),), ((10, 16, 4), (3,)))
    assert shares.dtype == np.float32
    with dask.config.set(scheduler="sync"):
        assert (found.compute() == model.predict(x)).all()
        assert found.dtype == found.compute().dtype
        np.testing.assert_allclose(shares.compute(), model.predict_proba(x), rtol=1e-5)


def test_metrics_of_partitions_are_those_of_all(model: sd.Model) -> None:
    x = frame(48)
    with dask.config.set(scheduler="sync"):
        found = sd.test(model, dd.from_pandas(x, npartitions=3))
        features, kinds = x[["a", "b"]].to_numpy(), x.kind.to_numpy()
        arrays = sd.test(model, da.from_array(features, chunks=(16, 2)), da.from_array(kinds, chunks=16))
    assert found == arrays == pytest.approx(model.test(x))
    assert sd.test(model, x) == model.test(x)
    with pytest.raises(DataError, match=r"y: no Dask partitions, expected 3"):
        sd.test(model, da.from_array(features, chunks=(16, 2)), kinds)


def test_errors_name_the_partition(model: sd.Model) -> None:
    x = frame(20)
    x.loc[150, "b"] = np.nan
    with dask.config.set(scheduler="sync"):
        with pytest.raises(DataError, match=r"partition 1: x, row 5, column 'b': no value"):
            sd.predict(model, dd.from_pandas(x, npartitions=2)).compute()
        with pytest.raises(DataError, match=r"chunk 1 of rows: x, row 5\[1\]: nan, expected a 32-bit float"):
            sd.predict(model, da.from_array(x[["a", "b"]].to_numpy(), chunks=(10, 2))).compute()
