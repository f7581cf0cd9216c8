"""Unrolled nets: time steps computed at once, and one by one where that has to be, are the same model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.exports.encoding import encode_onnx
from tests.exports.nets import ROOT, by_record, compute, exported, read_job
from tests.exports.test_onnx import run

T, N = 4, 3


def unrolled(kind: str, **block: Any) -> JobConf:
    """Return a net of T time steps in which one layer, a Concate, is computed step by step."""
    text = {"path": "none.txt", "batchsize": N, "unroll_len": T}
    steps = {"srclayers": "data", "unroll_conn_type": ["OneToAll"]}
    net = sd.Net(
        [
            sd.layer("CharRNN", name="data", unroll_len=1, char_rnn_conf=text),
            sd.layer("Embedding", name="words", vocab_size=50, feature_dim=5, **steps),
            sd.layer("RNNLabel", name="label", **steps),
            sd.layer("Concate", name="twice", srclayers=["words", "words"], concate_dim=1),
            sd.layer(kind, name="hidden", srclayers="twice", **block),
            sd.layer("SoftmaxLoss", name="loss", srclayers=["hidden", "label"]),
        ],
        unroll_len=T,
    )
    return sd.Job(net, name="unrolled").conf


@pytest.mark.parametrize(
    ("kind", "block"), [("InnerProduct", {"num_output": 50}), ("LSTM", {"dim_hidden": 50}), ("GRU", {"dim_hidden": 50})]
)
@pytest.mark.parametrize("layer", ["loss", "twice"])
def test_an_output_has_records_first_then_time_steps(kind: str, block: dict[str, Any], layer: str) -> None:
    made = exported(unrolled(kind, **block), [layer])
    (content,) = encode_onnx(made, "x.onnx", {}).values()
    inputs, outputs = compute(made)
    assert outputs[layer].shape[:2] == (N, T)
    np.testing.assert_allclose(run(content, inputs)[layer], outputs[layer], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_a_carried_state_is_an_input_and_an_output(kind: str) -> None:
    made = exported(unrolled(kind, dim_hidden=50, carry_state=True), ["hidden"])
    (content,) = encode_onnx(made, "x.onnx", {}).values()
    names = ("state", "cell") if kind == "LSTM" else ("state",)
    inputs, _ = compute(made)
    data, states = inputs["data"], {f"hidden.{name}": np.zeros((N, 50), np.float32) for name in names}
    for _ in range(2):
        found = run(content, {"data": data, **states})
        np.testing.assert_allclose(found["hidden"], by_record(made.outputs["hidden"]), rtol=0, atol=1e-5)
        states = {f"hidden.{name}": found[f"hidden.next_{name}"] for name in names}
        assert [values.shape for values in states.values()] == [(N, 50)] * len(names)
        for layer in made.net.layers:
            if layer not in made.net.inputs:
                layer.forward(Phase.TEST | Phase.FORWARD)
    assert made.notes("onnx")[0].startswith("hidden: carry_state. Each input hidden.state is zeros at first")
    assert made.notes("torch")[0].startswith("hidden: carry_state is left out.")


def test_a_net_that_reads_what_it_has_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError, match=r"layer 'data', RNNDummy: ONNX has no such operation"):
        encode_onnx(exported(read_job(ROOT / "configs/char-rnn/sample.yaml")), "x.onnx", {})
