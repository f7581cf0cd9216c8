"""Tables of which ``init`` looks at a part: how many records there are, what is found, and how nets train on them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from singa_dask.cli import init_columns
from singa_dask.cli.init_job import training_of, write_job
from singa_dask.cli.init_records import OutputSurvey, RecordSurvey
from singa_dask.conf import load
from singa_dask.layers.store_conf import StoreConf
from tests.cli.conftest import Call

N = 6000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new directory, where tables of more than 64 KiB are large."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("MAX_BYTES", 1 << 16), ("SEEN_BYTES", 1 << 15), ("MIN_BYTES", 1 << 10)):
        monkeypatch.setattr(init_columns, name, value)


def table() -> pd.DataFrame:
    random = np.random.default_rng(2)
    frame = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=N, freq="h").astype(str)})
    frame["a"], frame["b"] = random.normal(size=(2, N))
    frame["shop"] = random.choice(["north", "south", "west"], N)
    # one shop is in the last file alone
    frame.loc[5 * N // 6 :, "shop"] = random.choice(["north", "east"], N // 6)
    return frame.assign(kind=np.where(frame.a > 0, "high", "low"))


def write(frame: pd.DataFrame, form: str) -> None:
    Path("table").mkdir()
    for i in range(6):
        part = frame[i * N // 6 : (i + 1) * N // 6]
        if form == "csv":
            part.to_csv(f"table/{i}.csv", index=False)
        elif form == "jsonl":
            part.to_json(f"table/{i}.jsonl", orient="records", lines=True)
        else:
            part.to_parquet(f"table/{i}.parquet", row_group_size=N // 24)


def look(call: Call, *options: str) -> tuple[str, int, int]:
    """Return what `init` says, and how many records it says that there are, and were looked at."""
    result = call("init", "table", "--label", "kind", *options)
    assert result.exit_code == 0, result.output
    found = re.search(r"table: about (\d+) \w+ records.*\n(\d+) of them, from all its files, were", result.stderr)
    assert found, result.stderr
    return result.stderr, int(found[1]), int(found[2])


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_all_parts_are_looked_at(call: Call, form: str) -> None:
    write(table(), form)
    _, n, seen = look(call, "--drop", "day")
    assert n == pytest.approx(N, rel=0.02)
    assert 0 < seen < 0.6 * N
    conf = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None
    assert conf.categories == {"shop": ["east", "north", "south", "west"], "kind": ["high", "low"]}
    assert call("run", "job.yaml", "--set", "train_steps=2", "--run-dir", "run", "--quiet").exit_code == 0


def test_the_last_fifth_of_all_days_is_to_test_on(call: Call) -> None:
    write(table().drop(columns="shop"), "csv")
    said, n, _ = look(call)
    conf = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None and conf.split is not None
    assert conf.split.test_from == pytest.approx(0.8 * N, rel=0.02)
    assert f"to test on: about the last {n - conf.split.test_from} by day; chosen as they are read" in said


def survey(n: int, width: int = 20) -> RecordSurvey:
    return RecordSurvey("x.csv", "x.csv", "csv", (width,), (OutputSurvey("y", ""),), n, 1, "columns")


def test_batches_grow_with_tables() -> None:
    sizes = [training_of(survey(n), "mlp") for n in (100_000, 200_001, 10**6, 10**7, 10**9)]
    assert [batch for batch, _ in sizes] == [64, 192, 768, 3072, 3072]
    # each record is read 20 times, or as many as make 5,000,000; of many, twice
    read = [batch * steps for batch, steps in sizes]
    assert read == pytest.approx([2e6, 4e6, 5e6, 2e7, 2e9], rel=0.01)
    # a batch of wide records takes 4 MiB
    assert training_of(survey(10**7, 20_000), "mlp")[0] == 96
    assert training_of(survey(10**7, 2_000), "mlp")[0] == 384


def test_records_of_large_tables_are_mixed_in_a_few_blocks() -> None:
    large, small = (write_job(survey(n), "mlp", "job.yaml", "init") for n in (10**6, 1000))
    assert ("shuffle: block" in large, "window: 4" in large) == (True, True)
    assert ("shuffle: full" in small, "window" in small) == (True, False)
