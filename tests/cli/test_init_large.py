"""Tables of which ``init`` looks at a part: how many records there are, what is found, and how nets train on them."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from singa_dask.cli.init import record_job
from singa_dask.cli.init.job_file import write_job
from singa_dask.cli.init.record_job import training_of
from singa_dask.conf import load
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.survey import read_table, table_survey
from singa_dask.survey.counts import CountFile
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.results import OutputSurvey, RecordSurvey
from singa_dask.survey.survey import survey
from tests.cli.conftest import Call
from tests.runtime.processes import small_cluster

N = 6000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a new directory, where tables of more than 64 KiB are large."""
    monkeypatch.chdir(tmp_path)
    sizes = {"MAX_BYTES": 1 << 16, "SEEN_BYTES": 1 << 15, "MIN_BYTES": 1 << 10}
    for name, value in sizes.items():
        monkeypatch.setattr(read_table, name, value)
    monkeypatch.setattr(table_survey, "PART_BYTES", 1 << 13)


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
    where = ", in blocks at equal distances" if "parquet records" in result.stderr else ": the first of each file"
    found = re.search(rf"table: about (\d+) \w+ records.*\n(\d+) of them were read{where}\n", result.stderr)
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


def known_of(form: str, options: SurveyOptions) -> tuple[Any, ...]:
    """Return what `init` knows of all records of a table."""
    found = survey("table", options, "")
    assert isinstance(found, RecordSurvey)
    notes = sorted((note.column, note.n, note.done) for note in found.notes if note.done != "left out")
    kept = {key: found.reading.get(key) for key in ("missing", "unlabelled", "categories")}
    return found.n, [(each.names, each.counts, each.mean, each.std) for each in found.outputs], notes, kept


@pytest.mark.parametrize(
    ("output", "form"), [("kind", "csv"), ("b", "csv"), ("stars", "csv"), ("kind", "jsonl"), ("stars", "parquet")]
)
def test_tasks_count_all_records(output: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table().drop(columns="day")
    # what the end of the last file alone has
    frame.loc[N - 3 :, ["shop", "kind", "stars", "a"]] = ["airport", "other", 9, np.nan]
    frame["stars"] = frame.stars.fillna(pd.Series(np.arange(N) % 3)).astype(int)
    frame.loc[N - 1, "shop"] = frame.loc[N - 5, output] = None
    write(frame, form)
    options = SurveyOptions(**{"target" if output == "b" else "label": (output,)}, run=backwards)
    counted = known_of(form, options)
    monkeypatch.setattr(read_table, "MAX_BYTES", 1 << 28)
    n, outputs, notes, kept = known_of(form, replace(options, run=None))
    kept["categories"] = {**({"kind": list(outputs[0][0])} if output == "kind" else {}), **kept["categories"]}
    if output == "b":
        means = [values for _, _, *values in outputs]
        assert [values for _, _, *values in counted[1]] == [pytest.approx(each, rel=1e-12) for each in means]
        outputs, counted = [], (counted[0], [], *counted[2:])
    assert counted == (n, outputs, notes, kept)


def test_tasks_count_classes_that_are_words_for_missing_values() -> None:
    frame = table().drop(columns="day").replace({"kind": {"low": "NA"}})
    write(frame, "csv")
    found = survey("table", SurveyOptions(label=("last",), classes=("high", "NA"), run=backwards), "")
    assert isinstance(found, RecordSurvey)
    assert (
        dict(zip(found.outputs[0].names, found.outputs[0].counts, strict=True)) == frame.kind.value_counts().to_dict()
    )


def test_a_word_among_numbers_that_tasks_meet_is_refused_with_the_option() -> None:
    frame = table().drop(columns="day")
    frame["a"] = frame.a.astype(object)
    frame.loc[N - 1, "a"] = "unknown"
    write(frame, "csv")
    options = SurveyOptions(label=("kind",), run=backwards)
    said = r"table/5\.csv, line 1001, column 'a': 'unknown' is not a number\. If it means .*, add it to --na-values\."
    with pytest.raises((ConfigError, DataError), match=said):
        survey("table", options, "")
    found = survey("table", replace(options, na_values=("unknown",)), "")
    assert isinstance(found, RecordSurvey)
    assert [(note.column, note.n) for note in found.notes] == [("a", 1)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "which column is the label"),
        ({"label": ("kind",), "drop": ("dya",)}, "no column 'dya' for --drop"),
        ({"label": ("kind",), "split_by": "shops"}, "no column 'shops' for --split-by"),
    ],
)
def test_what_is_not_clear_is_asked_before_the_records_are_counted(options: dict[str, Any], said: str) -> None:
    write(table(), "csv")

    def run(tasks: Sequence[CountFile], about: int) -> Iterator[Any]:
        raise AssertionError("they are counted")

    with pytest.raises((ConfigError, DataError), match=said):
        survey("table", SurveyOptions(**options, run=run), "")


@pytest.mark.cluster
@pytest.mark.long
def test_dask_workers_count_all_records(call: Call) -> None:
    frame = table().drop(columns="day")
    frame.loc[N - 1, "shop"] = "airport"
    write(frame, "csv")
    with small_cluster(1, 2) as cluster:
        result = call("init", "table", "--label", "kind", "--scheduler", cluster.scheduler_address)
    assert result.exit_code == 0, result.output
    assert f"table: {N} csv records" in result.stderr
    assert "all of them were counted by the Dask workers" in result.stderr
    conf = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None and conf.categories["shop"] == ["airport", "east", "north", "south", "west"]
    assert cluster.scheduler_address not in Path("job.yaml").read_text()


def backwards(tasks: Sequence[CountFile], about: int) -> Iterator[Any]:
    """Run tasks as workers may: in any order, and in other processes."""
    return (pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(task))())) for task in reversed(tasks))


def test_the_last_fifth_of_all_days_is_to_test_on(call: Call) -> None:
    write(table().drop(columns="shop"), "csv")
    said, n, _ = look(call)
    conf = load("job.yaml").job.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None and conf.split is not None
    assert conf.split.test_from == pytest.approx(0.8 * N, rel=0.02)
    assert f"to test on: about the last {n - conf.split.test_from} by day; chosen as they are read" in said


def made_up(n: int, width: int = 20) -> RecordSurvey:
    return RecordSurvey("x.csv", "x.csv", "csv", (width,), (OutputSurvey("y", ""),), n, 1, "columns")


def test_batches_grow_with_tables() -> None:
    sizes = [training_of(made_up(n), "mlp") for n in (50_000, 100_000, 240_000, 10**6, 10**7, 10**9)]
    assert [batch for batch, _ in sizes] == [64, 120, 312, 1272, 3072, 3072]
    # each record is read 20 times, or the less often, the more there are; of many, twice
    read = [batch * steps for batch, steps in sizes]
    assert read == pytest.approx([1e6, 1.414e6, 2.19e6, 4.472e6, 2e7, 2e9], rel=0.01)
    # a batch of wide records takes about 4 MiB
    assert training_of(made_up(10**7, 20_000), "mlp")[0] == 96
    assert training_of(made_up(10**7, 2_000), "mlp")[0] == 528


def test_the_training_grows_with_a_table_without_jumps() -> None:
    sizes = [training_of(made_up(int(n)), "mlp") for n in np.geomspace(50_000, 5e6, 200)]
    for (batch, steps), (next_batch, next_steps) in pairwise(sizes):
        # by 24 records, or by 2 % for each table that is larger by 2 %
        assert 0 <= next_batch - batch <= max(24, 0.05 * batch)
        assert batch * steps == pytest.approx(next_batch * next_steps, rel=0.03)
    assert max(steps for _, steps in sizes) < 16_000
    assert all(batch % 24 == 0 for batch, _ in sizes[1:])


def test_large_tables_drop_less() -> None:
    texts = [write_job(made_up(n), "mlp", "job.yaml", "init") for n in (5_000, 50_000, 80_000, 10**6)]
    found = [re.search(r"dropout_ratio: ([\d.]+)", text) for text in texts]
    assert [float(each[1]) if each else 0.0 for each in found] == [0.1, 0.1, 0.06, 0.0]


def test_records_of_large_tables_are_mixed_in_a_few_blocks() -> None:
    large, small = (write_job(made_up(n), "mlp", "job.yaml", "init") for n in (10**6, 1000))
    assert ("shuffle: block" in large, "window: 48" in large) == (True, True)
    assert ("shuffle: full" in small, "window" in small) == (True, False)
    for group_mb, window in ((1, 48), (40, 3), (1000, 1)):
        groups = replace(made_up(10**6), group_bytes=group_mb << 20)
        assert f"window: {window}\n" in write_job(groups, "mlp", "job.yaml", "init")


def test_a_net_with_many_records_to_test_on_is_tested_once(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_job, "MAX_TESTED", 10)
    table().head(200).drop(columns="day").to_csv("small.csv", index=False)
    assert call("init", "small.csv", "--label", "kind", "-o", "job.yaml").exit_code == 0
    assert call("run", "job.yaml", "--set", "disp_freq=0", "--run-dir", "run", "--quiet").exit_code == 0
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line.get("phase") == "test"] == [load("job.yaml").job.train_steps]
