"""``sample``: what a net writes is what its params say, character by character."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from singa_dask.cli import main
from singa_dask.runtime.checkpoints.lookup import find, load_values
from tests.backends import backend
from tests.cli.conftest import ROOT, Call

GOLD = ROOT / "tests" / "gold"
VOCABULARY = (GOLD / "data" / "small_vocab.txt").read_text()

JOB = """\
name: text
train_steps: 30
train_one_batch: {alg: BPTT}
updater: {type: RMSProp, rmsprop_conf: {rho: 0.95}, learning_rate: {type: Fixed, base_lr: 0.01}}
neuralnet:
  unroll_len: 6
  layer:
    - name: data
      type: CharRNN
      unroll_len: 1
      char_rnn_conf: {path: data/small_text.txt, vocab_path: data/small_vocab.txt, batchsize: 4, unroll_len: 6}
    - {name: label, type: RNNLabel, srclayers: data, unroll_conn_type: OneToAll}
    - INPUT
    - HIDDEN
    - {name: drop, type: Dropout, srclayers: hidden}
    - name: ip
      type: InnerProduct
      srclayers: drop
      innerproduct_conf: {num_output: 27}
      param: [{name: w, init: {type: Uniform}}, {name: b, init: {type: Uniform}}]
    - {name: loss, type: SoftmaxLoss, srclayers: [ip, label]}
"""
ONE_HOT = "{name: in, type: OneHot, srclayers: data, unroll_conn_type: OneToAll, onehot_conf: {vocab_size: 27}}"
GRU = """name: hidden
      type: GRU
      srclayers: in
      gru_conf: {dim_hidden: 8}
      param:
"""
NAMES = [f"{gate}_{kind}" for kind in ("hx", "hh", "b") for gate in "zrc"]
PARAMS = "".join(f"        - {{name: {name}, init: {{type: Uniform}}}}\n" for name in NAMES)
SINGAS = """
name: "sample"
test_steps: 30
train_one_batch { alg: kBPTT }
neuralnet {
  layer {
    name: "data" type: kRNNDummy
    rnn_dummy_conf { shape: 1 integer: true low: 0 high: 27 dynamic_srclayer: "argsort" }
  }
  layer { name: "in" type: kOneHot srclayers: "data" }
  layer {
    name: "hidden" type: kGRU srclayers: "in" gru_conf { dim_hidden: 8 }
    PARAMS
  }
  layer {
    name: "ip" type: kInnerProduct srclayers: "hidden" innerproduct_conf { num_output: 27 }
    param { name: "w" init { type: kUniform } } param { name: "b" init { type: kUniform } }
  }
  layer { name: "softmax" type: kSoftmax srclayers: "ip" }
  layer { name: "argsort" type: kArgSort srclayers: "softmax" }
  layer {
    name: "write" type: kCharRNNOutput srclayers: "argsort"
    char_rnn_conf { vocab_path: "data/small_vocab.txt" }
  }
}
""".replace("PARAMS", "".join(f'param {{ name: "{name}" init {{ type: kUniform }} }}' for name in NAMES))


@pytest.fixture(autouse=True)
def _text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start where the text is that the jobs name."""
    (tmp_path / "data").symlink_to(GOLD / "data")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def gru_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a job of a small net, and the run directory in which it was trained."""
    folder = tmp_path_factory.mktemp("gru")
    (folder / "data").symlink_to(GOLD / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trained(ONE_HOT, GRU + PARAMS)
    return folder


@pytest.fixture
def gru(gru_folder: Path) -> str:
    """Return a job of a small net that has been trained, in the run directory ``run``."""
    for name in ("run", "job.yaml"):
        Path(name).symlink_to(gru_folder / name)
    return "job.yaml"


def trained(first: str, hidden: str) -> str:
    Path("job.yaml").write_text(JOB.replace("INPUT", first).replace("HIDDEN", hidden.rstrip()))
    result = CliRunner().invoke(main, ["run", "job.yaml", "--quiet", "--run-dir", "run"])
    assert result.exit_code == 0, result.output
    return "job.yaml"


def text(call: Call, job: str, *options: str | int | float) -> str:
    result = call("sample", job, "--init-from", "run", *options)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def best_by_hand(seed_text: str, length: int) -> str:
    """Write with the params of the checkpoint, taking the best character each time."""
    p = {name: stored.values.astype(np.float64) for name, stored in load_values(find("run")).items()}
    h, written = np.zeros(8), ""

    def gate(name: str, character: int, state: np.ndarray) -> np.ndarray:
        return p[f"{name}_hx"][:, character] + p[f"{name}_b"] + state

    for i in range(len(seed_text) + length - 1):
        character = VOCABULARY.index((seed_text + written)[i])
        z, r = (1 / (1 + np.exp(-gate(name, character, p[f"{name}_hh"] @ h))) for name in "zr")
        h = z * h + (1 - z) * np.tanh(gate("c", character, r * (p["c_hh"] @ h)))
        if i >= len(seed_text) - 1:
            written += VOCABULARY[int(np.argmax(p["w"] @ h + p["b"]))]
    return written


def test_a_net_writes_what_its_params_say(call: Call, gru: str) -> None:
    options = ("--length", 60, "--seed-text", "the cat", "--temperature", 0)
    assert text(call, gru, *options) == best_by_hand("the cat", 60)


@pytest.mark.long
def test_a_net_writes_the_same_on_a_gpu(call: Call, gru: str) -> None:
    backend("cuda:0")
    options = ("--length", 20, "--temperature", 0, "--seed-text", "the cat")
    assert text(call, gru, *options, "--set", "gpu=[0]") == text(call, gru, *options)


def test_a_job_in_singas_form_writes_the_same(call: Call, gru: str) -> None:
    Path("sample.conf").write_text(SINGAS)
    seed = ("--seed-text", "the cat")
    assert text(call, "sample.conf", *seed) == best_by_hand("the cat", 30)
    assert text(call, "sample.conf", *seed, "--length", 7) == best_by_hand("the cat", 7)
    assert len(text(call, "sample.conf")) == 30
    result = call("sample", "sample.conf", "--init-from", "run", "--temperature", 0.5)
    assert result.exit_code == 2
    assert "a temperature needs a net with a Sampling layer; this one has none." in result.stderr


@pytest.mark.long
def test_text_is_a_function_of_the_seed(call: Call, gru: str) -> None:
    drawn = text(call, gru, "--length", 50)
    assert len(drawn) == 50
    assert set(drawn) <= set(VOCABULARY)
    assert text(call, gru, "--length", 80)[:50] == drawn
    assert text(call, gru, "--length", 50, "--seed", 3) != drawn
    assert text(call, gru, "--length", 50, "--set", "seed=3") == text(call, gru, "--length", 50, "--seed", 3)
    cold = {text(call, gru, "--length", 50, "--seed-text", "a", "--temperature", 0, "--seed", seed) for seed in (1, 2)}
    assert len(cold) == 1
    assert text(call, gru, "--length", 0) == ""
    assert len(text(call, gru)) == 1000


def test_text_goes_to_a_file(call: Call, gru: str) -> None:
    assert text(call, gru, "--length", 50, "--out", "text.txt") == ""
    assert Path("text.txt").read_text() == text(call, gru, "--length", 50)


@pytest.mark.parametrize(
    ("first", "hidden"),
    [
        (
            "{name: in, type: Embedding, srclayers: data, unroll_conn_type: OneToAll, "
            "embedding_conf: {vocab_size: 27, feature_dim: 5}, param: {init: {type: Uniform}}}",
            GRU + PARAMS,
        ),
        (
            ONE_HOT,
            "{name: hidden, type: LSTM, srclayers: in, lstm_conf: {dim_hidden: 6, carry_state: true}, param: ["
            + ", ".join(["{init: {type: Uniform}}"] * 12)
            + "]}",
        ),
        (
            ONE_HOT,
            "{name: below, type: GRU, srclayers: in, gru_conf: {dim_hidden: 4}, param: ["
            + ", ".join(["{init: {type: Uniform}}"] * 9)
            + "]}\n    - {name: hidden, type: RNN, srclayers: below, rnn_conf: {dim_hidden: 3}, param: ["
            + ", ".join(["{init: {type: Uniform}}"] * 3)
            + "]}",
        ),
    ],
    ids=["embedding", "lstm", "stack"],
)
def test_nets_of_many_kinds_write(call: Call, first: str, hidden: str) -> None:
    job = trained(first, hidden)
    assert len(text(call, job, "--length", 20, "--seed-text", "abc")) == 20


TRANSFORMER = """{name: position, type: PositionalEmbedding, srclayers: in, positionalembedding_conf: {max_length: 6}}
    - {name: norm, type: LayerNorm, srclayers: position}
    - name: attention
      type: MultiHeadAttention
      srclayers: norm
      multiheadattention_conf: {num_heads: 2, causal: true}
    - {name: hidden, type: Add, srclayers: [attention, position]}
"""
EMBEDDING = """{name: in, type: Embedding, srclayers: data, unroll_conn_type: OneToAll,
       embedding_conf: {vocab_size: 27, feature_dim: 8}, param: {init: {type: Uniform}}}"""


def best_by_attention(seed_text: str, length: int) -> str:
    """Write with the params of a checkpoint of the transformer; a full window is left for its second half."""
    p = {name: stored.values.astype(np.float64) for name, stored in load_values(find("run")).items()}
    written, window = "", ""
    for i in range(len(seed_text) + length - 1):
        window = (window[3:] if len(window) == 6 else window) + (seed_text + written)[i]
        x = p["in.table"][[VOCABULARY.index(character) for character in window]] + p["position.table"][: len(window)]
        u = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        u = p["norm.scale"] * u + p["norm.shift"]
        q, k, v = np.split(u @ p["attention.qkv_weight"].T + p["attention.qkv_bias"], 3, axis=1)
        heads = []
        for own in (slice(0, 4), slice(4, 8)):
            weights = np.exp(q[-1, own] @ k[:, own].T / 2)
            heads.append(weights @ v[:, own] / weights.sum())
        h = x[-1] + p["attention.output_weight"] @ np.concatenate(heads) + p["attention.output_bias"]
        if i >= len(seed_text) - 1:
            written += VOCABULARY[int(np.argmax(p["w"] @ h + p["b"]))]
    return written


@pytest.mark.long
def test_a_transformer_writes_what_its_params_say(call: Call) -> None:
    job = trained(EMBEDDING, TRANSFORMER)
    for seed_text in ("t", "the cat sat on the mat"):
        options = ("--length", 40, "--seed-text", seed_text, "--temperature", 0)
        assert text(call, job, *options) == best_by_attention(seed_text, 40), seed_text
    assert len(text(call, job, "--length", 20)) == 20


def test_without_a_vocabulary_the_text_says_the_characters(call: Call, gru: str) -> None:
    written = text(call, gru, "--length", 40, "--seed-text", "the cat", "--temperature", 0)
    assert VOCABULARY == "".join(sorted(VOCABULARY))
    plain = Path(gru).read_text().replace("vocab_path: data/small_vocab.txt, ", "")
    Path("plain.yaml").write_text(plain)
    assert text(call, "plain.yaml", "--length", 40, "--seed-text", "the cat", "--temperature", 0) == written


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        ((), 2, "Pass --init-from, or set checkpoint_path in the job"),
        (("--init-from", "nothing"), 2, "nothing: no such file or directory"),
        (("--init-from", "run", "--seed-text", "the\ncaß"), 1, "seed text:2:3: character 'ß' is not in the vocabulary"),
        (("--init-from", "run", "--temperature", -1), 2, "-1.0 is not in the range"),
        (("--init-from", "run", "--set", "neuralnet.layer[hidden].gru_conf.dim_hidden=9"), 2, "has shape (8, 27)"),
    ],
)
def test_what_cannot_be_sampled(
    call: Call, gru: str, options: tuple[str | int, ...], exit_code: int, message: str
) -> None:
    result = call("sample", gru, *options)
    assert result.exit_code == exit_code, result.output
    assert message in result.stderr
    assert result.stdout == ""


def test_a_job_without_text_cannot_be_sampled(call: Call, job: Path) -> None:
    assert call("run", job, "--quiet", "--run-dir", "digits").exit_code == 0
    result = call("sample", job, "--init-from", "digits")
    assert result.exit_code == 2
    assert "This one has 0 CharRNN and 1 SoftmaxLoss." in result.stderr


def test_mistakes_in_a_job_in_singas_form_have_their_places(call: Call, gru: str) -> None:
    Path("sample.conf").write_text(SINGAS.replace('dynamic_srclayer: "argsort"', 'dynamic_srclayer: "ip"'))
    result = call("sample", "sample.conf", "--init-from", "run")
    assert result.exit_code == 2
    where = "sample.conf:8:79: neuralnet.layer[data].rnn_dummy_conf.dynamic_srclayer: "
    assert result.stderr == f"{where}the data of 'ip' has shape (1, 27), expected (1, 1) from shape.\n"
