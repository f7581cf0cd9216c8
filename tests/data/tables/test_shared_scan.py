"""The scan of a large table of text, done apart and kept in the cache: then nobody scans the table again."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from singa_dask.data.stores import open_store
from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.data.tables.files.json_part import JsonPart
from singa_dask.data.tables.shared_scan import UnscannedError, forbid_scans
from singa_dask.errors import DataError
from tests.contracts.records import assert_same, read_all

N = 3000
OPTIONS: dict[str, Any] = {"label": "kind", "block_bytes": 1 << 12}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))


def written(folder: Path, form: str) -> str:
    """Return a table of three files, some of whose texts have line breaks in CSV."""
    folder.mkdir()
    frame = pd.DataFrame({"a": np.arange(N) / 7, "note": ["two\nlines"] * N, "kind": ["pear", "fig", "fig"] * (N // 3)})
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        rows = frame.iloc[part]
        if form == "csv":
            rows.to_csv(folder / f"{i}.csv", index=False)
        else:
            rows.to_json(folder / f"{i}.jsonl", orient="records", lines=True)
    return str(folder)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_scan_that_was_done_apart_is_not_done_again(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, calm = written(tmp_path / "table", form), written(tmp_path / "calm", form)
    with open_store(calm, "table", **OPTIONS) as store:
        expected, n_blocks = read_all(store), len(store.blocks)
    with forbid_scans(1), pytest.raises(UnscannedError) as refused:
        open_store(url, "table", **OPTIONS)
    scan = pickle.loads(pickle.dumps(refused.value.scan))
    assert scan.files == tuple(f"{url}/{i}.{form}" for i in range(3))
    checks: list[None] = []
    scan.keep([scan.runs(file, lambda: checks.append(None)) for file in range(3)])
    assert len(checks) == n_blocks > 20

    part = CsvPart if form == "csv" else JsonPart
    whole = part.runs
    # the first run tells the kinds of the columns; whoever scans again finds no other
    monkeypatch.setattr(part, "runs", lambda opened, *how: itertools.islice(whole(opened, *how), 1))
    # the part to train on and the one to test on have one scan
    with forbid_scans(1), open_store(url, "table", **OPTIONS) as store:
        assert_same(read_all(store), expected)
    split = {"part": "test", "test_share": 0.5, "seed": 1}
    with forbid_scans(1), open_store(url, "table", **OPTIONS, split=split) as store:
        assert 0.4 * N < store.count < 0.6 * N


def test_a_short_table_is_scanned_where_it_is_opened(tmp_path: Path) -> None:
    with forbid_scans(1 << 28), open_store(written(tmp_path / "table", "csv"), "table", **OPTIONS) as store:
        assert store.count == N


def test_a_wrong_record_is_named_by_the_scan(tmp_path: Path) -> None:
    url = written(tmp_path / "table", "csv")
    with open(f"{url}/1.csv", "a") as file:
        file.write('1,"open,fig\n')
    with forbid_scans(1), pytest.raises(UnscannedError) as refused:
        open_store(url, "table", **OPTIONS)
    with pytest.raises(DataError, match=r"1\.csv.*quote"):
        refused.value.scan.runs(1)
