"""Tables with named columns: what becomes of columns, in CSV and Parquet, and what is refused."""

from __future__ import annotations

import datetime
import gzip
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import OneHotEncoder

from singa_dask import fs
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.stores.tables.written_columns import read_columns
from singa_dask.data.tables import table_reader
from singa_dask.data.tables.encoder import TableEncoder
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.files import parquet_part
from singa_dask.data.tables.spec import TableSpec
from singa_dask.errors import DataError
from singa_dask.inputs.store_conf import StoreConf
from tests.contracts.records import read_all

FRUIT = """id,weight,length,colour,kind
1,1.5,2,red,apple
2,3,,yellow,"pear, green"
3,2.5,4,red,apple
"""


def table_of(path: Path, content: str | bytes = FRUIT, **options: Any) -> TableStore:
    """Write a CSV file and open it."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return TableStore(str(path), **options)


def parquet_of(path: Path, columns: dict[str, Any], row_group_size: int | None = None, **options: Any) -> TableStore:
    """Write a Parquet file and open it."""
    pq.write_table(pa.table(columns), str(path), row_group_size=row_group_size)
    return TableStore(str(path), **options)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "fruit.csv"


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    return tmp_path / "fruit.parquet"


def test_features_categories_and_classes(csv: Path) -> None:
    options = {"features": ["weight", "colour", "length"], "categories": {"colour": []}, "label": "kind"}
    with table_of(csv, **options, missing="mean") as store:
        found = read_all(store)
        assert store.class_names == ("apple", "pear, green")
        assert store.table_facts.names == ("weight", "colour=red", "colour=yellow", "length")
        assert found["data"].tolist() == [[1.5, 1, 0, 2], [3, 0, 1, 3], [2.5, 1, 0, 4]]
        assert found["label"].tolist() == [0, 1, 0]
        again = pickle.loads(pickle.dumps(store))
        assert again.fingerprint == store.fingerprint
        columns = {column.name: column for column in store.table_columns}
        assert columns["length"].index == 3
        assert columns["colour"].categories == ("red", "yellow")
        assert columns["id"].field == ""


def test_a_store_has_all_options_and_a_manifest_those_that_are_set(csv: Path) -> None:
    split = {"part": "train", "test_from": 2}
    with table_of(csv, label="kind", features=["weight"], missing="skip", split=split, tolerant=True) as store:
        assert {*store.options} == {*store.option_names()}
        assert store.options["tolerant"]
        assert store.options["split"].part == "train"
        described = store.manifest_options()
        again = pickle.loads(pickle.dumps(store))
    assert described["label"] == "kind"
    assert described["split"] | split == described["split"]
    assert described.keys().isdisjoint(["tolerant", "lags", "texts"])
    assert again.options == store.options


def test_all_numbers_are_features_by_default(csv: Path) -> None:
    with table_of(csv, label="kind", missing=0) as store:
        assert store.table_facts.features == ("id", "weight", "length")
        assert read_all(store)["data"][1].tolist() == [2, 3, 0]


def test_patterns_indices_targets_and_skipped_records(csv: Path) -> None:
    options = {"features": ["[wl]*", "colour"], "categories": {"colour": ["yellow", "red"]}, "encoding": "index"}
    with table_of(csv, **options, target=["id"], missing="skip") as store:
        found = read_all(store)
        assert store.count == 2
        assert found["data"].tolist() == [[1.5, 2, 1], [2.5, 4, 1]]
        assert found["target"].tolist() == [[1], [3]]
        assert "label" not in store.schema


def test_records_without_a_label_or_target_are_left_out_if_so_said(csv: Path, parquet: Path) -> None:
    text = "a,y,z\n1,,4\n,big,5\n3,small,\n5,big,7\n"
    columns = {"a": [1.0, None, 3.0, 5.0], "y": [None, "big", "small", "big"], "z": [4.0, 5.0, None, 7.0]}
    options: dict[str, Any] = {"features": ["a"], "label": "y", "target": ["z"], "missing": "mean"}
    with table_of(csv, text, **options) as store, pytest.raises(DataError) as refused:
        read_all(store)
    assert str(refused.value).endswith("line 4, column 'z': no value. Set unlabelled: skip to leave such records out.")
    with table_of(csv, text, **{**options, "target": []}) as store, pytest.raises(DataError) as refused:
        read_all(store)
    assert str(refused.value).endswith("line 2, column 'y': no value. Set unlabelled: skip to leave such records out.")
    for store in (
        table_of(csv, text, **options, unlabelled="skip"),
        parquet_of(parquet, columns, **options, unlabelled="skip"),
    ):
        with store:
            found = read_all(store)
            # the mean is that of the two records that are left, one of which has a value
            assert [found[name].ravel().tolist() for name in ("data", "label", "target")] == [[5, 5], [0, 0], [5, 7]]
            assert (store.count, store.left_out) == (2, 2)
    with table_of(csv, text, **options, unlabelled="skip", has_label=False) as store:
        assert read_all(store)["data"].ravel().tolist() == [1, 3, 3, 5]


def test_facts_of_the_training_data_are_used(csv: Path, tmp_path: Path) -> None:
    options = {"features": ["weight", "length", "colour"], "categories": {"colour": []}, "label": "kind"}
    with table_of(csv, **options, missing="mean") as store:
        facts = store.table_facts.to_dict()
    other = tmp_path / "test.csv"
    with table_of(other, "kind,colour,weight,length\n'pear',red,,7\n".replace("'pear'", '"pear, green"'),
                  **options, missing="mean", facts=facts) as store:  # fmt: skip
        assert read_all(store)["label"].tolist() == [1]
        assert read_all(store)["data"][0, 0] == np.float32(7 / 3)
    wrong = "kind,colour,weight,length\napple,red,1,7\napple,blue,1,7\n"
    with table_of(other, wrong, **options, missing="mean", facts=facts) as store:
        with pytest.raises(DataError, match=r"test.csv, line 3, column 'colour': unknown category 'blue'. Exp"):
            read_all(store)
    named = {"features": ["colour"], "categories": {"colour": ["", "red"]}}
    with table_of(other, wrong, **named, label="kind") as store:
        with pytest.raises(DataError, match=r"a known one: '' \(no value\), red\. Or set unknown: ignore\.$"):
            read_all(store)
    # as scikit-learn's OneHotEncoder with handle_unknown="ignore", which has seen no missing value, or one
    encoder = OneHotEncoder(handle_unknown="ignore").fit([[""], ["red"]])
    with table_of(other, wrong + "apple,,1,7\n", **named, label="kind", unknown="ignore") as store:
        np.testing.assert_array_equal(read_all(store)["data"], encoder.transform([["red"], ["blue"], [""]]).toarray())
    gaps, of_colour = wrong + "apple,,1,7\n", {**options, "features": ["colour"]}
    encoder = OneHotEncoder(handle_unknown="ignore").fit([["red"], ["yellow"]])
    of_colour["facts"] = {**facts, "features": ["colour"], "means": {}}
    with table_of(other, gaps, **of_colour, unknown="ignore") as store:
        np.testing.assert_array_equal(read_all(store)["data"], encoder.transform([["red"], ["blue"], [None]]).toarray())
    with table_of(other, gaps, **of_colour) as store:
        with pytest.raises(
            DataError, match=r"line 4, column 'colour': no value\. Set missing: skip, unknown: ignore, or"
        ):
            read_all(store)
    with pytest.raises(ValueError, match="ignore makes zeros of unknown categories: expected encoding: one_hot"):
        StoreConf.model_validate({"path": "x.csv", "features": ["a"], "unknown": "ignore", "encoding": "index"})
    with table_of(other, "colour,weight,length\nred,1,7\n", **options, facts=facts, has_label=False) as store:
        assert list(store.schema) == ["data"]
    with pytest.raises(DataError, match="column 'length' is missing"):
        table_of(other, "kind,colour,weight\napple,red,1\n", label="kind", facts=facts, categories={"colour": []})


def test_labels_are_integers_booleans_or_names(csv: Path) -> None:
    with table_of(csv, "x,y\n1,3\n2,1\n", label="y") as store:
        assert (read_all(store)["label"].tolist(), store.class_names) == ([3, 1], ())
    with table_of(csv, "x,y\n1,True\n2,False\n", label="y") as store:
        assert (read_all(store)["label"].tolist(), store.class_names) == ([1, 0], ("false", "true"))
    with table_of(csv, "x,y\n1,10\n2,9\n", label="y", categories={"y": []}) as store:
        assert (read_all(store)["label"].tolist(), store.class_names) == ([1, 0], ("9", "10"))


def test_missing_categories_have_a_name_if_it_is_given(csv: Path) -> None:
    with table_of(csv, "x,c\n1,\n2,a\n", features=["c"], categories={"c": ["", "a"]}) as store:
        assert read_all(store)["data"].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (FRUIT, {"features": ["wieght"]}, "fruit.csv: unknown column 'wieght'. Did you mean 'weight'? Columns: id, "),
        (FRUIT, {"features": ["z*"]}, "fruit.csv: no column matches 'z*'. Columns: id, weight"),
        (FRUIT, {"features": ["id", "i*"]}, "column 'id' is twice in features"),
        (FRUIT, {"label": "species"}, "unknown column 'species'. Columns"),
        (FRUIT, {"features": ["colour"]}, "column 'colour' holds strings, expected numbers. If they are names, set "),
        (FRUIT, {"features": ["id"], "categories": {"kind": []}}, "categories has 'kind', which is neither"),
        (FRUIT, {"features": ["length"]}, "fruit.csv, line 3, column 'length': no value. Set missing: to mean"),
        (FRUIT, {"features": ["id"], "target": ["length"]}, "fruit.csv, line 3, column 'length': no value."),
        (FRUIT, {"features": ["id"], "label": "weight"}, "line 2, column 'weight': the label 1.5 is not an integer"),
        ("x,y\n1,2147483648\n", {"label": "y"}, "line 2, column 'y': the label 2147483648.0 does not fit in 32 bits"),
        ("x,y\n1,2\n", {"label": "y", "features": ["x", "q"]}, "unknown column 'q'"),
        ("x,y\n", {"features": ["x"]}, "fruit.csv: no records but the header."),
        ("x,y\n1,\n2,\n", {"features": ["y"]}, "column 'y' has no values"),
        ("x,y\n1,2\n3,4,5\n", {"features": ["x"]}, "line 3: 3 fields, expected 2, as in the header"),
        ("x,y\n1,2\n3,a\n", {"features": ["y"]}, "column 'y' holds strings"),
        ("x,y\n1,2\ninf,4\n", {"features": ["x"]}, "line 3, column 'x': inf does not fit"),
        ("x;y\n1;2,5\n", {"features": ["y"], "separator": ";"}, "column 'y': '2,5' has a decimal comma"),
        (
            "x;y\n1;20,000\n",
            {"features": ["y"], "separator": ";"},
            "column 'y': '20,000' has a comma, for decimals or between thousands. Set numbers, with decimal: ',' or ",
        ),
        ("x,y\n1,2020-01-01\n", {"features": ["y"]}, "column 'y' holds values of type date, expected numbers."),
        ("x,y\n1,\n2,\n", {"label": "x", "features": ["y"], "missing": "skip"}, "column 'y' has no values"),
        ("x,y\n1,\n,2\n", {"features": ["x", "y"], "missing": "skip"}, "no records without missing values"),
        ("x,y\n1,2\n", {"features": ["x"], "categories": {"x": ["2"]}}, "line 2, column 'x': unknown category '1'"),
        ("x,y\n" + "".join(f"{i},a{i}\n" for i in range(200)), {"label": "y"}, "'y' has 200 different values in 200"),
        ('x,y\n1,"2\n3,4\n', {"features": ["x"]}, "line 2: a quote in the record that begins here is not closed"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_named(content: str, options: dict[str, Any], message: str, csv: Path) -> None:
    with pytest.raises(DataError) as caught, table_of(csv, content, **options) as store:
        read_all(store)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7,x", "line 42, column 'b': 'x' is not a number"),
        ("7,3_0", "line 42, column 'b': '3_0' is not a number"),
        ('7,"2,5"', "line 42, column 'b': '2,5' has a decimal comma"),
        ('7,"20,000"', "line 42, column 'b': '20,000' has a comma, for decimals or between thousands. Write"),
        ("7", "line 42: 1 fields, expected 2"),
        ('7,8 "\n7,9 "', "line 42: a field has a quote inside, but does not begin with one. Quote the field"),
    ],
)
def test_a_wrong_record_of_a_later_block_is_named(line: str, message: str, csv: Path) -> None:
    # one record spans two lines
    before = 'a,b\n"\n1",2\n' + "1,2\n" * 38
    with pytest.raises(DataError) as caught:
        with table_of(csv, f"{before}{line}\n1,2\n", features=["b"], block_bytes=16) as store:
            read_all(store)
    assert message in str(caught.value)


@pytest.mark.parametrize("pack", [False, True])
def test_excels_csv(pack: bool, tmp_path: Path) -> None:
    content = '\ufeffsep=;\r\nx;"y\nz"\r\n1;a\r\n"2";"b;c"\r\n'.encode()
    path = tmp_path / ("t.csv.gz" if pack else "t.csv")
    with table_of(path, gzip.compress(content) if pack else content, features=["x"], label="y\nz") as store:
        assert store.class_names == ("a", "b;c")
        assert read_all(store)["data"].tolist() == [[1], [2]]


def test_blocks_of_a_csv_file_are_ranges_of_whole_records(csv: Path) -> None:
    content = "n,text\n" + "".join(f'{i},"{"a" * (i % 7)}\n{i}"\n' for i in range(500))
    with table_of(csv, content, features=["n"], block_bytes=100) as store:
        assert len(store.blocks) > 50
        assert read_all(store)["data"][:, 0].tolist() == list(range(500))
        for block in store.blocks:
            part = content[block.offset : block.offset + block.length]
            assert part.endswith('"\n')


# -- Parquet -------------------------------------------------------------------------------------------------


def test_types_of_parquet(parquet: Path) -> None:
    columns = {
        "whole": pa.array([1, None, 3], pa.int64()),
        "half": pa.array([1.5, float("nan"), 2], pa.float16()),
        "exact": pa.array([Decimal("1.25"), Decimal("2.50"), Decimal("3.75")]),
        "flag": pa.array([True, False, True]),
        "kind": pa.array(["b", "a", "b"]).dictionary_encode(),
    }
    with parquet_of(parquet, columns, features=["*"], label="kind", missing=-1) as store:
        found = read_all(store)
        assert found["data"].tolist() == [[1, 1.5, 1.25, 1], [-1, -1, 2.5, 0], [3, 2, 3.75, 1]]
        assert (found["label"].tolist(), store.class_names) == ([1, 0, 1], ("a", "b"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([datetime.date(2020, 1, 1)] * 2), "column 'c' holds values of type date, expected numbers"),
        (pa.array([datetime.datetime(2020, 1, 1)] * 2), "column 'c' holds values of type timestamp, expected"),
        (pa.array([[[1]], [[2]]]), "column 'c' holds values of type list<"),
        (pa.array([b"a", b"b"]), "column 'c' holds values of type binary"),
        (pa.array([None, None]), "column 'c' has no values"),
        (pa.array([1.0, float("inf")]), "row group 0, record 1, column 'c': inf does not fit"),
        (pa.array([1, None]), "row group 0, record 1, column 'c': no value"),
    ],
)
def test_columns_of_parquet_that_are_refused(values: pa.Array, message: str, parquet: Path) -> None:
    with pytest.raises(DataError) as caught, parquet_of(parquet, {"c": values}, features=["c"]) as store:
        read_all(store)
    assert message in str(caught.value)


def test_labels_of_64_bits_are_refused(parquet: Path) -> None:
    with parquet_of(parquet, {"x": [1.0, 2.0], "y": [1, 2**32 + 3]}, label="y") as store:
        with pytest.raises(DataError, match="row group 0, record 1, column 'y': the label 4294967299 does not fit"):
            read_all(store)


@pytest.mark.parametrize("row_group_size", [1000, 300])
def test_large_row_groups_are_several_blocks(
    row_group_size: int, parquet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_reader, "DECODED_BYTES", 4 * 70)
    monkeypatch.setattr(table_reader, "DECODED_RECORDS", 1)
    monkeypatch.setattr(parquet_part, "BATCH_ROWS", 32)
    with parquet_of(parquet, {"x": np.arange(1000.0)}, row_group_size, features=["x"]) as store:
        # a row group that is somewhat larger is one block
        assert max(block.n for block in store.blocks) == {1000: 70, 300: 100}[row_group_size]
        assert read_all(store)["data"][:, 0].tolist() == list(range(1000))
        for block in (3, 1, 12, 4, 4):
            start = int(store.starts[block])
            expected = np.arange(start, start + store.blocks[block].n)
            np.testing.assert_array_equal(store.read_block(block)["data"][:, 0], expected)


def test_the_index_of_pandas_is_not_a_feature(parquet: Path) -> None:
    described = {b"pandas": json.dumps({"index_columns": ["key"]}).encode()}
    made = pa.table({"x": [1.0, 2.0], "key": [7, 8]})
    pq.write_table(made.replace_schema_metadata(described), str(parquet))
    with TableStore(str(parquet), missing=0) as store:
        assert store.table_facts.features == ("x",)
    with TableStore(str(parquet), features=["key"]) as store:
        assert read_all(store)["data"].tolist() == [[7], [8]]


# -- several files -------------------------------------------------------------------------------------------


def rows_of(store: TableStore) -> list[list[float]]:
    found: list[list[float]] = read_all(store)["data"].tolist()
    return found


def test_directories_of_spark_and_dask(tmp_path: Path) -> None:
    for i in range(11):
        pq.write_table(pa.table({"x": [float(i)]}), tmp_path / f"part.{i}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part.0.parquet.crc").write_bytes(b"crc")
    (tmp_path / "part.99.parquet").touch()
    with TableStore(str(tmp_path), features=["x"]) as store:
        assert rows_of(store) == [[i] for i in range(11)]
    (tmp_path / "_temporary").mkdir()
    with pytest.raises(DataError, match=r"has a directory _temporary\. The job that writes it has not ended"):
        TableStore(str(tmp_path), features=["x"])


def test_directories_of_csv_have_columns_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("y,x\n4,3\n")
    (tmp_path / "c.csv").write_text("y,x\n")
    with TableStore(str(tmp_path), features=["x", "y"]) as store:
        assert rows_of(store) == [[1, 2], [3, 4]]
    with TableStore(f"{tmp_path}/[ab].csv", features=["y"]) as store:
        assert rows_of(store) == [[2], [4]]
    (tmp_path / "d.csv").write_text("y,z\n5,6\n")
    with pytest.raises(
        DataError, match=r"d.csv: there is no column 'x', unlike in other files of the table. Columns: y, z."
    ):
        TableStore(str(tmp_path), features=["x", "y"])


def test_partitions_of_hive_are_columns(tmp_path: Path) -> None:
    for year, place, x in ((2019, "Par%20is", 1.0), (2020, "__HIVE_DEFAULT_PARTITION__", 2.0)):
        folder = tmp_path / f"year={year}" / f"place={place}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [x]}), folder / "part-0.snappy.parquet")
    options = {"features": ["year", "x", "place"], "categories": {"place": ["", "Par is"]}}
    with TableStore(str(tmp_path), **options) as store:
        assert rows_of(store) == [[2019, 1, 0, 1], [2020, 2, 1, 0]]


def test_one_partition_is_read_as_the_whole_table_is(tmp_path: Path) -> None:
    """Keys are read by their names in a partition, in a file of it and in files of a pattern, where they are named."""
    for zone, x in (("7", 1.0), ("b", 2.0)):
        folder = tmp_path / "run=3" / f"zone={zone}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [x]}), folder / "part-0.parquet")
    options = {"features": ["x", "zone"], "categories": {"zone": []}}
    with TableStore(f"{tmp_path}/run=3", **options) as store:
        facts = store.table_facts.to_dict()
        assert rows_of(store) == [[1, 1, 0], [2, 0, 1]]
    for url, expected in (
        ("run=3/zone=7", [[1, 1, 0]]),
        ("run=3/zone=7/part-0.parquet", [[1, 1, 0]]),
        ("run=3/zone=b", [[2, 0, 1]]),
        ("run=3/*/part-0.parquet", [[1, 1, 0], [2, 0, 1]]),
        ("run=3/zone=[b]/*", [[2, 0, 1]]),
    ):
        with TableStore(f"{tmp_path}/{url}", **options, facts=facts) as store:
            assert rows_of(store) == expected
    # what nobody names is no column, and a file's own column comes first
    with TableStore(f"{tmp_path}/run=3/zone=7") as store:
        assert rows_of(store) == [[1]]
    pq.write_table(pa.table({"x": [1.0], "run": [5.0]}), tmp_path / "run=3" / "own.parquet")
    with TableStore(f"{tmp_path}/run=3/own.parquet", features=["run", "x"]) as store:
        assert rows_of(store) == [[5, 1]]
    kept = read_columns(f"{tmp_path}/run=3/zone=b", ["zone", "x", "run"])[0]
    assert kept.to_pydict() == {"zone": ["b"], "x": [2.0], "run": [3]}


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["2024", "__HIVE_DEFAULT_PARTITION__", "-7"], [2024, None, -7]),
        (["0.5", "2"], [0.5, 2.0]),
        (["07", "12"], ["07", "12"]),
        (["2", "b"], ["2", "b"]),
        (["18446744073709551615"], ["18446744073709551615"]),
    ],
)
def test_types_of_kept_keys(tmp_path: Path, texts: list[str], values: list[Any]) -> None:
    """Numbers that lose nothing, as pyarrow infers them, else texts."""
    for text in texts:
        (tmp_path / f"key={text}").mkdir()
        pq.write_table(pa.table({"x": [text]}), tmp_path / f"key={text}" / "0.parquet")
    kept = read_columns(str(tmp_path), ["x", "key"])[0].to_pydict()
    assert dict(zip(kept["x"], kept["key"], strict=True)) == dict(zip(texts, values, strict=True))


def test_files_of_other_types_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": ["a"]}), tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"1.parquet: column 'x' is of type string, but of type number in other"):
        TableStore(str(tmp_path), features=["x"])


def test_a_table_that_is_not_local() -> None:
    fs.write_atomic("memory://fruit.csv", FRUIT.encode())
    with TableStore("memory://fruit.csv", features=["id"], label="kind") as store:
        assert store.remote
        assert rows_of(store) == [[1], [2], [3]]


def test_several_labels(csv: Path, parquet: Path) -> None:
    options: dict[str, Any] = {"features": ["weight"], "label": ["kind", "colour", "id"], "missing": "skip"}
    with table_of(csv, **options) as store:
        assert read_all(store)["label"].tolist() == [[0, 0, 1], [1, 1, 2], [0, 0, 3]]
        assert store.class_names == ()
        assert dict(store.table_facts.labels) == {
            "kind": ("apple", "pear, green"),
            "colour": ("red", "yellow"),
            "id": (),
        }
        facts = TableFacts.from_dict(json.loads(json.dumps(store.table_facts.to_dict(), sort_keys=True)))
        assert list(facts.labels) == ["kind", "colour", "id"]
        assert pickle.loads(pickle.dumps(store)).schema == store.schema
        indices = {column.name: column.index for column in store.table_columns if column.field == "label"}
        assert indices == {"kind": 0, "colour": 1, "id": 2}
    # names are those of the training data, in any order of labels
    columns = {"weight": [1.0], "colour": ["yellow"], "kind": ["apple"]}
    with parquet_of(parquet, columns, features=["weight"], label=["colour", "kind"], facts=facts.to_dict()) as store:
        assert read_all(store)["label"].tolist() == [[1, 0]]
    with pytest.raises(DataError, match=r"column 'size' is no label of the training data. Labels: kind, colour, id"):
        parquet_of(
            parquet, {**columns, "size": [1]}, features=["weight"], label=["kind", "size"], facts=facts.to_dict()
        )
    with pytest.raises(DataError, match=r"column 'weight' is in features and in target. Expected each column once"):
        table_of(csv, features=["weight"], target=["weight"])


def test_weights_are_a_column(csv: Path) -> None:
    csv.write_text("a,b,w\n1,0,2\n2,1,0.5\n3,0,\n4,1,0\n")
    with TableStore(str(csv), label="b", weight="w", missing="skip") as store:
        found = store.read_block(0)
        assert store.table_facts is not None and store.table_facts.names == ("a",)
        assert found["data"].tolist() == [[1], [2], [4]] and found["weight"].tolist() == [[2], [0.5], [0]]
    with TableStore(str(csv), label="b", weight="w", has_label=False) as store:
        assert set(store.schema) == {"data"}
    for wrong, shown in (("-1", "the weight -1"), ("inf", "does not fit"), ("", "no value")):
        csv.write_text(f"a,b,w\n1,0,2\n2,1,{wrong}\n")
        with TableStore(str(csv), label="b", weight="w") as store, pytest.raises(DataError, match=shown) as caught:
            store.read_block(0)
        assert "line 3, column 'w'" in str(caught.value)


def test_facts_that_were_stored_with_one_label() -> None:
    stored = {"features": ["a"], "means": {}, "categories": {}, "classes": ["x", "y"], "encoding": "one_hot"}
    facts = TableFacts.from_dict(stored)
    assert facts.classes == facts.classes_of("kind") == ("x", "y")


def test_numbers_are_no_vectors_however_many_records_there_are() -> None:
    encoder = TableEncoder(TableSpec(("x",)), TableFacts(("x",), widths={"x": 3}))
    with pytest.raises(DataError, match=r"column 'x': values of type double, expected vectors of 3"):
        encoder.encode(pa.table({"x": [1.0, 2.0, 3.0]}), lambda row: f"row {row}")


def test_booleans_alone_are_no_header(csv: Path) -> None:
    with table_of(csv, "flag\nTrue\nfalse\n", features="flag") as store:
        assert read_all(store)["data"].tolist() == [[1], [0]]


def test_accents_in_directories_may_be_written_in_two_ways(tmp_path: Path) -> None:
    composed, marked = "r\u00e9gion", "re\u0301gion"
    # both forms occur in one table
    for i, (key, value) in enumerate(((marked, "Orl\u00e9ans"), (composed, "Orle\u0301ans"), (composed, "Pau"))):
        folder = tmp_path / "x" / f"{key}={value}"
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text(f"a,b\n{i},0\n")
    places = [str(tmp_path / "x"), str(tmp_path / "x" / f"{marked}=Orl\u00e9ans")]
    for name, place in ((name, place) for name in (composed, marked) for place in places):
        with TableStore(place, features=["a", name], categories={name: ["Pau", "Orl\u00e9ans"]}) as store:
            rows = sorted(read_all(store)["data"].tolist())
        assert rows == [[0, 0, 1], [1, 0, 1], [2, 1, 0]][: 1 if place == places[1] else None]
        # no column of the file itself is read
        kept, _ = read_columns(place, [name])
        assert (kept.column_names, len(kept)) == ([name], len(rows))
