"""What is known of jobs and their data before anything runs: the columns that are read."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import singa_dask as sd
from singa_dask.jobs.datasets.binding import without_unread
from singa_dask.jobs.datasets.making import as_dataset
from tests.jobs.conftest import KEYS

FRAME = pd.DataFrame(np.zeros((6, 4)), columns=["x0", "x1", "note", "kind"])
KINDS = {
    "pandas": lambda frame: frame,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "dask": lambda frame: dd.from_pandas(frame, npartitions=2),
}


def reading(*stores: dict[str, Any]) -> sd.Job:
    """Return a job whose layers read the data as these blocks say."""
    layers = [
        sd.layer("RecordInput", name=f"data{i}", store_conf={"path": "dask://train", "batchsize": 2, **store})
        for i, store in enumerate(stores)
    ]
    net = sd.Net([*layers, sd.layer("InnerProduct", num_output=2), sd.layer("SoftmaxLoss")])
    return sd.Job(net, train_steps=1, **KEYS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("stores", "columns"),
    [
        ([{"features": ["x1"], "label": "kind"}], ["x1", "kind"]),
        ([{"features": ["x*"], "has_label": False}], ["x0", "x1"]),
        ([{"features": ["x0"], "target": ["note"]}, {"features": ["x1"]}], ["x0", "x1", "note"]),
        # all columns of numbers are features
        ([{"features": ["x0"]}, {"label": "kind"}], list(FRAME.columns)),
        # the error is to list the columns
        ([{"features": ["x0", "x9"]}], list(FRAME.columns)),
        ([{"features": ["x0"], "label": "kin"}], list(FRAME.columns)),
    ],
)
def test_columns_that_no_layer_reads_are_not_written(
    kind: str, stores: list[dict[str, Any]], columns: list[str]
) -> None:
    dataset = as_dataset("train", KINDS[kind](FRAME))
    found = without_unread(reading(*stores).conf, {"train": dataset})["train"]
    assert list(found.columns) == columns
    (first, *_) = found.parts
    names = first.compute().columns if kind == "dask" else pa.table(first).column_names
    assert list(names) == columns


def test_columns_of_y_are_kept() -> None:
    dataset = as_dataset("train", (FRAME[["x0", "x1"]], FRAME.kind.astype(int)))
    found = without_unread(reading({"features": ["x1"], "label": "kind"}).conf, {"train": dataset})["train"]
    assert (found.columns, found.write_part.outputs) == (("x1",), ("kind",))  # type: ignore[attr-defined]
