"""Words as SINGA's rnnlm example stores them, a WordRecord a word: read as those that we make of the same text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import Phase
from singa_dask.data.codecs.protobuf import BYTES, VARINT, key, varint
from singa_dask.data.codecs.record import encode_record
from singa_dask.data.stores import open_store
from singa_dask.data.stores.texts.vocabulary import read_words, split_words
from singa_dask.errors import DataError
from singa_dask.testing.case import wire
from tests.cli.conftest import ROOT
from tests.contracts.records import read_all, write_pairs
from tests.converting import convert


def word_record(word: str, *numbers: int) -> bytes:
    """Encode word, word_index, class_index, class_start and class_end as create_data does."""
    text = word.encode()
    parts = [key(1, BYTES), varint(len(text)), text]
    for number, value in enumerate(numbers, 2):
        parts += [key(number, VARINT), varint(value)]
    return b"".join(parts)


def write_words(url: str, words: list[str], numbers: np.ndarray) -> str:
    def pairs() -> Iterator[tuple[str, bytes]]:
        for i, (word, row) in enumerate(zip(words, numbers.astype(int).tolist(), strict=True)):
            yield f"{i:05d}", word_record(word, *row)

    write_pairs(url, pairs())
    return url


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, np.ndarray]:
    """Return the URL of a kvfile of words, that of their text, and the numbers that we make of it."""
    folder, random = tmp_path_factory.mktemp("words"), np.random.default_rng(0)
    # numbers of one, two and three bytes, words of one to twelve characters that are not all ASCII
    vocabulary = [f"{'äbc'[i % 3]}{'x' * (i % 9)}{i}" for i in range(18_000)]
    # each comes, the first ones most often
    picks = np.concatenate([np.arange(18_000), np.repeat(np.arange(50), 40)])
    picked = [vocabulary[i] for i in random.permutation(picks)]
    lines = [" ".join(picked[i : i + 12]) for i in range(0, len(picked), 12)]
    path = folder / "train.txt"
    path.write_text("\n".join(lines) + "\n")
    numbers = read_words([str(path)], None, str(folder / "vocab.txt"), 100)["data"]
    assert numbers[:, 0].max() > 16_384
    words = split_words(path.read_text())
    return write_words(str(folder / "train_data.bin"), words, numbers), str(path), numbers


def test_they_are_those_that_we_make(made: tuple[str, str, np.ndarray], tmp_path: Path) -> None:
    url, _, numbers = made
    with open_store(url) as store:
        assert {name: (field.dtype, field.shape) for name, field in store.schema.items()} == {
            "data": (np.float32, (4,))
        }
        np.testing.assert_array_equal(read_all(store)["data"], numbers)
    convert("kvfile", [url], str(tmp_path / "x.arrow"), verify=True)
    with open_store(str(tmp_path / "x.arrow")) as store:
        np.testing.assert_array_equal(read_all(store)["data"], numbers)


def test_words_are_not_decoded_one_by_one(made: tuple[str, str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(*_: Any) -> None:
        raise AssertionError("a record was decoded alone")

    monkeypatch.setattr("singa_dask.data.codecs.record._decode_one", alone)
    with open_store(made[0]) as store:
        read_all(store)


def test_a_record_of_another_kind_among_them(tmp_path: Path) -> None:
    url = str(tmp_path / "x.bin")
    records = [word_record("a", 1, 0, 0, 2), encode_record((4,), 1, pixel=b"1234"), word_record("b", 2, 0, 0, 2)]
    write_pairs(url, ((str(i), record) for i, record in enumerate(records)))
    with open_store(url) as store:
        with pytest.raises(
            DataError, match=r"x\.bin, block 0 .*record 1: holds pixel \(4,\) uint8.*other records hold data \(4,\)"
        ):
            read_all(store)
        arrays, bad = store.salvage(0)
    assert list(bad) == [1]
    assert arrays["data"][[0, 2]].tolist() == [[1, 0, 0, 2], [2, 0, 0, 2]]


def test_the_language_model_reads_a_folder_of_singa(made: tuple[str, str, np.ndarray], tmp_path: Path) -> None:
    modules.load(modules.read([str(ROOT / "examples" / "rnnlm" / "rnnlm.py")]), REGISTRIES.values())
    convert("words", [made[1]], str(tmp_path / "x.arrow"), reading={"vocabulary": str(tmp_path / "vocab.txt")})
    batches = []
    for url in (made[0], str(tmp_path / "x.arrow")):
        layer = wire("rnnlm.Data", [], store_conf={"path": url, "batchsize": 300}, user_conf={"max_window": 10})
        layer.check_source()
        layer.forward(Phase.TRAIN | Phase.FORWARD)
        batches.append(np.array(layer.features[0].data))
    np.testing.assert_array_equal(*batches)
