"""Random numbers by address: the same for any split of the rows, apart for other keys, of the right distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import philox


@pytest.mark.parametrize("draw", [philox.uniform, philox.gaussian])
@pytest.mark.parametrize("shape", [(12, 5), (12, 8), (12, 3, 3), (12,)])
def test_rows_are_the_same_however_they_are_split(draw: Any, shape: tuple[int, ...]) -> None:
    key = (1, "drop1", 7)
    whole = draw(key, shape)
    assert whole.shape == shape
    for n_workers in (2, 3, 4):
        rows = 12 // n_workers
        parts = [draw(key, (rows, *shape[1:]), first_row=worker * rows) for worker in range(n_workers)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_keys_are_apart() -> None:
    keys = [(1, "a", 0), (2, "a", 0), (1, "b", 0), (1, "a", 1), ("1", "a", 0)]
    drawn = [philox.uniform(key, (4, 4)) for key in keys]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            assert not np.array_equal(one, other)


def test_what_was_drawn_before_does_not_matter() -> None:
    philox.uniform((6,), (2, 3), 7)
    drawn = philox.uniform((5,), (2, 16), 1)
    np.testing.assert_array_equal(drawn, philox.generator((5,), 2).random((2, 16), dtype=np.float32))


def test_distributions() -> None:
    u, g = philox.uniform((0,), (1000, 100)), philox.gaussian((0,), (1000, 100))
    assert 0 <= u.min() and u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=0.005)
    assert g.mean() == pytest.approx(0, abs=0.01)
    assert g.std() == pytest.approx(1, abs=0.01)
    assert np.isfinite(g).all()


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_gives_the_words_of_its_authors(counter: str, key: str, words: str) -> None:
    def read(text: str) -> Any:
        return np.array([int(word, 16) for word in text.split()], np.uint64)

    np.testing.assert_array_equal(philox.philox4x32(read(counter)[:, None], read(key))[:, 0], read(words))
