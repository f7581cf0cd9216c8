"""``export``: files of each format, from a run or a checkpoint, and what they say about themselves."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from safetensors import safe_open

import singa_dask as sd
from singa_dask.errors import ConfigError
from singa_dask.exports.weights import encode_npz, encode_safetensors
from tests.cli.conftest import TINY, Call, call, digits
from tests.exports.test_importing import arrays
from tests.exports.test_onnx import run

__all__ = ["call"]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Return a run directory, as far as an export reads it."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    job = sd.load(tmp_path / "tiny.yaml")
    made = tmp_path / "run"
    sd.import_weights(arrays(), job, made / "checkpoint" / "step-6")
    (made / "resolved.yaml").write_text(job.file.resolved())
    return made


def expected(x: np.ndarray) -> np.ndarray:
    """Return the probabilities that the net gives to pixels."""
    params = arrays()
    scores = x.reshape(len(x), -1) / 255 @ params["w"].T + params["b"]
    chances: np.ndarray = np.exp(scores - scores.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def test_onnx_takes_records_as_they_are(call: Call, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    result = call("export", trained, "-o", out)
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{out}\n", "")
    x = digits()["pixel"][:5].reshape(5, 28, 28).astype(np.float32)
    found = run(out.read_bytes(), {"data": x})
    np.testing.assert_allclose(found["loss"], expected(x), rtol=0, atol=1e-5)
    model = onnx.load(out)
    facts = {each.key: each.value for each in model.metadata_props}
    assert (facts["job"], facts["step"]) == ("tiny", "0")
    assert json.loads(facts["inputs"]) == {"data": {"shape": ["N", 28, 28]}}
    assert {each.name for each in model.graph.initializer} >= {"w", "b"}


def test_texts_can_be_encoded_by_the_metadata(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["good", "bad", "it", "is", "very", "not"]
    draw = np.random.default_rng(0).choice(words, size=(60, 4))
    frame = pd.DataFrame({"text": [" ".join(row) for row in draw], "kind": np.where(draw[:, 0] < "i", "low", "high")})
    frame.to_csv("texts.csv", index=False)
    assert call("init", "texts.csv", "--text", "text", "--label", "kind").exit_code == 0
    assert call("run", "job.yaml", "--run-dir", "run", "--set", "train_steps=2").exit_code == 0
    model = sd.load_model("run")
    assert model.example(model.output) == {"text": "a text"}
    assert call("export", "run", "-o", "model.onnx").exit_code == 0
    facts = {each.key: each.value for each in onnx.load("model.onnx").metadata_props}
    (said,) = json.loads(facts["inputs"])["data"]["texts"].values()
    number = {word: at for at, word in enumerate(said["vocabulary"], 1)}
    x = np.full((60, said["length"]), -1, np.float32)
    for row, text in zip(x, frame["text"], strict=True):
        tokens = [number.get(word, 0) for word in text.split()][: said["length"]]
        row[: len(tokens)] = tokens
    found = run(Path("model.onnx").read_bytes(), {"data": x})["loss"]
    np.testing.assert_allclose(found, model.predict_proba(frame[["text"]]), rtol=0, atol=1e-5)


def test_another_layer_of_a_step(trained: Path, tmp_path: Path) -> None:
    step = trained / "checkpoint" / "step-6"
    done = sd.export(sd.open_run(str(trained)), tmp_path / "a.onnx", layers=["fc"])
    assert sd.export(str(step), tmp_path / "b", "onnx", layers=["fc"]).urls == (str(tmp_path / "b"),)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b").read_bytes()
    assert done.notes == ()


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_params_by_name(trained: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"model.{kind}"
    sd.export(str(trained), out)
    if kind == "npz":
        with np.load(io.BytesIO(out.read_bytes())) as file:
            found, facts = {name: file[name] for name in "wb"}, json.loads(str(file["__metadata__"]))
        inputs = facts["inputs"]
    else:
        with safe_open(out, "np") as file:
            found, facts = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()
        inputs = json.loads(facts["inputs"])
    assert (facts["job"], inputs) == ("tiny", {"data": {"shape": ["N", 28, 28]}})
    for name, values in arrays().items():
        np.testing.assert_array_equal(found[name], values)
    again = sd.import_weights(out, sd.load(tmp_path / "tiny.yaml"), tmp_path / "again")
    assert Path(again, "manifest.json").exists()


def test_an_npz_has_params_of_any_name() -> None:
    names = ["file", "allow_pickle", "self", "args", "kwds", "net/w.b"]
    content = encode_npz({name: np.arange(k) for k, name in enumerate(names)}, {"job": "tiny"})
    with np.load(io.BytesIO(content)) as file:
        assert {name: len(file[name]) for name in names} == {name: k for k, name in enumerate(names)}
        assert json.loads(str(file["__metadata__"])) == {"job": "tiny"}
    for encode in (encode_npz, encode_safetensors):
        with pytest.raises(ConfigError, match="a param is called '__metadata__'"):
            encode({"__metadata__": np.zeros(2)}, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-o", "x.h5"],
            "x.h5: the suffix '.h5' is not the name of a format. Known: npz (.npz), onnx (.onnx), state_dict (.pt), "
            "state_dict (.pth), torch (.py)",
        ),
        (["-o", "x.onnx", "--format", "tf"], "x.onnx: unknown format 'tf'. Known: npz"),
        (["-o", "x.onnx", "--layer", "fd"], "layer 'fd' is not in the net of this phase."),
        (["-o", "x.npz", "--layer", "fc"], "an export to npz has all params of the job. Leave the layers out."),
        (["-o", "x.onnx", "--set", "neuralnet.layer[fc].innerproduct_conf.num_output=9"], "param 'w': "),
        (
            ["-o", "x.npz", "--set", "neuralnet.layer[fc].innerproduct_conf.num_output=9"],
            "the net of tiny needs (9, 784)",
        ),
    ],
)
def test_mistakes(
    call: Call, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call("export", trained, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert not list(tmp_path.glob("x.*"))


def test_a_file_is_not_replaced_unasked(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "net.npz"
    out.write_text("mine")
    with pytest.raises(sd.ConfigError, match=r"net\.npz: exists already\. .* Give overwrite=True to replace it"):
        sd.export(str(trained), out)
    assert out.read_text() == "mine"
    sd.export(str(trained), out, overwrite=True)
    assert np.load(out).files


def test_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run is here\. Expected a run directory"):
        sd.export(str(tmp_path), tmp_path / "x.onnx")
