"""Parts of a store to train and to test on: each record in one of them, the same in every process and format."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from PIL import Image

from singa_dask.data.split import SplitConf
from singa_dask.data.stores import Store, open_store
from singa_dask.data.stores.split_store import SplitStore
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError
from tests.contracts.records import SUFFIX, floats, read_all, written

N = 1000
RULES: dict[str, dict[str, Any]] = {"share": {"test_share": 0.25, "seed": 3}, "from": {"test_from": 700}}
FRAME = pd.DataFrame(
    {
        "number": np.arange(N, dtype=float),
        "kind": [f"k{i}" if i > 990 else "common" for i in range(N)],
        "class": ["cat" if i % 3 else "dog" for i in range(N)],
    }
)
WRITERS: dict[str, Callable[[Path], object]] = {
    "csv": lambda path: FRAME.to_csv(path, index=False),
    "parquet": lambda path: FRAME.to_parquet(path, row_group_size=77),
    "jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
}


def parts_of(rule: dict[str, Any]) -> tuple[SplitConf, SplitConf]:
    return SplitConf(part="train", **rule), SplitConf(part="test", **rule)


def numbers_of(conf: SplitConf, size: int = N) -> set[int]:
    """Return the numbers of the records of a part, asked for some at a time."""
    found = set[int]()
    for first in range(0, N, size):
        found |= {int(row) + first for row in conf.rows(first, min(size, N - first))}
    return found


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", [1, 7, 256])
def test_each_record_is_in_one_part_however_they_are_read(rule: dict[str, Any], size: int) -> None:
    train, test = parts_of(rule)
    assert numbers_of(train) == numbers_of(train, size)
    assert numbers_of(test) == numbers_of(test, size)
    assert numbers_of(train) ^ numbers_of(test) == set(range(N))


def test_the_share_and_the_seed_decide() -> None:
    tests = [set(SplitConf(part="test", test_share=0.2, seed=seed).rows(0, 100_000).tolist()) for seed in range(3)]
    # four standard deviations of a draw
    assert all(abs(len(each) - 20_000) < 4 * (100_000 * 0.2 * 0.8) ** 0.5 for each in tests)
    assert abs(len(tests[0] & tests[1]) - 4000) < 4 * (100_000 * 0.04 * 0.96) ** 0.5
    assert set(SplitConf(part="test", test_share=0.1).rows(0, 100_000).tolist()) < tests[0]


@pytest.mark.parametrize("given", [{}, {"test_share": 0.2, "test_from": 3}, {"test_share": 1}, {"test_from": -1}])
def test_one_rule_is_expected(given: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, ValueError)):
        SplitConf(part="test", **given)


def rows_where(store: Store, whole: Arrays, numbers: npt.NDArray[np.int64]) -> None:
    """Check that a store has these records of all, however it is asked."""
    expected = {name: values[numbers] for name, values in whole.items()}
    for name, values in read_all(store).items():
        np.testing.assert_array_equal(values, expected[name])
    assert store.count == len(numbers)
    labels = np.concatenate([store.read_labels(block.id) for block in store.blocks])
    np.testing.assert_array_equal(labels, expected["label"])
    last = store.blocks[-1]
    some = np.array([last.n - 1, 0])
    for name, values in store.read_rows(last.id, some).items():
        np.testing.assert_array_equal(values, expected[name][-last.n :][some])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("backend", SUFFIX)
def test_a_part_of_records_in_every_format(tmp_path: Path, backend: str, rule: dict[str, Any]) -> None:
    url = written(tmp_path, backend, floats(N))
    with open_store(url) as store:
        whole = read_all(store)
    for conf in parts_of(rule):
        with SplitStore(open_store(url), conf) as part:
            rows_where(part, whole, np.array(sorted(numbers_of(conf))))
            again = pickle.loads(pickle.dumps(part))
            assert again.count == part.count and again.fingerprint == part.fingerprint
            again.close()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("suffix", WRITERS)
def test_a_table_learns_from_its_part_alone(tmp_path: Path, suffix: str, rule: dict[str, Any]) -> None:
    path = tmp_path / f"table.{suffix}"
    WRITERS[suffix](path)
    options: dict[str, Any] = {"label": "class", "features": ["number", "kind"], "categories": {"kind": []}}
    options |= {"missing": "mean", "block_bytes": 2000}
    train, test = parts_of(rule)
    numbers = sorted(numbers_of(train))
    with TableStore(str(path), split=train.model_dump(), **options) as store:
        rest = FRAME.iloc[numbers]
        assert store.table_facts is not None
        assert store.table_facts.means["number"] == pytest.approx(rest["number"].mean())
        kinds = sorted(rest["kind"].unique())
        assert list(store.table_facts.categories["kind"]) == kinds
        found = read_all(store)
        np.testing.assert_array_equal(found["data"][:, 0], rest["number"])
        np.testing.assert_array_equal(found["label"], rest["class"] == "dog")
        facts = store.table_facts.to_dict()
    known = FRAME[FRAME["kind"].isin(kinds)]
    chosen = [number for number in sorted(numbers_of(test)) if number in known.index]
    if len(chosen) == len(numbers_of(test)):
        with TableStore(str(path), split=test.model_dump(), facts=facts, **options) as store:
            np.testing.assert_array_equal(read_all(store)["data"][:, 0], FRAME["number"].iloc[chosen])
    else:
        with (
            pytest.raises(DataError, match="k99"),
            TableStore(str(path), split=test.model_dump(), facts=facts, **options) as store,
        ):
            read_all(store)


def test_wrong_values_count_in_the_part_that_has_them(tmp_path: Path) -> None:
    lines = [json.dumps({"a": i, "label": i % 2}) for i in range(100)]
    lines[10] = lines[90] = '{"a": "no number", "label": 0}'
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join(lines) + "\n")
    parts = [{"part": part, "test_from": 80} for part in ("train", "test")]
    for split, row, line in zip(parts, (10, 10), (11, 91), strict=True):
        with TableStore(str(path), features=["a"], split=split, tolerant=True) as store:
            arrays, bad = store.salvage(0)
            assert list(bad) == [row] and f"line {line}" in bad[row]
            good = np.delete(arrays["data"][:, 0], row)
            expected = np.arange(100)[80:] if split["part"] == "test" else np.arange(80)
            np.testing.assert_array_equal(good, np.delete(expected, row))


def test_a_part_without_records_is_refused(tmp_path: Path) -> None:
    url = written(tmp_path, "arrow", floats(10))
    store = open_store(url)
    with pytest.raises(DataError, match="none of its 10 records are in the test part of split"):
        SplitStore(store, SplitConf(part="test", test_from=10))
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="no records without missing values in the test part of split"):
        TableStore(str(tmp_path / "t.csv"), label="class", split={"part": "test", "test_from": N})


def test_pictures_have_their_files(tmp_path: Path) -> None:
    for i in range(20):
        path = tmp_path / "pictures" / ("odd" if i % 2 else "even") / f"{i:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), i).save(path)
    train, test = parts_of(RULES["share"])
    with open_store(str(tmp_path / "pictures"), channels=1) as store:
        files = store.record_files(0, 20)
    for conf in (train, test):
        with SplitStore(open_store(str(tmp_path / "pictures"), channels=1), conf) as part:
            names = part.record_files(0, part.count)
            assert names == [files[row] for row in conf.rows(0, 20)]
            assert part.record_files(1, 3) == names[1:3]
            assert [int(Path(name).stem) for name in names] == read_all(part)["pixel"][:, 0, 0, 0].tolist()
