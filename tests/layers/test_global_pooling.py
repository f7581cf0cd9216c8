"""GlobalPooling: means, largest values, and who gets their gradient."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.layers import LayerSite, ShardIndex
from singa_dask.layers.pooling import GlobalPooling
from singa_dask.net import wiring
from singa_dask.testing.case import CPU, Case, backward, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts

LARGEST = {"globalpooling_conf": {"pool": "MAX"}}
CASES = [Case("GlobalPooling", [(3, 4, 2, 5)]), Case("GlobalPooling", [(3, 4, 5, 3)], LARGEST)]


@pytest.mark.parametrize("shape", [(3, 4, 2, 5), (2, 1, 1, 1), (2, 20, 17, 16)])
def test_formula(shape: tuple[int, ...]) -> None:
    x = source(shape)
    mean, largest = wire("GlobalPooling", [x]), wire("GlobalPooling", [x], **LARGEST)
    forward(mean)
    forward(largest)
    np.testing.assert_allclose(mean.features[0].data, x.data.mean(axis=(2, 3)))
    np.testing.assert_array_equal(largest.features[0].data, x.data.max(axis=(2, 3)))


def test_layouts() -> None:
    for conf in ({}, LARGEST):
        check_layouts("GlobalPooling", (3, 4, 2, 5), **conf)


def test_images_of_one_channel() -> None:
    for conf in ({}, LARGEST):
        layer = wire("GlobalPooling", [source((3, 4, 5))], **conf)
        assert layer.features[0].shape == (3, 1)
        check_gradients(layer)


def test_the_first_of_equal_values_gets_the_gradient() -> None:
    x = source((1, 1, 2, 2))
    x.data[...] = [[[[1, 3], [3, 2]]]]
    layer = wire("GlobalPooling", [x], **LARGEST)
    forward(layer)
    layer.features[0].grad[...] = 5
    backward(layer)
    np.testing.assert_array_equal(x.grad, [[[[0, 5], [0, 0]]]])


def test_refuses() -> None:
    with pytest.raises(ConfigError, match=r"srclayers: 'src0' gives records of \(4,\), expected images"):
        wire("GlobalPooling", [source((2, 4))])
    layer = wire("GlobalPooling", [source((3, 4, 5))])
    part = GlobalPooling(layer.conf, layer.context, LayerSite("layer", feature_shard=ShardIndex(0, 2)))
    with pytest.raises(ConfigError, match="partition_dim: images without channels have no features to share"):
        wiring.wire(part, layer.sources, CPU)
