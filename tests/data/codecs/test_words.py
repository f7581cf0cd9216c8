"""Words of rnnlm: how text is parted, numbered and classed, against a slow program that does it step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.stores import open_store
from singa_dask.data.stores.texts.vocabulary import classes_of, count_words, read_words, split_words
from singa_dask.errors import DataError
from tests.contracts.records import read_all
from tests.converting import convert

TEXT = "the cat\tsat  on the mat\r\n\nthe end"


def read_word(characters: list[str]) -> str:
    """Read a word as rnnlm 0.4 does, a character at a time."""
    word = ""
    while characters:
        character = characters.pop(0)
        if character == "\r":
            continue
        if character in " \t\n":
            if word:
                if character == "\n":
                    characters.insert(0, character)
                break
            if character == "\n":
                return "</s>"
            continue
        word += character
    return word


@given(st.text(alphabet="ab \t\n\r", max_size=40))
def test_words_are_parted_as_by_rnnlm(text: str) -> None:
    characters, expected = list(text), []
    while characters:
        expected += [word] if (word := read_word(characters)) else []
    assert split_words(text) == expected


def test_the_vocabulary_is_sorted_by_count() -> None:
    counts = count_words(split_words(TEXT))
    assert list(counts.items()) == [("</s>", 2), ("the", 3), *((word, 1) for word in "cat sat on mat end".split())]
    assert count_words(["a"]) == {"</s>": 0, "a": 1}


def test_classes_have_equal_shares() -> None:
    np.testing.assert_array_equal(classes_of(np.array([2, 3, 1, 1, 1, 1, 1]), 3), [0, 0, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(classes_of(np.array([0, 97, 1, 1, 1]), 3), [0, 0, 1, 2, 2])


def test_records_of_words(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(TEXT.encode())
    (tmp_path / "test.txt").write_text("the dog sat\n")
    options = {"vocabulary": str(tmp_path / "vocab.txt"), "class_size": 3}
    for name in ("train", "test"):
        target = str(tmp_path / f"{name}.arrow")
        convert("words", [str(tmp_path / f"{name}.txt")], target, reading=options, verify=True)
    assert (tmp_path / "vocab.txt").read_text() == "</s> 2\nthe 3\ncat 1\nsat 1\non 1\nmat 1\nend 1\n"
    with open_store(str(tmp_path / "train.arrow")) as store:
        data = read_all(store)["data"]
    np.testing.assert_array_equal(data[:, 0], [1, 2, 3, 4, 1, 5, 0, 0, 1, 6])
    np.testing.assert_array_equal(data[:4, 1:], [[0, 0, 2], [1, 2, 4], [1, 2, 4], [2, 4, 7]])
    with open_store(str(tmp_path / "test.arrow")) as store:
        np.testing.assert_array_equal(read_all(store)["data"], [[1, 0, 0, 2], [3, 1, 2, 4], [0, 0, 0, 2]])


@pytest.mark.parametrize(
    ("text", "vocabulary", "class_size", "message"),
    [
        ("a b", None, 4, "the number of word classes is 4, expected 1 to 3"),
        ("a b", None, 0, "the number of word classes is 0, expected 1 to 3"),
        ("a b", "</s> 1\nc 2\n", 1, r"no word of the vocabulary .*vocab\.txt"),
        ("a b", "</s> 1\nc\n", 1, r"vocab\.txt, line 2: the line is 'c'"),
        ("a b", "a 1\n</s> 2\n", 1, r"vocab\.txt, line 1: the line is 'a 1'. Expected .* first that of </s>"),
        ("a b", "</s> 1\na 1\na 1\n", 1, r"vocab\.txt, line 3"),
    ],
)
def test_what_is_wrong(text: str, vocabulary: str | None, class_size: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    if vocabulary:
        (tmp_path / "vocab.txt").write_text(vocabulary)
    with pytest.raises(DataError, match=message):
        read_words([str(tmp_path / "a.txt")], None, str(tmp_path / "vocab.txt"), class_size)
