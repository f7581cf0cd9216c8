"""Layers on bfloat16 features: outputs and gradients near those of float64, and what stays float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.data.stores import open_store
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Context, Feature, Layer, Raw, RecordIds
from singa_dask.net import memory, wiring
from singa_dask.ops import BFLOAT16, NumpyOps, get_ops
from singa_dask.testing.case import forward

WITHIN = 2.0**-6
IMAGES, ROWS = (4, 16, 7, 7), (6, 12)
LABELS = [0, 3, 2, 1, 5, 4]


@pytest.fixture(scope="module")
def ops() -> NumpyOps:
    try:
        return get_ops("onednn", "bf16")
    except ConfigError as error:
        pytest.skip(str(error))


def source(ops: NumpyOps, shape: tuple[int, ...], dtype: Any, seed: int) -> Feature:
    """Return a feature of values that bfloat16 has."""
    feature = Feature(shape, dtype)
    feature.data, feature.grad = (ops.features(shape, dtype) for _ in range(2))
    feature.data[...] = np.random.default_rng(seed).normal(size=shape).astype(BFLOAT16)
    feature.records = RecordIds(np.array(LABELS[: shape[0]], np.int32))
    return feature


def passed(ops: NumpyOps, kind: str, shapes: list[tuple[int, ...]], dtype: Any, given: Any, **conf: Any) -> Layer:
    """Return a layer with features of ``dtype`` after one pass forward and back, from sources of type ``given``."""
    sources = [source(ops, shape, given, seed) for seed, shape in enumerate(shapes)]
    names = [f"src{i}" for i in range(len(sources))]
    made = LayerConf.model_validate({"name": "layer", "type": kind, "srclayers": names, **conf})
    layer = LAYERS.find(kind)(made, Context(dtype=np.dtype(dtype)))
    wiring.wire(layer, sources, ops)
    layer.learns = True
    random = np.random.default_rng(99)
    for param in layer.params:
        param.data = random.normal(size=param.shape).astype(BFLOAT16).astype(param.dtype)
    memory.allocate(layer)
    forward(layer)
    for feature in layer.features:
        if feature.grad is not None:
            feature.grad[...] = random.normal(size=feature.shape).astype(BFLOAT16)
    layer.backward(Phase.TRAIN | Phase.BACKWARD)
    return layer


def results(layer: Layer) -> list[Any]:
    """Return what a layer wrote."""
    features = [feature.data for feature in layer.features] + [each.grad for each in layer.sources]
    return [values.astype(np.float64) for values in features + [param.grad for param in layer.params]]


PASS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("InnerProduct", [ROWS], {"innerproduct_conf": {"num_output": 8}}),
    ("InnerProduct", [IMAGES], {"innerproduct_conf": {"num_output": 8, "transpose": True}}),
    ("Convolution", [IMAGES], {"convolution_conf": {"num_filters": 16, "kernel": 3, "pad": 1}}),
    ("Pooling", [IMAGES], {"pooling_conf": {"pool": "MAX", "kernel": 3, "stride": 2}}),
    ("Pooling", [IMAGES], {"pooling_conf": {"pool": "AVG", "kernel": 3, "stride": 2}}),
    ("LRN", [IMAGES], {"lrn_conf": {"local_size": 3}}),
    ("BatchNorm", [IMAGES], {}),
    ("ReLU", [IMAGES], {"relu_conf": {"negative_slope": 0.1}}),
    ("Sigmoid", [ROWS], {}),
    ("Tanh", [ROWS], {}),
    ("STanh", [ROWS], {}),
    ("Dropout", [IMAGES], {"dropout_conf": {"dropout_ratio": 0.3}}),
    ("Dummy", [ROWS], {}),
]
EXACT: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("Softmax", [ROWS], {}),
    ("Softmax", [IMAGES], {"softmax_conf": {"num_softmax_per_instance": 49}}),
    ("SoftmaxLoss", [ROWS, ROWS], {}),
    ("EuclideanLoss", [ROWS, ROWS], {}),
]


def test_a_loss_of_several_labels(ops: NumpyOps) -> None:
    found = []
    for kernels, dtype in ((ops, BFLOAT16), (NumpyOps(), np.dtype(np.float64))):
        x, target = source(kernels, ROWS, dtype, 0), source(kernels, ROWS, dtype, 1)
        target.data[...] = target.data > 0
        made = LayerConf.model_validate({"name": "loss", "type": "SigmoidCrossEntropyLoss", "srclayers": ["x", "t"]})
        layer = LAYERS.find(made.type)(made, Context(dtype=dtype))
        wiring.wire(layer, [x, target], kernels)
        memory.allocate(layer)
        forward(layer)
        layer.backward(Phase.TRAIN | Phase.BACKWARD)
        assert x.grad.dtype == dtype
        found.append([x.grad.astype(np.float64), *(total for total, _ in layer.metrics.take().values())])
    for values, wanted in zip(*found, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=0.01, atol=1e-4)


@pytest.mark.parametrize(("kind", "shapes", "conf"), PASS + EXACT)
@pytest.mark.parametrize("given", [BFLOAT16, np.dtype(np.float32)], ids=["from-bf16", "from-float32"])
def test_outputs_and_gradients(
    ops: NumpyOps, kind: str, shapes: list[tuple[int, ...]], conf: dict[str, Any], given: np.dtype[Any]
) -> None:
    layer = passed(ops, kind, shapes, BFLOAT16, given, **conf)
    wanted = passed(NumpyOps(), kind, shapes, np.float64, np.float64, **conf)
    is_exact = any(kind == exact for exact, *_ in EXACT)
    assert {feature.data.dtype for feature in layer.features} == {np.dtype(np.float32) if is_exact else BFLOAT16}
    assert {param.grad.dtype for param in layer.params} <= {np.dtype(np.float32)}
    for actual, expected in zip(results(layer), results(wanted), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=WITHIN, atol=WITHIN * np.abs(expected).max())


def test_a_split_passes_on_the_type(ops: NumpyOps) -> None:
    for given in (BFLOAT16, np.dtype(np.float32)):
        layer = passed(ops, "Split", [ROWS], BFLOAT16, given, split_conf={"num_splits": 2})
        assert {values.dtype for feature in layer.features for values in (feature.data, feature.grad)} == {given}


def test_columns_are_counted_exactly(ops: NumpyOps) -> None:
    layer = passed(ops, "ArgSort", [(6, 1000)], BFLOAT16, BFLOAT16, argsort_conf={"topk": 3})
    wanted = passed(NumpyOps(), "ArgSort", [(6, 1000)], np.float64, np.float64, argsort_conf={"topk": 3})
    np.testing.assert_array_equal(layer.features[0].data, wanted.features[0].data)


def test_pictures_become_bfloat16(ops: NumpyOps) -> None:
    pictures = np.random.default_rng(3).integers(0, 256, (4, 3, 9, 8), np.uint8)
    for kind in ("stored", "data"):
        source = Feature(pictures.shape, BFLOAT16, requires_grad=False)
        source.data = ops.features(pictures.shape, BFLOAT16)
        source.data[...] = pictures
        if kind == "stored":
            source.raw = Raw(pictures, 127.5, 64.0)
        made = LayerConf.model_validate(
            {"name": "cut", "type": "ImagePreprocess", "srclayers": ["data"], "rgbimage_conf": {"cropsize": 6}}
        )
        layer = LAYERS.find("ImagePreprocess")(made, Context(phase=Phase.TEST, dtype=BFLOAT16))
        wiring.wire(layer, [source], ops)
        memory.allocate(layer)
        layer.forward(Phase.TEST | Phase.FORWARD)
        wanted = pictures[:, :, 1:7, 1:7].astype(np.float32)
        if kind == "stored":
            wanted = (wanted - np.float32(127.5)) / np.float32(64)
        np.testing.assert_array_equal(layer.features[0].data, wanted.astype(BFLOAT16))


def test_outputs_are_written_as_numbers(ops: NumpyOps, tmp_path: Path) -> None:
    x = source(ops, (2, 3), BFLOAT16, 0)
    for kind in ("CSVOutput", "RecordOutput"):
        path = tmp_path / kind
        made = LayerConf.model_validate(
            {"name": "out", "type": kind, "srclayers": ["x"], "store_conf": {"path": str(path)}}
        )
        layer = LAYERS.find(kind)(made, Context(phase=Phase.TEST, dtype=BFLOAT16))
        wiring.wire(layer, [x], ops)
        layer.forward(Phase.TEST | Phase.FORWARD)
        layer.close()
    lines = [line.split(",") for line in (tmp_path / "CSVOutput").read_text().splitlines()]
    np.testing.assert_allclose(np.array(lines, float)[:, 1:], x.data.astype(np.float64), atol=1e-6)
    with open_store(str(tmp_path / "RecordOutput"), "kvfile") as store:
        np.testing.assert_array_equal(store.read_block(0)["data"], x.data.astype(np.float32))
