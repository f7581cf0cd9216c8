"""Data given from Python with the client of a cluster: the same bits as without one, and the same errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import singa_dask as sd
from singa_dask.errors import DataError
from tests.jobs.datasets.test_training import FRACTIONS, QUIET, X, Y, classify, regress, values_of
from tests.runtime.processes import one_process

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start a cluster of one process."""
    with one_process(tmp_path_factory.mktemp("scratch"), 4) as client:
        yield client


def test_data_train_to_the_same_bits_with_a_client(client: Client, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    kind = pd.Series(np.array(["dog", "cat", "owl"])[Y], name="kind")
    lazy = dd.from_pandas(frame, npartitions=4), dd.from_pandas(kind, npartitions=4)
    for i, (job, data) in enumerate([(classify(), (X, Y)), (classify(), lazy), (regress(), (X, FRACTIONS))]):
        here = sd.train(job, data=data, run_dir=str(tmp_path / f"here-{i}"), **QUIET)
        there = sd.train(job, data=data, client=client, run_dir=str(tmp_path / f"there-{i}"), **QUIET)
        assert values_of(here) == values_of(there)
    client.publish_dataset(train=lazy)
    published = sd.train(classify(), client=client, run_dir=str(tmp_path / "published"), **QUIET)
    client.unpublish_dataset("train")
    assert values_of(published) == values_of(sd.open_run(str(tmp_path / "here-1")))


def test_wrong_values_with_a_client(client: Client, tmp_path: Path) -> None:
    wrong = X.copy()
    wrong[33, 2] = np.nan
    data = da.from_array(wrong, chunks=(10, 6)), da.from_array(Y, chunks=10)
    with pytest.raises(DataError, match=r"^dataset 'train', partition 3, X, record 3\[2\]: nan, expected"):
        sd.train(classify(), data=data, client=client, run_dir=str(tmp_path / "run"), **QUIET)
