"""Jobs that train on one part of a store and test on the other: as on two files, that hold the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import singa_dask as sd
from singa_dask.data.split import SplitConf
from singa_dask.errors import ConfigError
from tests.jobs.conftest import KEYS

N = 400
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(5, 2, N), "b": RNG.normal(-1, 9, N)})
FRAME["label"] = np.where(FRAME["a"] + FRAME["b"] / 9 > 5, "high", "low")
FRAME["owner"] = RNG.integers(0, 60, N)
RULE = {"test_share": 0.3, "seed": 5}
KEY = {**RULE, "key": "owner"}
STORE = {"batchsize": 20, "features": ["a", "b"], "label": ["label"], "shape": [2], "standardise": True}


def job(train: dict[str, Any], test: dict[str, Any], **keys: Any) -> sd.Job:
    layers = [
        sd.layer("RecordInput", name="data", include=["train"], store_conf={**STORE, **train}),
        sd.layer("RecordInput", name="data", include=["test"], store_conf={**STORE, **test}),
        sd.layer("InnerProduct", num_output=2),
        sd.layer("SoftmaxLoss", srclayers=["innerproduct", "data"]),
    ]
    return sd.Job(sd.Net(layers), **{"train_steps": 30, "disp_freq": 1, "test_freq": 10, **KEYS, **keys})


def part(url: Path, name: str, **changes: Any) -> dict[str, Any]:
    return {"path": str(url), "split": {"part": name, **RULE, **changes}}


@pytest.mark.parametrize("cluster", [{}, {"nworkers_per_group": 2, "nworkers_per_procs": 2}], ids=["one", "two"])
@pytest.mark.parametrize("rule", [RULE, KEY], ids=["records", "owners"])
def test_a_part_is_as_a_file_of_its_own(tmp_path: Path, cluster: dict[str, Any], rule: dict[str, Any]) -> None:
    whole, files = tmp_path / "whole.parquet", {name: tmp_path / f"{name}.parquet" for name in ("train", "test")}
    FRAME.to_parquet(whole, row_group_size=64)
    for name, file in files.items():
        conf = SplitConf.model_validate({"part": name, **rule})
        rows = conf.of_keys(pa.array(FRAME["owner"].astype(str))) if conf.key else conf.rows(0, N)
        FRAME.iloc[rows].to_parquet(file, row_group_size=64)
    made = {
        "parts": job(part(whole, "train", **rule), part(whole, "test", **rule), cluster=cluster),
        "files": job({"path": str(files["train"])}, {"path": str(files["test"])}, cluster=cluster),
    }
    runs = {kind: sd.train(each, run_dir=str(tmp_path / kind), progress=False) for kind, each in made.items()}
    for phase, name in (("train", "loss"), ("test", "accuracy"), ("test", "loss")):
        histories = [run.history for run in runs.values()]
        found = [each[each["phase"] == phase][name].to_numpy() for each in histories]
        assert len(found[0]) > 2
        np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    # new records are read whole
    assert len(sd.predict(runs["parts"], str(whole))) == N
    # and need no key
    FRAME[["a", "b"]].to_csv(tmp_path / "new.csv", index=False)
    assert len(sd.predict(runs["parts"], str(tmp_path / "new.csv"))) == N


@pytest.mark.parametrize(
    "test",
    [
        {"path": "whole.csv"},
        part(Path("whole.csv"), "test", seed=6),
        part(Path("whole.csv"), "test", test_share=0.2),
        part(Path("whole.csv"), "test", **KEY),
    ],
    ids=["all", "another seed", "another share", "a key"],
)
def test_a_test_on_records_that_were_trained_on_is_refused(
    tmp_path: Path, test: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("whole.csv", index=False)
    with pytest.raises(ConfigError, match=r"split: another layer reads another part"):
        sd.train(job(part(Path("whole.csv"), "train"), test), run_dir="run", progress=False)
