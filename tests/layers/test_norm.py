"""LRN and BatchNorm: gradients, formulas, and the statistics that run along with training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import Context, Feature
from singa_dask.testing.case import backward, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients
from tests.layers.exam import check_layouts

TEST = Context(phase=Phase.TEST, dtype=np.dtype(np.float64))


@pytest.mark.parametrize("shape", [(2, 5, 2, 3), (2, 1, 2, 2), (2, 4, 3)])
@pytest.mark.parametrize("block", [{}, {"local_size": 3, "alpha": 5e-5}, {"local_size": 1, "beta": 0.5, "knorm": 2.0}])
def test_lrn(shape: tuple[int, ...], block: dict[str, Any]) -> None:
    check_gradients(wire("LRN", [source(shape)], lrn_conf=block))


def test_lrn_sums_over_channels() -> None:
    x = source((1, 3, 1, 1))
    x.data[0, :, 0, 0] = [1, 2, 3]
    layer = wire("LRN", [x], lrn_conf={"local_size": 3, "alpha": 6, "beta": 0.5, "knorm": 1})
    forward(layer)
    np.testing.assert_allclose(layer.features[0].data[0, :, 0, 0], [1, 2, 3] / np.sqrt(1 + 2 * np.array([5, 14, 13])))
    check_layouts("LRN", (2, 5, 3, 4), lrn_conf={"local_size": 3})


def test_lrn_wants_images() -> None:
    with pytest.raises(ConfigError, match=r"srclayers: 'src0' gives records of \(4,\), expected images"):
        wire("LRN", [source((2, 4))])


@pytest.mark.parametrize("shape", [(3, 2, 2, 3), (4, 3), (3, 2, 4)])
def test_batch_norm(shape: tuple[int, ...]) -> None:
    layer = wire("BatchNorm", [source(shape)])
    check_gradients(layer)
    c = 1 if len(shape) == 3 else shape[1]
    assert [(p.name, p.shape, p.running_statistic) for p in layer.params] == [
        ("layer.scale", (c,), False),
        ("layer.shift", (c,), False),
        ("layer.mean", (c,), True),
        ("layer.variance", (c,), True),
    ]


def test_batch_norm_of_records_that_need_no_gradient() -> None:
    check_gradients(wire("BatchNorm", [source((3, 2, 2, 2), grad=False)]))


def test_layouts() -> None:
    check_layouts("BatchNorm", (3, 2, 4, 5))


def test_batch_norm_in_training_and_in_a_test() -> None:
    x = source((4, 2, 3, 5))
    layer = wire("CudnnBM", [x], bm_conf={"momentum": 0.75, "epsilon": 0.01})
    scale, shift, mean, variance = layer.params
    variance.data[...] = [2, 3]
    forward(layer)
    own = x.data.mean(axis=(0, 2, 3)), x.data.var(axis=(0, 2, 3))

    def wanted(m: Any, v: Any) -> Any:
        over = (slice(None), None, None)
        return scale.data[over] * (x.data - m[over]) / np.sqrt(v + 0.01)[over] + shift.data[over]

    np.testing.assert_allclose(layer.features[0].data, wanted(*own))
    layer.features[0].grad[...] = 1
    backward(layer)
    for param, of_batch in zip((mean, variance), own, strict=True):
        before = param.data.copy()
        param.data -= param.grad
        np.testing.assert_allclose(param.data, 0.75 * before + 0.25 * of_batch)
    test = wire("BM", [x], TEST, bm_conf={"epsilon": 0.01})
    for param, trained in zip(test.params, layer.params, strict=True):
        param.share(trained)
    forward(test)
    np.testing.assert_allclose(test.features[0].data, wanted(mean.data, variance.data))


def test_first_values_where_the_job_gives_none() -> None:
    layer = wire("BM", [source((2, 3))], param=[{"name": "s"}, {"init": {"type": "Constant", "value": 5}}])
    inits = [param.conf.init for param in layer.params]
    assert [(init.type, init.value) for init in inits if init] == [("Constant", v) for v in (1, 5, 0, 1)]
    assert layer.params[0].name == "s"


def test_batch_norm_wants_images_or_rows() -> None:
    for shape in ((2,), (2, 1, 2, 3, 4)):
        with pytest.raises(ConfigError, match=r"srclayers: 'src0' gives records of .*, expected images or rows"):
            wire("BatchNorm", [Feature(shape)])
