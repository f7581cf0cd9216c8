"""Frames of pandas, Dask and pyarrow as datasets, read as tables with named columns."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask import compute

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.making import as_dataset
from singa_dask.jobs.datasets.records import Dataset

FRAME = pd.DataFrame(
    {
        "age": [30, 41, 25, 57, 33, 62],
        "height": [1.7, np.nan, 1.8, 1.6, 1.9, 1.5],
        "island": ["Dream", "Biscoe", "Dream", None, "Biscoe", "Dream"],
        "kind": ["dog", "cat", "owl", "cat", "dog", "owl"],
    }
)
NAMES = ["Biscoe", "Dream"]


def write(dataset: Dataset, folder: Path) -> list[int]:
    """Write all partitions as another process would; return their numbers of records."""
    write_part = pickle.loads(pickle.dumps(dataset.write_part))
    values = compute(*dataset.parts, scheduler="synchronous")
    return [write_part(value, str(folder / dataset.file_name(i)), i) for i, value in enumerate(values)]


def read(folder: Path, **options: Any) -> dict[str, np.ndarray]:
    """Return the records of the files."""
    with TableStore(str(folder / "part-*.parquet"), **options) as store:
        blocks = [store.read_block(i) for i in range(len(store.blocks))]
        names = {"class_names": np.array(store.class_names)}
        return {**{name: np.concatenate([block[name] for block in blocks]) for name in store.schema}, **names}


KINDS = {
    "pandas": lambda frame: frame,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "dask": lambda frame: dd.from_pandas(frame, npartitions=3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_frames_become(kind: str, tmp_path: Path) -> None:
    dataset = as_dataset("train", KINDS[kind](FRAME))
    assert dataset.defaults == {"backend": "table"}
    assert write(dataset, tmp_path) == ([2, 2, 2] if kind == "dask" else [6])
    found = read(tmp_path, features=["age", "height"], label="kind", missing="mean")
    assert list(found["data"][:, 0]) == list(FRAME.age)
    assert found["data"][1, 1] == np.float32(1.7)
    assert list(found["class_names"][found["label"]]) == list(FRAME.kind)
    found = read(tmp_path, features=["island"], categories={"island": []}, missing="skip")
    assert found["data"].tolist() == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]


def test_a_frame_and_its_column_are_computed_once() -> None:
    calls: list[int] = []

    def make(i: int) -> pd.DataFrame:
        calls.append(i)
        return FRAME[["age", "height"]]

    lazy = dd.from_map(make, range(2), meta=FRAME[["age", "height"]])
    calls.clear()
    compute(*as_dataset("train", (lazy[["height"]], lazy.age)).parts, scheduler="synchronous")
    assert sorted(calls) == [0, 1]


def test_a_large_partition_has_several_row_groups(tmp_path: Path) -> None:
    n = 600_000
    frame = pd.DataFrame({"a": np.arange(n), "b": np.arange(n) % 7})
    write(as_dataset("train", frame), tmp_path)
    with TableStore(str(tmp_path / "part-*.parquet")) as store:
        assert (len(store.blocks), store.count) == (2, n)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("y", "defaults"),
    [
        (FRAME.kind, {"label": ["kind"]}),
        (FRAME.kind.astype("category"), {"label": ["kind"]}),
        (FRAME.age.rename(None), {"label": ["y"]}),
        (FRAME.age > 40, {"label": ["age"]}),
        (FRAME.age / 7, {"target": ["age"]}),
        (FRAME[["age", "kind"]], {"label": ["age", "kind"]}),
        (np.arange(6), {"label": ["y"]}),
        (np.arange(12).reshape(6, 2) / 7, {"target": ["y0", "y1"]}),
    ],
)
def test_frames_with_y(y: Any, defaults: dict[str, list[str]], lazy: bool, tmp_path: Path) -> None:
    frame = FRAME[["height"]].fillna(0)
    if lazy:
        frame = dd.from_pandas(frame, npartitions=2)
        y = da.from_array(y, chunks=3) if isinstance(y, np.ndarray) else dd.from_pandas(y, npartitions=2)
    dataset = as_dataset("train", (frame, y))
    assert dataset.defaults == {"backend": "table", **defaults}
    write(dataset, tmp_path)
    found = read(tmp_path, **defaults)
    assert found["data"].tolist() == FRAME[["height"]].fillna(0).to_numpy(np.float32).tolist()
    assert len(found["label" if "label" in defaults else "target"]) == 6


def test_partitions_without_records_or_values(tmp_path: Path) -> None:
    frame = FRAME.assign(island=[None, None, "a", "b", "a", None])
    lazy = dd.from_pandas(frame, npartitions=3)
    assert write(as_dataset("train", lazy[lazy.age != 33]), tmp_path) == [2, 2, 1]
    assert read(tmp_path, features=["age"], label="island", missing="skip")["label"].tolist() == [0, 1]
    for path in tmp_path.iterdir():
        path.unlink()
    assert write(as_dataset("train", lazy[lazy.age > 40]), tmp_path) == [1, 1, 1]
    for path in tmp_path.iterdir():
        path.unlink()
    assert write(as_dataset("train", lazy[lazy.age < 31]), tmp_path) == [1, 1, 0]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (pd.concat([FRAME, FRAME], axis=1), r"column 'age' occurs twice"),
        (pa.table([[1], [2]], names=["a", "a"]), r"column 'a' occurs twice"),
        (FRAME.set_axis(pd.MultiIndex.from_product([["a"], FRAME.columns]), axis=1), r"names of 2 levels"),
        ((FRAME, FRAME.kind), r"the frame has a column 'kind', which is also the name of y\. Drop it"),
        ((FRAME, FRAME.age.rename("y")[:4]), r"the frame has 6 records, but y has 4"),
        ((dd.from_pandas(FRAME, npartitions=2), np.arange(6)), r"only one of frame and y is from Dask"),
        (
            (dd.from_pandas(FRAME, npartitions=2), dd.from_pandas(FRAME.age.rename("y"), npartitions=3)),
            r"2 partitions, but y has 3",
        ),
        (FRAME[:0], r"no records"),
        ((FRAME, "kind"), r"y: an object of type str, expected a column"),
        (FRAME.age, r"an object of type pandas\..*Series, expected an array"),
        ({"age": [1, 2]}, r"an object of type dict, expected an array"),
    ],
)
def test_values_that_cannot_be_tables(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=rf"^dataset 'train'.*{message}"):
        as_dataset("train", value)


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ([1, 2, np.nan, 4, 5, 6], {}, r"part-00001\.parquet, row group 0, record 0, column 'a': no value"),
        ([1, 2, 3, 4, np.inf, 6], {}, r"part-00002\.parquet, row group 0, record 0, column 'a': inf"),
        (list("abcabc"), {}, r"column 'a' holds strings, expected numbers\. If they are names, set categories"),
        (pd.date_range("2020", periods=6), {}, r"column 'a' holds values of type timestamp.*Name the column"),
        (
            [1, 2.5, 3, 4, 5, 6],
            {"label": "a", "features": ["b"]},
            r"part-00000.*column 'a': the label 2\.5 is not an integer",
        ),
        (list("abcxbc"), {"categories": {"a": list("abc")}}, r"part-00001.*record 1, column 'a': .*'x'"),
        ([None] * 6, {}, r"column 'a' .*no value|holds strings"),
    ],
)
def test_wrong_values_are_found_by_column_and_partition(
    column: Any, options: Any, message: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"a": column, "b": range(6)})
    with pytest.raises(DataError, match=message):
        write(as_dataset("train", dd.from_map(lambda i: frame[2 * i : 2 * i + 2], range(3), meta=frame[:0])), tmp_path)
        read(tmp_path, **{"features": ["a", "b"], **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part.rename(columns={"age": "years"}), r"the columns are not the declared ones\. Columns: years"),
        (lambda part: part.assign(age=1j), r"column 'age': values of type complex128 cannot be a column"),
        (lambda part: part.assign(age=[1, "a"]), r"column 'age': values of type object cannot be a column"),
        (lambda part: part.to_numpy(), r"an object of type numpy\.ndarray, expected a frame"),
    ],
)
def test_partitions_that_are_not_as_declared(change: Any, message: str, tmp_path: Path) -> None:
    write_part = as_dataset("train", dd.from_pandas(FRAME, npartitions=3)).write_part
    with pytest.raises(DataError, match=rf"^dataset 'train', partition 2.*{message}"):
        write_part(change(FRAME[:2]), str(tmp_path / "part"), 2)
    assert not list(tmp_path.iterdir())


def test_lists_of_other_lengths_are_refused_when_they_are_features(tmp_path: Path) -> None:
    write(as_dataset("train", pd.DataFrame({"a": [[1], [1, 2]], "b": [1, 2]})), tmp_path)
    assert read(tmp_path, features=["b"])["data"].tolist() == [[1], [2]]
    with pytest.raises(DataError, match="record 1, column 'a': 2 values, expected 1"):
        read(tmp_path, features=["a", "b"])


def test_masked_values_of_y_beside_a_frame(tmp_path: Path) -> None:
    y = np.ma.masked_equal(np.arange(12).reshape(6, 2), 3)
    with pytest.raises(DataError, match=r"^dataset 'train', y: masked values"):
        write(as_dataset("train", (FRAME, y)), tmp_path)


def test_negative_labels_of_y(tmp_path: Path) -> None:
    y = pd.Series([0, 1, 2, 1, -1, 0], name="kind")
    dataset = as_dataset("train", (dd.from_pandas(FRAME[["age"]], npartitions=2), dd.from_pandas(y, npartitions=2)))
    with pytest.raises(DataError, match=r"^dataset 'train', partition 1, record 1, column 'kind': the label -1 is neg"):
        write(dataset, tmp_path)


@pytest.mark.parametrize("kind", ["pandas", "dask"])
def test_weights_beside_a_frame(kind: str, tmp_path: Path) -> None:
    x, y = FRAME[["age"]], FRAME["kind"]
    weights = pd.Series([1, 2, 0, 4, 0.5, 6], name="share")
    given = (
        (x, y, weights) if kind == "pandas" else tuple(dd.from_pandas(each, npartitions=3) for each in (x, y, weights))
    )
    dataset = as_dataset("train", given)
    assert dataset.defaults == {"backend": "table", "label": ["kind"], "weight": "share"}
    write(dataset, tmp_path)
    found = read(tmp_path, label="kind", weight="share")
    assert found["data"].tolist() == x.to_numpy().tolist() and found["weight"].ravel().tolist() == weights.tolist()
    with pytest.raises(DataError, match=r"the frame has a column 'age', which is also the name of the weights"):
        as_dataset("train", (x, y, weights.rename("age")))
    with pytest.raises(DataError, match=r"y has a column 'kind', which is also the name of the weights"):
        as_dataset("train", (x, y, weights.rename("kind")))
    with pytest.raises(DataError, match=r"the frame has 6 records, but weights have 5"):
        as_dataset("train", (x, y, weights[:5]))
    with pytest.raises(DataError, match=r"record 1, weights: the weight -2"):
        write(as_dataset("train", (x, y, -weights.abs().replace({1: -1}))), tmp_path)
