"""Gaps and unknown categories in new records: filled alike by the command, Python and a server, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import singa_dask as sd
from singa_dask import serving
from singa_dask.cli.main import main
from singa_dask.errors import ConfigError, DataError
from singa_dask.serving import Limits, ModelServer
from tests.jobs.conftest import KEYS
from tests.serving.conftest import ask

LEARNED = pd.DataFrame({"a": np.linspace(-1, 2, 40), "key": ["x", "y"] * 20, "kind": ["p", "q", "q", "p"] * 10})
NEW = LEARNED[["a", "key"]].head(6).assign(a=[0.1, 0.2, None, 0.4, None, 0.6], key=["x", "z", "y", None, "y", "x"])


def trained(folder: Path, **reading: Any) -> str:
    """Return a run of a net of the table whose job refuses gaps and unknown categories."""
    LEARNED.to_csv(folder / "train.csv", index=False)
    store = {"path": str(folder / "train.csv"), "batchsize": 8, "shape": [3], "standardise": True, "label": "kind"}
    store |= {"features": ["a", "key"], "categories": {"key": []}, **reading}
    layers = [
        sd.layer("CSVInput", name="data", store_conf=store),
        sd.layer("InnerProduct", name="fc", num_output=2),
        sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
    ]
    sd.train(sd.Job(sd.Net(layers), train_steps=5, **KEYS), run_dir=str(folder / "run"), progress=False)
    return str(folder / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("gaps"))


@pytest.mark.parametrize("missing", ["mean", 0.25])
def test_filled_values_have_the_bits_of_the_command(run: str, tmp_path: Path, missing: str | float) -> None:
    NEW.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", f"{run}/job.yaml", "--init-from", run, "--data", str(tmp_path / "new.csv"), "--proba"]
    command += ["--missing", str(missing), "--unknown", "ignore", "--out", str(tmp_path / "out.parquet")]
    assert CliRunner().invoke(main, command).exit_code == 0
    wanted = pd.read_parquet(tmp_path / "out.parquet").select_dtypes("float").to_numpy().astype(np.float32)
    assert wanted.shape == (6, 2)
    reading: dict[str, Any] = {"missing": missing, "unknown": "ignore"}
    model, strict = sd.load_model(run, **reading), sd.load_model(run)
    found = [
        model.predict_proba(NEW),
        sd.predict(model, NEW, proba=True).to_numpy(),
        sd.predict(model, tmp_path / "new.csv", proba=True),
        *(sd.predict(each, tmp_path / "new.csv", proba=True, **reading) for each in (run, strict)),
        *(sd.predict(each, NEW, proba=True, **reading).to_numpy() for each in (run, strict)),
        sd.predict(run, dd.from_pandas(NEW, npartitions=2), proba=True, **reading).compute(scheduler="sync").to_numpy(),
    ]
    records = NEW.astype(object).where(NEW.notna(), None).to_dict("records")
    with ModelServer(model, Limits(8)) as server:
        answer = ask(server.url, given={"records": records, "proba": True}).json
        found.append(np.float32(answer["probabilities"]))
        assert not {"filled", "unknown", "warnings"} & ask(server.url, given={"records": records[:1]}).json.keys()
    assert [each.tobytes() == wanted.tobytes() for each in found] == [True] * len(found)
    # what was filled is counted, apart from what the training data lack
    filled = {"filled": {"a": int(NEW["a"].isna().sum()), "key": int(NEW["key"].isna().sum())}, "unknown": {"key": 1}}
    assert model.count_filled(NEW) == filled
    assert {name: answer[name] for name in filled} == filled
    NEW.assign(kind=["p", "q"] * 3).to_csv(tmp_path / "labelled.csv", index=False)
    command = ["test", f"{run}/job.yaml", "--init-from", run, "--data", str(tmp_path / "labelled.csv"), *command[7:11]]
    tested = CliRunner().invoke(main, [*command, "--json"])
    summary = json.loads(tested.stdout)
    assert {name: summary[name] for name in filled} == filled
    assert "filled 3 values: column a 2, key 1\nencoded 1 unknown category as zeros: column key 1\n" in tested.stderr
    whole = NEW[:1]
    assert (model.count_filled(whole), strict.count_filled(whole)) == ({}, {})
    # as if the fill stood there
    fill = LEARNED["a"].mean() if missing == "mean" else missing
    given = NEW.iloc[[2, 4]].assign(a=fill)
    assert strict.predict_proba(given) == pytest.approx(wanted[[2, 4]], abs=1e-5)
    # the metrics of such a model read the same values
    assert sd.test(model, NEW.assign(kind="p")) == model.test(NEW, ["p"] * 6)


def test_refusals_name_the_options_of_their_door(run: str, tmp_path: Path) -> None:
    number, name = NEW.iloc[[0, 2]], NEW.iloc[[0, 1]]
    both = NEW.iloc[[0]].assign(a=None, key=None)
    model = sd.load_model(run)
    for frame, python, server in (
        (number, "missing='mean' or a number", "--missing mean or a number"),
        (name, "unknown='ignore'", "--unknown ignore"),
        (both, "missing='mean' or a number and unknown='ignore'", "--missing mean or a number and --unknown ignore"),
    ):
        frame.to_csv(tmp_path / "new.csv", index=False)
        for data in (frame, tmp_path / "new.csv"):
            with pytest.raises(DataError) as refused:
                sd.predict(model, data)
            said = f"Leave the record out, or pass {python} to load_model or sd.predict."
            assert str(refused.value).endswith(said)
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        with ModelServer(model, Limits(8)) as served:
            error = ask(served.url, given={"records": records}).json["error"]
        assert error.endswith(f"Leave the record out, or start serve with {server}.")


def test_serve_reads_as_it_is_started(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[sd.Model] = []

    def refuse(model: sd.Model, *arguments: Any) -> None:
        models.append(model)
        raise ConfigError("enough")

    monkeypatch.setattr(serving, "ModelServer", refuse)
    found = CliRunner().invoke(main, ["serve", run, "--missing", "0.5", "--unknown", "ignore"])
    assert "enough" in found.output
    wanted = sd.load_model(run, missing=0.5, unknown="ignore").predict_proba(NEW)
    assert models[0].predict_proba(NEW).tobytes() == wanted.tobytes()


def test_wrong_values(run: str) -> None:
    wrong: list[dict[str, Any]] = [{"missing": "skip"}, {"missing": True}, {"unknown": "zeros"}]
    for reading in wrong:
        said = f"{next(iter(reading))}: .*, expected 'error'"
        with pytest.raises(ConfigError, match=said):
            sd.load_model(run, **reading)
        with pytest.raises(ConfigError, match=said):
            sd.predict(run, NEW, **reading)


def test_gaps_that_cannot_be_filled(tmp_path: Path) -> None:
    run = trained(tmp_path, standardise=False)
    with pytest.raises(DataError, match="no mean of column 'a' is known of the training data"):
        sd.load_model(run, missing="mean").predict(NEW)


def test_a_net_of_arrays_has_no_such_options(tmp_path: Path) -> None:
    lines = [f"{i % 2},{i},{i % 3}" for i in range(20)]
    (tmp_path / "train.csv").write_text("".join(f"{line}\n" for line in lines))
    store = {"path": str(tmp_path / "train.csv"), "batchsize": 5, "shape": [2]}
    layers = [
        sd.layer("CSVInput", name="data", store_conf=store),
        sd.layer("InnerProduct", name="fc", num_output=2),
        sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
    ]
    run = str(tmp_path / "run")
    sd.train(sd.Job(sd.Net(layers), train_steps=2, **KEYS), run_dir=run, progress=False)
    with pytest.raises(ConfigError, match="run: unknown: only for a job that reads a table with named columns"):
        sd.load_model(run, unknown="ignore")
