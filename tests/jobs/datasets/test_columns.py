"""Columns of frames that are wrong: found before partitions are computed, in the words of tables that are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import singa_dask as sd
from singa_dask.errors import ConfigError
from singa_dask.jobs.datasets.binding import find_wrong_columns, with_defaults, with_urls, without_unread
from singa_dask.jobs.datasets.hosts import job_with_data_files, local_parts
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.runtime import local_cluster
from singa_dask.runtime.job.checks.job import check_job
from tests.jobs.conftest import KEYS

FRAME = pd.DataFrame({"a": np.arange(6.0), "b": np.arange(6), "kind": ["x", "y"] * 3}).assign(
    day=pd.date_range("2026-01-01", periods=6), sort=pd.Categorical(list("xyxyxy")), size=[b"a", 1, None] * 2
)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a feature": ({"features": ["a", "bb"], "label": "b"}, r"unknown column 'bb'\. Did you mean 'b'\? Columns: a, b"),
    "a pattern": ({"features": ["z*"], "label": "b"}, r"no column matches 'z\*'\. Columns: a, b"),
    "a label": ({"features": ["a"], "label": "kin"}, r"unknown column 'kin'\. Did you mean 'kind'"),
    "a target": ({"features": ["a"], "target": ["c"]}, r"unknown column 'c'\. Columns: a"),
    "a weight": ({"features": ["a"], "label": "b", "weight": "w"}, r"unknown column 'w'\. Columns: a"),
    "no numbers": ({"features": ["a", "kind"], "label": "b"}, r"column 'kind' holds strings, expected numbers\. If"),
    "days": ({"features": ["a", "day"], "label": "b"}, r"column 'day' holds values of type timestamp, expected"),
    "twice": ({"features": ["a", "b"], "label": "b"}, r"column 'b' is in features and in label"),
    "no label": ({"label": []}, r"the records have no labels\. Name the column in label, or set has_label: false"),
}


def reading(store: dict[str, Any]) -> sd.Job:
    net = sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf={"path": "dask://train", "batchsize": 2, **store}),
            sd.layer("InnerProduct", name="fc", num_output=2),
            sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
        ]
    )
    return sd.Job(net, train_steps=1, **KEYS)


@pytest.mark.parametrize("case", WRONG)
def test_columns_are_wrong_in_the_words_of_the_table(case: str) -> None:
    store, message = WRONG[case]
    frame = FRAME.drop(columns="size")
    job = reading({"shape": [2], **store})
    datasets = without_unread(job.conf, {"train": as_dataset("train", dd.from_pandas(frame, npartitions=2))})
    conf = with_defaults(job.conf, datasets)
    (found,) = find_wrong_columns(conf, datasets)
    with local_parts(datasets) as urls, pytest.raises(ConfigError, match=message) as raised:
        check_job(with_urls(conf, urls))
    text = str(raised.value).replace(urls["train"], "dask://train/part-*.parquet")
    assert found.message in text


@pytest.mark.parametrize(
    ("store", "y"),
    [
        ({"features": ["a", "b"], "label": "kind"}, None),
        ({"features": ["a", "kind"], "label": "b", "categories": {"kind": []}}, None),
        # what they hold is known by their values only
        ({"features": ["a", "sort", "size"], "label": "b"}, None),
        ({"features": ["a", "b"]}, "kind"),
    ],
)
def test_columns_that_may_be_right(store: dict[str, Any], y: str | None) -> None:
    datasets = {"train": as_dataset("train", FRAME if y is None else (FRAME.drop(columns=y), FRAME[y]))}
    assert find_wrong_columns(with_defaults(reading(store).conf, datasets), datasets) == []


def _never(_: int) -> pd.DataFrame:
    pytest.fail("computed")


@pytest.mark.parametrize("published", [False, True])
def test_nothing_is_computed_on_a_cluster_before_columns_are_right(published: bool, tmp_path: Path) -> None:
    frame = dd.from_map(_never, range(2), meta=FRAME.iloc[:0])
    job = reading({"features": ["a", "bb"], "label": "b"})
    message = r"dask://train/part-\*\.parquet: unknown column 'bb'\. Did you mean 'b'"
    with local_cluster(1, 1, processes=False) as client:
        with pytest.raises(ConfigError, match=message):
            if published:
                client.publish_dataset(frame, name="train")
                with job_with_data_files(job.conf, client):
                    pytest.fail("placed")
            sd.train(job, data=frame, client=client, run_dir=str(tmp_path / "run"), progress=False)
    assert not list(tmp_path.iterdir())
