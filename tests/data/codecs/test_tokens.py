"""Texts as numbers: those of the most frequent tokens, below the size of the vocabulary."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from singa_dask.data.codecs.tokens import PADDING, UNKNOWN, TextCodec


@pytest.mark.parametrize("tokens", ["words", "characters"])
def test_a_vocabulary_has_as_many_numbers_as_its_size(tokens: str) -> None:
    texts = ["a b a c", "b a d", "e b a"]
    parts = [text.split() if tokens == "words" else list(text) for text in texts]
    wanted = Counter(token for text in parts for token in text)
    codec, counts = TextCodec(length=7, tokens=tokens, vocab_size=3), Counter[str]()
    np.testing.assert_array_equal(codec.count(pa.array(texts), counts), list(map(len, parts)))
    assert counts == wanted
    known = [token for token, _ in sorted(wanted.items(), key=lambda each: (-each[1], each[0]))[:2]]
    numbers = [[1 + known.index(token) if token in known else UNKNOWN for token in text] for text in parts]
    rows = [[*row, *[PADDING] * (7 - len(row))] for row in numbers]
    np.testing.assert_array_equal(codec.learned(counts).encode(pa.array(texts)), rows)
