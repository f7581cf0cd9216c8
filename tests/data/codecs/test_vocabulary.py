"""Characters as their places in a vocabulary."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.stores.texts import vocabulary
from singa_dask.data.stores.texts.vocabulary import encode_text, vocabulary_of
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text


@given(st.text(min_size=1))
def test_places_lead_back_to_the_characters(text: str) -> None:
    known = vocabulary_of(text)
    assert list(known) == sorted(set(text))
    places = encode_text(text, known, "text")
    assert places.dtype.itemsize == (1 if len(known) <= 256 else 2)
    assert "".join(known[place] for place in places) == text


def test_of_a_character_that_is_there_twice_the_first_place_counts() -> None:
    np.testing.assert_array_equal(encode_text("abcab", "cabac", "text"), [1, 2, 0, 1, 2])
    assert encode_text("", "abc", "text").size == 0


@pytest.mark.parametrize("piece", [1, 3, 100])
def test_a_character_that_is_missing_is_found_in_any_piece(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "PIECE", piece)
    np.testing.assert_array_equal(encode_text("abcab", "cab", "text"), [1, 2, 0, 1, 2])
    with pytest.raises(DataError, match=r"text:2:3: character '€' is not in the vocabulary"):
        encode_text("a\nbc€€", "abc\n", "text")


def test_files_may_be_gzipped(tmp_path: Path) -> None:
    text = "wörld\r\n"
    (tmp_path / "plain").write_bytes(text.encode())
    (tmp_path / "packed").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "empty").write_bytes(b"")
    assert [decode_text(str(tmp_path / name)) for name in ("plain", "packed", "empty")] == [text, text, ""]
    (tmp_path / "packed").write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(DataError, match="the gzip file is damaged"):
        decode_text(str(tmp_path / "packed"))


def test_the_characters_of_the_text_that_is_here() -> None:
    text = decode_text("data/text/jargon.txt.gz")
    assert len(text) == 1_379_044
    assert vocabulary_of(text) == decode_text("data/text/vocab.txt")
