"""Rotation and colours of the augmentation against PyTorch, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.inputs.augmentation import Augmentation, AugmentConf, Mixing, rotated, symmetric_beta
from singa_dask.layers import RecordIds
from tests.oracles.compare import assert_close, numbers, tensor

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional


@pytest.mark.parametrize("shape", [(3, 9, 12), (1, 8, 8)])
@pytest.mark.parametrize("has_mean", [False, True])
def test_rotation(shape: tuple[int, ...], has_mean: bool) -> None:
    random = np.random.default_rng(1)
    x, degrees = random.normal(size=(6, *shape)), np.array([-180, -77.7, -3, 0, 45, 130.0])
    mean = random.normal(size=shape) if has_mean else 0.5
    height, width = shape[1:]
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    # rows of (x, y), in units of half the width and half the height
    matrix = np.zeros((6, 2, 3))
    matrix[:, 0, 0], matrix[:, 0, 1] = cos, -sin * height / width
    matrix[:, 1, 0], matrix[:, 1, 1] = sin * width / height, cos
    grid = functional.affine_grid(tensor(matrix), x.shape, align_corners=False)
    sampled, share = (functional.grid_sample(tensor(each), grid, align_corners=False) for each in (x, np.ones_like(x)))
    wanted = numbers(sampled) + (1 - numbers(share)) * mean
    assert_close(rotated(x, degrees, mean), wanted)


@pytest.mark.parametrize("alpha", [0.2, 0.4, 1.0, 3.0])
def test_shares_of_mixed_records(alpha: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    words = np.random.default_rng(6).integers(0, 2**32, (2, 20_000))
    assert stats.kstest(symmetric_beta(alpha, words), stats.beta(alpha, alpha).cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(5,), (3, 4, 5)])
def test_mixup(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    x, other = random.normal(size=(2, 6, *shape))
    words = random.integers(0, 2**32, (4, 6))
    mixed, shares = Mixing(AugmentConf(mixup=0.4), shape, lambda *_: words)(x, other, RecordIds())
    assert_close(shares, symmetric_beta(0.4, words))
    weights = tensor(shares).reshape(6, *[1] * len(shape))
    assert_close(mixed, numbers(torch.lerp(tensor(other), tensor(x), weights.expand(6, *shape))))


@pytest.mark.parametrize("key", ["brightness", "contrast", "saturation"])
def test_colours(key: str) -> None:
    x = np.random.default_rng(2).normal(size=(5, 3, 6, 7))
    words = np.random.default_rng(3).integers(0, 2**32, (4, 5))
    change = Augmentation(AugmentConf(**{key: 0.5}), x.shape[1:], None, None, lambda *_: words)
    factor = tensor(0.5 + words[("brightness", "contrast", "saturation").index(key)] / 2**32)[:, None, None, None]
    colours = tensor(x)
    grey = torch.einsum("nchw,c->nhw", colours, tensor([0.299, 0.587, 0.114]))[:, None]
    other = {"brightness": 0 * grey, "contrast": grey.mean((1, 2, 3), keepdim=True), "saturation": grey}[key]
    wanted = torch.lerp(other.expand_as(colours), colours, factor.expand_as(colours))
    assert_close(change(x, np.arange(5), np.zeros(5, np.int64)), numbers(wanted))
