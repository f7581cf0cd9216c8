"""Layers of text: windows over segments, what is fed back, what is drawn and written."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs.sampling import RNNDummy
from singa_dask.inputs.text import CharRNN, CharRNNOutput
from singa_dask.layers import LAYERS, Context, Feature, Layer
from singa_dask.net import memory, wiring
from singa_dask.ops import get_ops
from singa_dask.testing.case import source

TEXT = "the quick brown fox\njumps over the lazy dog"
TEST = Phase.TEST | Phase.FORWARD


def layer_of(kind: str, sources: Any = (), context: Context | None = None, **conf: Any) -> Any:
    names = [f"src{i}" for i in range(len(sources))]
    made = LayerConf.model_validate({"name": "layer", "type": kind, "srclayers": names, **conf})
    layer = LAYERS.find(kind)(made, context or Context())
    wiring.wire(layer, sources, get_ops("numpy"))
    memory.allocate(layer)
    return layer


def text_layer(path: Path, context: Context | None = None, **block: Any) -> CharRNN:
    layer = layer_of("CharRNN", context=context, char_rnn_conf={"path": str(path), **block})
    assert isinstance(layer, CharRNN)
    return layer


def read(layer: Layer) -> np.ndarray:
    layer.forward(Phase.TRAIN | Phase.FORWARD)
    return np.array(layer.features[0].data)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(sorted(set(TEXT), reverse=True)))
    return path


def windows(layer: CharRNN, vocabulary: str, n: int) -> list[list[str]]:
    return [["".join(vocabulary[i] for i in row) for row in read(layer).tolist()] for _ in range(n)]


# -- CharRNN -------------------------------------------------------------------------------------


def test_windows_go_on_from_their_last_character(text: Path, vocabulary: Path) -> None:
    layer = text_layer(text, vocab_path=str(vocabulary), batchsize=2, unroll_len=5)
    assert layer.features[0].shape == (2, 6)
    assert layer.features[0].dtype == np.int32
    starts, found = [], []
    for _ in range(6):
        found += windows(layer, vocabulary.read_text(), 1)
        starts.append(layer.context.stream_start)
    # segments of 21 characters; the fifth window has begun in the last five of them
    around = TEXT + TEXT
    assert found == [[around[start + at :][:6] for start in (0, 21)] for at in (0, 5, 10, 15, 20, 0)]
    assert starts == [True, False, False, False, False, True]


def test_the_epoch_counts_windows(text: Path, vocabulary: Path) -> None:
    layer = text_layer(text, vocab_path=str(vocabulary), batchsize=2, unroll_len=5)
    assert layer.epoch is None
    epochs = []
    for layer.context.step in range(10):
        read(layer)
        epochs.append(layer.epoch)
    assert epochs == [(step + 1) / 5 for step in range(10)]
    layer.context.step = 10  # before its window is read
    assert layer.epoch == 2


@pytest.mark.parametrize("n", [1, 4, 5, 13, -3])
def test_to_advance_is_to_read(text: Path, n: int) -> None:
    one, other, later = (text_layer(text, batchsize=2, unroll_len=5) for _ in range(3))
    for _ in range(4):
        read(one)
    cursor = one.cursor()
    assert cursor is not None
    for _ in range(n % 5):  # five windows a segment
        read(one)
    for layer in (other, later):
        layer.seek(cursor)
    read(other)
    other.advance(n - 1)
    later.advance(n)  # before it is open
    assert later.cursor() == other.cursor() == one.cursor()
    expected = read(one)
    np.testing.assert_array_equal(read(other), expected)
    np.testing.assert_array_equal(read(later), expected)
    assert later.cursor() == one.cursor()


def test_the_last_window_ends_at_the_start_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdef")
    layer = text_layer(tmp_path / "text.txt", batchsize=2, unroll_len=2)
    assert windows(layer, "abcdef", 3) == [["abc", "def"], ["cde", "fab"], ["abc", "def"]]


def test_without_a_vocabulary_characters_are_in_the_order_of_their_codes(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(gzip.compress("wörld\r\nwör".encode()))
    layer = text_layer(tmp_path / "text.txt", unroll_len=9)
    assert windows(layer, "\n\rdlrwö", 1) == [["wörld\r\nwör"]]


def test_more_characters_than_a_byte_holds(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(map(chr, range(1000, 1300))))
    np.testing.assert_array_equal(read(text_layer(tmp_path / "text.txt", unroll_len=299)), [np.arange(300)])


def test_workers_share_the_rows_and_groups_the_segments(text: Path) -> None:
    whole = read(text_layer(text, batchsize=4, unroll_len=3))
    shares = [text_layer(text, Context(worker=i, n_workers=2), batchsize=4, unroll_len=3) for i in range(2)]
    np.testing.assert_array_equal(np.concatenate([read(share) for share in shares]), whole)
    groups = [
        text_layer(text, Context(worker=i, n_workers=2, group=g, n_groups=2), batchsize=2, unroll_len=3)
        for g in range(2)
        for i in range(2)
    ]
    np.testing.assert_array_equal(np.concatenate([read(group) for group in groups]), whole)


def test_a_cursor_goes_on_at_the_same_characters(text: Path) -> None:
    layer = text_layer(text, batchsize=2, unroll_len=5)
    assert layer.cursor() is None
    read(layer)
    cursor = layer.cursor() or {}
    assert all(isinstance(value, int) for value in cursor.values())
    expected = [read(layer) for _ in range(7)]
    again = text_layer(text, batchsize=2, unroll_len=5)
    again.seek(cursor)
    assert again.cursor() == cursor
    np.testing.assert_array_equal([read(again) for _ in range(7)], expected)
    again.seek(cursor)
    np.testing.assert_array_equal(read(again), expected[0])
    text.write_text(TEXT[::-1])
    other = text_layer(text, batchsize=2, unroll_len=5)
    other.seek(cursor)
    with pytest.raises(DataError, match=r"text\.txt: the text, its vocabulary or batchsize has changed"):
        read(other)


@pytest.mark.parametrize(
    ("content", "vocabulary", "block", "key", "message"),
    [
        ("abcdefg", None, {"batchsize": 2, "unroll_len": 3}, "path",
         r"7 characters\. Expected batchsize 2 x \(unroll_len 3 \+ 1\) = 8 at least"),
        ("ab\ncXd", "abcd\n", {"unroll_len": 2}, "path", r"text\.txt:2:2: character 'X' is not in the vocabulary"),
        (None, "ab", {}, "path", r"text\.txt: no such file"),
        ("abcd", "nothing", {}, "vocab_path", r"nothing\.txt: no such file"),
    ],
)  # fmt: skip
def test_texts_that_do_not_fit(
    content: str | None, vocabulary: str | None, block: dict[str, Any], key: str, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "text.txt").write_text(content)
    if vocabulary == "nothing":
        block = {**block, "vocab_path": str(tmp_path / "nothing.txt")}
    elif vocabulary is not None:
        (tmp_path / "vocab.txt").write_text(vocabulary)
        block = {**block, "vocab_path": str(tmp_path / "vocab.txt")}
    layer = text_layer(tmp_path / "text.txt", **block)
    with pytest.raises(ConfigError, match=message) as caught:
        layer.check_source()
    assert [problem.path for problem in caught.value.problems] == [("char_rnn_conf", key)]
    with pytest.raises(DataError, match=message):
        read(layer)


def test_texts_that_fit(text: Path, vocabulary: Path) -> None:
    text_layer(text, vocab_path=str(vocabulary), batchsize=2, unroll_len=5).check_source()


def test_blocks_that_make_no_sense() -> None:
    with pytest.raises(ConfigError) as caught:
        layer_of("CharRNN", context=Context(n_workers=2), char_rnn_conf={"batchsize": 3})
    assert [problem.path[-1] for problem in caught.value.problems] == ["path", "batchsize"]
    with pytest.raises(ConfigError, match=r"RNNDummy needs this key\. The batch size comes first"):
        layer_of("RNNDummy")
    with pytest.raises(ConfigError, match="CharRNNOutput needs this key"):
        layer_of("CharRNNOutput", [source((1, 1))])


# -- RNNDummy ------------------------------------------------------------------------------------


def dummy_of(context: Context, **block: Any) -> RNNDummy:
    layer = layer_of("RNNDummy", context=context, rnn_dummy_conf=block)
    assert isinstance(layer, RNNDummy)
    return layer


def test_a_dummy_starts_at_random() -> None:
    layer = dummy_of(Context(phase=Phase.TEST), shape=[2000, 1], integer=True, low=3, high=7.0)
    layer.forward(TEST)
    first = layer.features[0].data.copy()
    assert np.unique(first).tolist() == [3, 4, 5, 6]
    layer.forward(TEST)
    assert (layer.features[0].data != first).any()
    again = dummy_of(Context(phase=Phase.TEST), shape=[2000, 1], integer=True, low=3, high=7.0)
    again.compute_feature(TEST)
    np.testing.assert_array_equal(again.features[0].data, first)
    real = dummy_of(Context(phase=Phase.TEST), shape=[2000, 3], low=-1, high=1.0)
    real.compute_feature(TEST)
    assert abs(float(real.features[0].data.mean())) < 0.05
    assert float(np.abs(real.features[0].data).max()) <= 1


def test_a_dummy_repeats_what_the_layer_behind_it_made_of_the_batch_before() -> None:
    context = Context(phase=Phase.TEST)
    layer, last = dummy_of(context, shape=2, low=0, high=1.0, dynamic_srclayer="best"), Feature((2, 1))
    assert layer.features[0].shape == (2, 1)
    assert layer.feedback_sources(layer.conf) == ["best"]
    layer.bind_feedback(last)
    last.data = np.array([[5.0], [6.0]])
    layer.forward(TEST)
    assert float(layer.features[0].data.max()) < 1
    layer.forward(TEST)
    assert layer.features[0].data.tolist() == [[5], [6]]
    layer.feed(9)
    layer.forward(TEST)
    assert layer.features[0].data.tolist() == [[9], [9]]
    # a test at another step begins anew
    context.step = 10
    layer.forward(TEST)
    assert float(layer.features[0].data.max()) < 1
    with pytest.raises(ConfigError, match=r"the data of 'best' has shape \(3, 1\), expected \(2, 1\) from shape"):
        layer.bind_feedback(Feature((3, 1)))


# -- Sampling ------------------------------------------------------------------------------------


def draw(logits: np.ndarray, context: Context | None = None, **block: Any) -> np.ndarray:
    feature = Feature(logits.shape, np.float64)
    feature.data = logits.copy()
    layer = layer_of("Sampling", [feature], context or Context(), sampling_conf=block)
    layer.forward(TEST)
    np.testing.assert_array_equal(feature.data, logits)
    assert layer.features[0].shape == (len(logits), 1)
    return np.array(layer.features[0].data[:, 0], np.int64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("probabilities", [False, True])
def test_columns_are_drawn_with_their_probabilities(temperature: float, probabilities: bool) -> None:
    p = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        rows = np.tile(p if probabilities else np.log(p) + 3, (40_000, 1))
    drawn = draw(rows, temperature=temperature, probabilities=probabilities)
    expected = p ** (1 / temperature)
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.01)


def test_at_temperature_0_the_best_is_drawn() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 9))
    np.testing.assert_array_equal(draw(logits, temperature=0), logits.argmax(axis=1))


def test_draws_are_a_function_of_seed_step_and_row() -> None:
    logits = np.zeros((60, 1000))
    whole = draw(logits)
    np.testing.assert_array_equal(draw(logits), whole)
    shares = [draw(logits[:30], Context(worker=i, n_workers=2)) for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(shares), whole)
    for context in (Context(seed=1), Context(step=1)):
        assert (draw(logits, context) != whole).any()


def test_each_batch_of_a_test_is_drawn_anew() -> None:
    feature = Feature((60, 1000))
    feature.data = np.zeros(feature.shape, np.float32)
    layer = layer_of("Sampling", [feature])
    found = []
    for step in (0, 0, 5, 0):
        layer.context.step = step
        layer.forward(TEST)
        found.append(layer.features[0].data.copy())
    assert (found[0] != found[1]).any()
    np.testing.assert_array_equal(found[0], found[3])


# -- CharRNNOutput -------------------------------------------------------------------------------


def output_of(numbers: Any, path: Path) -> CharRNNOutput:
    feature = Feature((len(numbers), 1))
    feature.data = np.array(numbers, np.float32)[:, None]
    layer = layer_of("CharRNNOutput", [feature], char_rnn_conf={"vocab_path": str(path)})
    assert isinstance(layer, CharRNNOutput)
    return layer


def test_the_character_of_each_row_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vocab.txt").write_text("aö\nz")
    layer = output_of([3, 1, 2, 0], tmp_path / "vocab.txt")
    layer.check_source()
    layer.forward(TEST)
    layer.close()
    assert capsys.readouterr().out == "zö\na"
    layer.file = io.StringIO()
    layer.forward(TEST)
    assert layer.file.getvalue() == "zö\na"
    assert capsys.readouterr().out == ""


def test_numbers_that_are_no_characters(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("abc")
    with pytest.raises(DataError, match=r"vocab\.txt: the vocabulary has 3 characters, and none has the number 3"):
        output_of([3], tmp_path / "vocab.txt").compute_feature(TEST)
    with pytest.raises(ConfigError, match=r"none\.txt: no such file"):
        output_of([3], tmp_path / "none.txt").check_source()
