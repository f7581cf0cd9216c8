"""The layers of the language model: windows of words, and gradients by central differences."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs import InputContext
from singa_dask.layers import Feature, Layer
from singa_dask.testing.case import forward, metric, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.cli.conftest import ROOT
from tests.converting import convert

# number, class, and where the class begins and ends: 7 words in 3 classes
WORDS = np.array([[0, 0, 0, 2], [1, 0, 0, 2], [2, 1, 2, 5], [3, 1, 2, 5], [4, 1, 2, 5], [5, 2, 5, 7], [6, 2, 5, 7]])
# two windows of four words at most, the second of which ends early; a word twice in the first
WINDOWS = np.stack([WORDS[[0, 3, 5, 3, 6]], WORDS[[6, 1, 4, 0, 0]]])
WINDOWS[1, 4] = (-1, 0, 0, 0)


@pytest.fixture(autouse=True)
def load() -> None:
    modules.load(modules.read([str(ROOT / "examples" / "rnnlm" / "rnnlm.py")]), REGISTRIES.values())


def words() -> Feature:
    feature = Feature(WINDOWS.shape, np.int64, requires_grad=False)
    feature.data = WINDOWS.copy()
    return feature


def test_gradients_of_the_embedding_add_up() -> None:
    check_gradients(wire("rnnlm.Embedding", [words()], user_conf={"vocab_size": 7, "word_dim": 3}))


def test_a_word_outside_the_vocabulary_is_told() -> None:
    layer = wire("rnnlm.Embedding", [words()], user_conf={"vocab_size": 6, "word_dim": 3})
    with pytest.raises(DataError, match="word 6 is out of range, vocab_size is 6"):
        forward(layer)


def test_gradients_of_the_hidden_layer() -> None:
    check_gradients(wire("rnnlm.Hidden", [source((2, 4, 3))]))


def make_loss() -> Layer:
    user_conf = {"vocab_size": 7, "n_classes": 3}
    return wire("rnnlm.Loss", [source((2, 4, 3)), words()], user_conf=user_conf)


def test_gradients_of_the_loss_are_those_of_the_sum_over_a_window() -> None:
    layer = make_loss()
    total = metric(layer, "loss")
    check_gradients(layer, lambda: total() / len(WINDOWS))


def test_the_loss_of_all_words_is_a_distribution() -> None:
    layer = make_loss()
    p = np.zeros(7)
    for word in range(7):
        layer.sources[1].data[0, 1] = WORDS[word]
        forward(layer)
        p[word] = math.exp(-layer.features[0].data[0, 0])
    assert p.sum() == pytest.approx(1)


def test_perplexity_is_shown() -> None:
    layer = make_loss()
    forward(layer)
    taken = layer.take_metrics()
    (loss, n), (perplexity, same) = taken["loss"], taken["ppl"]
    assert n == same == 7
    assert perplexity / n == pytest.approx(math.exp(loss / n))


def windows(path: str, **context: Any) -> Any:
    """Return what a data layer of two windows a step gives in its next steps."""
    context = {"phase": Phase.TRAIN, "dtype": np.dtype(np.float64), **context}
    store = {"path": path, "batchsize": 2}
    return wire("rnnlm.Data", [], InputContext(**context), store_conf=store, user_conf={"max_window": 3})


def take(layer: Layer, n: int) -> list[list[list[int]]]:
    """Return the numbers of the words in some steps, by window."""
    found = []
    for _ in range(n):
        forward(layer)
        found.append([[word for word in window if word >= 0] for window in layer.features[0].data[..., 0].tolist()])
    return found


@pytest.fixture
def text(tmp_path: Path) -> str:
    (tmp_path / "text.txt").write_text("a b c d e\na b\n")
    url = str(tmp_path / "words.arrow")
    reading = {"vocabulary": str(tmp_path / "words.txt"), "class_size": 2}
    convert("words", [str(tmp_path / "text.txt")], url, reading=reading)
    return url


def test_a_window_ends_with_its_line_and_begins_with_the_word_before(text: str) -> None:
    # the words are </s> a b c d e, by how often they come
    everything = [[[0, 1, 2, 3], [3, 4, 5, 0]], [[0, 1, 2, 0], [0, 1, 2, 3]], [[3, 4, 5, 0], [0, 1, 2, 0]]]
    layer = windows(text)
    assert take(layer, 3) == everything
    again = windows(text)
    again.seek({"batches": 1})
    assert take(again, 2) == everything[1:]
    assert again.cursor() == layer.cursor() == {"batches": 3}
    again.seek({"batches": 0})
    again.advance(2)
    assert take(again, 1) == everything[2:]


def test_workers_share_a_batch_and_groups_take_turns(text: str) -> None:
    shared = [take(windows(text, worker=worker, n_workers=2), 3) for worker in (0, 1)]
    assert [one + other for one, other in zip(*shared, strict=True)] == take(windows(text), 3)
    groups = [take(windows(text, group=group, n_groups=2), 1) for group in (0, 1)]
    assert groups[0] + groups[1] == take(windows(text), 2)


def test_records_that_are_no_words_are_told() -> None:
    layer = windows(str(ROOT / "data/digits/test.arrow"))
    with pytest.raises(ConfigError, match=r"these are no words\. Make them by: singa-dask convert words"):
        layer.check_source()
