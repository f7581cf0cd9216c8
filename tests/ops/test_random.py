"""Random numbers by address: the same for any split of the rows, apart for other keys, of the right distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps, philox


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


def test_distributions() -> None:
    u, g = philox.uniform((0,), (1000, 100)), philox.gaussian((0,), (1000, 100))
    assert 0 <= u.min() and u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=0.005)
    assert g.mean() == pytest.approx(0, abs=0.01)
    assert g.std() == pytest.approx(1, abs=0.01)
    assert np.isfinite(g).all()


def test_dropout_mask(ops: NumpyOps, dtype: Any) -> None:
    mask = np.empty((500, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=mask)
    np.testing.assert_allclose(np.unique(mask), [0, 1 / 0.75], rtol=1e-6)
    assert mask.mean() == pytest.approx(1, abs=0.02)
    part = np.empty((100, 40), dtype)
    ops.dropout_mask((3, "drop", 0), 0.75, out=part, first_row=200)
    np.testing.assert_array_equal(part, mask[200:300])


def test_bounds_and_moments(ops: NumpyOps, dtype: Any) -> None:
    out = np.empty((500, 40), dtype)
    ops.uniform((3, "u"), out=out, low=-2, high=4)
    assert -2 <= out.min() and out.max() < 4
    assert out.mean() == pytest.approx(1, abs=0.05)
    ops.gaussian((3, "g"), out=out, mean=5, std=2)
    assert out.mean() == pytest.approx(5, abs=0.05)
    assert out.std() == pytest.approx(2, abs=0.05)


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


def test_words_belong_to_an_address(ops: NumpyOps) -> None:
    ids, epochs = np.arange(10_000) * 2**21, np.arange(10_000) % 3
    words = ops.random_words((1, "cut"), ids, epochs)
    assert words.shape == (4, 10_000)
    assert 0 <= words.min() and words.max() < 2**32
    np.testing.assert_array_equal(ops.random_words((1, "cut"), ids[::-7], epochs[::-7]), words[:, ::-7])
    for other in (((2, "cut"), ids, epochs), ((1, "cut2"), ids, epochs), ((1, "cut"), ids + 1, epochs)):
        assert (ops.random_words(*other) == words).mean() < 1e-3
    np.testing.assert_allclose((words / 2**32).mean(axis=1), 0.5, atol=0.02)
    assert np.abs(np.corrcoef(words) - np.eye(4)).max() < 0.05
