"""A whole net on images: gradients through all of its layers, what it allocates, what it says of itself."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.inputs import InputContext
from singa_dask.net import NeuralNet, make_net
from singa_dask.training import ALGORITHMS, initial_values
from tests.backends import backend
from tests.net.jobs import UNIFORM, dense, job, layer

BATCH = 256


def window(kind: str, name: str, source: str, **block: Any) -> dict[str, Any]:
    made = layer(name, kind, source)
    if kind == "Pooling":
        return {**made, "pooling_conf": block}
    params = [{"name": f"{p}_{name}", "init": UNIFORM} for p in ("w", "b")]
    return {**made, "convolution_conf": block, "param": params}


def images(batch: int, size: int) -> list[dict[str, Any]]:
    """Return a net with every layer on images, one of them read twice."""
    return [
        {"name": "data", "type": "Feed", "user_conf": {"shape": [batch, 3, size, size], "classes": 2}},
        window("Convolution", "conv1", "data", num_filters=4, kernel=3, pad=1),
        window("Pooling", "pool1", "conv1", kernel=3),
        layer("relu1", "ReLU", "pool1", share_src_blobs=True, relu_conf={"negative_slope": 0.1}),
        layer("norm1", "LRN", "relu1", lrn_conf={"local_size": 3, "alpha": 0.5}),
        window("Convolution", "conv2", "norm1", num_filters=5, kernel_x=3, kernel_y=2),
        layer("bn2", "BatchNorm", "conv2"),
        layer("tanh2", "STanh", "bn2", share_src_blobs=True),
        window("Pooling", "pool2", "tanh2", kernel=2, stride=1, pad=1, pool="AVG"),
        layer("drop2", "Dropout", "pool2"),
        dense("fc3", "drop2", 3),
        layer("loss", "SoftmaxLoss", "fc3", "data"),
        # what reads tanh2 as well
        dense("fc4", "tanh2", 2),
        layer("more", "SoftmaxLoss", "fc4", "data", softmaxloss_conf={"scale": 0.5}),
        layer("soft", "Softmax", "fc3"),
        layer("score", "Accuracy", "soft", "data"),
    ]


def ready(layers: list[dict[str, Any]], ops: str, dtype: Any) -> NeuralNet:
    net = make_net(job(layers), InputContext(dtype=np.dtype(dtype)), backend(ops))
    net.allocate()
    net.allocate_params()
    for param in net.owners:
        assert param.conf.init
        net.ops.copy(initial_values(param.conf.init, param.name, param.shape, 3, param.dtype), out=param.data)
    return net


def loss(net: NeuralNet) -> float:
    net.name2layer("data").seek({"position": 0})
    for each in net.layers:
        net.forward(each, Phase.TRAIN | Phase.FORWARD)
    figures = net.take_metrics()
    return figures["loss.loss"][0] + figures["more.loss"][0]


def test_gradients_through_a_whole_net() -> None:
    net = ready(images(4, 8), "numpy", np.float64)
    loss(net)
    for each in reversed(net.layers):
        if each.learns:
            net.backward(each, Phase.TRAIN | Phase.BACKWARD)
    random, epsilon = np.random.default_rng(0), 1e-5
    for param in net.owners:
        if param.running_statistic:
            continue
        values, grad = param.data.reshape(-1), param.grad.reshape(-1).copy()
        for place in random.permutation(param.size)[:8]:
            kept, sides = values[place], []
            for sign in (1, -1):
                values[place] = kept + sign * epsilon
                sides.append(loss(net))
            values[place] = kept
            assert (sides[0] - sides[1]) / (2 * epsilon) == pytest.approx(grad[place], abs=1e-6), param


@pytest.mark.parametrize("ops", ["numpy", "onednn"])
def test_a_step_allocates_nothing_of_the_size_of_its_batch(ops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = ready(images(BATCH, 24), ops, np.float32)
    algorithm = ALGORITHMS.find("BP")(net)
    algorithm.train_one_batch(0)
    # the input layer of the tests draws a batch anew each time
    monkeypatch.setattr(net.name2layer("data"), "forward", lambda phase: None)
    tracemalloc.start()
    try:
        for step in range(1, 3):
            algorithm.train_one_batch(step)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    features = [feature for each in net.layers for feature in each.features if len(feature.shape) == 4]
    # pieces and the buffers of numpy are allocated, which do not grow with the batch
    assert peak < min(feature.data.nbytes for feature in features)


def test_description_has_the_shapes_of_images() -> None:
    rows = {
        line.split()[0]: " ".join(line.split()) for line in ready(images(4, 8), "numpy", "f4").describe().splitlines()
    }
    assert rows["conv1"] == "conv1 Convolution data 4 x 4 x 8 x 8 w_conv1 4 x 27, b_conv1 4"
    assert rows["pool1"] == "pool1 Pooling conv1 4 x 4 x 3 x 3"
    assert rows["bn2"].startswith("bn2 BatchNorm conv2 4 x 5 x 2 x 1 bn2.scale 5, bn2.shift 5, bn2.mean 5, bn2.var")
    n_values = 4 * 27 + 4 + 5 * 24 + 5 + 2 * 5 + 3 * 30 + 3 + 2 * 10 + 2
    assert rows[str(n_values)] == f"{n_values} values to learn"
