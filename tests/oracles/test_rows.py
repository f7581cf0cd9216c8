"""Layers on rows against PyTorch and SciPy: inner product, activations, softmax, losses, embedding, dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.layers import Layer, RecordIds
from singa_dask.testing.case import backward, forward, metric, source, wire
from tests.oracles.compare import assert_close, check, numbers, tensor

torch = pytest.importorskip("torch")
special = pytest.importorskip("scipy.special")
functional: Any = torch.nn.functional


@pytest.mark.parametrize("shape", [(5, 7), (4, 2, 3, 2)])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_inner_product(shape: tuple[int, ...], transpose: bool, bias: bool) -> None:
    block = {"num_output": 6, "transpose": transpose, "bias_term": bias}

    def reference(x: Any, w: Any, b: Any = None) -> Any:
        return functional.linear(x.flatten(1), w.T if transpose else w, b)

    check(wire("InnerProduct", [source(shape)], innerproduct_conf=block), reference)


ACTIVATIONS: dict[str, Any] = {
    "RELU": torch.relu,
    "SIGMOID": torch.sigmoid,
    "TANH": torch.tanh,
    "STANH": lambda x: 1.7159047 * torch.tanh(0.66666667 * x),
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 4, 5)])
def test_activations(kind: str, shape: tuple[int, ...]) -> None:
    check(wire("Activation", [source(shape)], activation_conf={"type": kind}), ACTIVATIONS[kind])


def test_leaky_relu() -> None:
    layer = wire("ReLU", [source((5, 7))], relu_conf={"negative_slope": 0.1})
    check(layer, lambda x: functional.leaky_relu(x, 0.1))


def test_sigmoid_and_tanh_far_from_zero_are_scipys() -> None:
    x = source((1, 200))
    x.data[0] = np.linspace(-700, 700, 200)
    for kind, wanted in (("Sigmoid", special.expit(x.data)), ("Tanh", np.tanh(x.data))):
        layer = wire(kind, [x])
        forward(layer)
        assert_close(layer.features[0].data, wanted)


@pytest.mark.parametrize(("shape", "n"), [((5, 7), 1), ((5, 12), 3), ((2, 3, 2, 4), 1), ((2, 3, 2, 4), 8)])
def test_softmax(shape: tuple[int, ...], n: int) -> None:
    def reference(x: Any) -> Any:
        if len(shape) == 4 and n > 1:
            return torch.softmax(x, dim=1)
        return torch.softmax(x.flatten(1).reshape(len(x), n, -1), dim=2).flatten(1)

    check(wire("Softmax", [source(shape)], softmax_conf={"num_softmax_per_instance": n}), reference)


def check_loss(layer: Layer, name: str, wanted: Any, scores: Any, gradient_factor: float = 1.0) -> None:
    """Compare a loss, and the gradient of the scores, which is that of the loss times a factor."""
    forward(layer)
    assert_close(metric(layer, name)(), numbers(wanted))
    backward(layer)
    (wanted * gradient_factor).backward()
    assert_close(layer.sources[0].grad, numbers(scores.grad))


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("shape", [(5, 7), (3, 2, 2, 3)])
def test_softmax_cross_entropy(scale: float, shape: tuple[int, ...]) -> None:
    labels = np.random.default_rng(4).integers(7, size=shape[0])
    x = source(shape)
    layer = wire("SoftmaxLoss", [x, source((shape[0], 1), labels=labels.tolist(), grad=False)],
                 softmaxloss_conf={"scale": scale, "topk": 1})  # fmt: skip
    scores = tensor(x.data)
    wanted = scale * functional.cross_entropy(scores.flatten(1), torch.from_numpy(labels))
    check_loss(layer, "loss", wanted, scores)
    log_p = special.log_softmax(x.data.reshape(len(labels), -1), axis=1)
    assert_close(np.log(layer.features[0].data), log_p)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_mixed_records(smoothing: float) -> None:
    random = np.random.default_rng(5)
    labels, partners, shares = random.integers(7, size=6), random.integers(7, size=6), random.uniform(0.5, 1, 6)
    x, mixed, weights = source((6, 7)), source((6, 1), grad=False), source((6, 1), grad=False)
    mixed.records = RecordIds(labels.astype(np.int32), None, None, partners.astype(np.int32), shares)
    weights.data[...] = np.abs(weights.data)
    layer = wire("SoftmaxLoss", [x, mixed, weights], softmaxloss_conf={"label_smoothing": smoothing})
    scores = tensor(x.data)
    target = tensor(shares[:, None] * np.eye(7)[labels] + (1 - shares)[:, None] * np.eye(7)[partners])
    losses = functional.cross_entropy(scores, target, reduction="none", label_smoothing=smoothing)
    check_loss(layer, "loss", (tensor(weights.data[:, 0]) * losses).mean(), scores)
    best = tensor(x.data).argmax(dim=1)
    forward(layer)
    assert layer.metrics.take()["accuracy"] == ((best == torch.from_numpy(labels)).double().mean(), 1)


def test_cross_entropy_of_scores_far_apart() -> None:
    x = source((4, 5))
    x.data[...] *= 100
    labels = [0, 1, 2, 3]
    layer = wire("SoftmaxLoss", [x, source((4, 1), labels=labels, grad=False)])
    scores = tensor(x.data)
    check_loss(layer, "loss", functional.cross_entropy(scores, torch.tensor(labels)), scores)


@pytest.mark.parametrize("k", [1, 3])
def test_accuracy(k: int) -> None:
    x, labels = source((40, 7)), np.random.default_rng(4).integers(7, size=40)
    layer = wire("SoftmaxLoss", [x, source((40, 1), labels=labels.tolist(), grad=False)], softmaxloss_conf={"topk": k})
    forward(layer)
    best = tensor(x.data).topk(k, dim=1).indices
    assert metric(layer, "accuracy")() == (best == torch.from_numpy(labels)[:, None]).any(dim=1).double().mean()


def test_euclidean_loss() -> None:
    x, target = source((5, 7)), source((5, 7), seed=1, grad=False)
    values = tensor(x.data)
    wanted = (values - tensor(target.data, learns=False)).square().sum() / 5
    # reported without the half that the gradient belongs to, as SINGA does
    check_loss(wire("EuclideanLoss", [x, target]), "loss", wanted, values, gradient_factor=0.5)


def test_sigmoid_cross_entropy() -> None:
    x, target = source((5, 7)), source((5, 7), seed=1, grad=False)
    x.data[...] *= 10
    target.data[...] = target.data > 0
    scores = tensor(x.data)
    wanted = torch.nn.BCEWithLogitsLoss()(scores, tensor(target.data, learns=False))
    layer = wire("SigmoidCrossEntropyLoss", [x, target])
    check_loss(layer, "loss", wanted, scores)
    assert_close(layer.features[0].data, special.expit(x.data))


def test_embedding() -> None:
    words = np.array([[3, 0, 3], [1, 3, 4]])
    x = source(words.shape, grad=False)
    x.data[...] = words
    layer = wire("Embedding", [x], n_steps=3, embedding_conf={"vocab_size": 5, "feature_dim": 4})
    # a time step after the other, in each all rows
    check(layer, lambda _, table: functional.embedding(torch.from_numpy(words.T.reshape(-1)), table))
    layer = wire("Embedding", [x], embedding_conf={"vocab_size": 5, "feature_dim": 4})
    check(layer, lambda _, table: functional.embedding(torch.from_numpy(words), table))


def test_dropout_is_its_mask() -> None:
    layer = wire("Dropout", [source((50, 40))], dropout_conf={"dropout_ratio": 0.3})
    check(layer, lambda x: x * tensor(layer.mask.data, learns=False))  # type: ignore[attr-defined]


WEIGHTS = [1.0, 0.5, 3.0, 0.0, 2.0, 1.0, 0.25]


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_cross_entropy_of_the_rows_that_count(ignored: int, weights: list[float] | None) -> None:
    x, labels = source((9, 7)), [0, 2, ignored, 5, 2, ignored, 1, 3, 4]
    block = {"ignore_index": ignored, "scale": 2.0, **({"class_weights": weights} if weights else {})}
    layer = wire("SoftmaxLoss", [x, source((9,), labels=labels, grad=False)], softmaxloss_conf=block)
    scores, target = tensor(x.data), torch.tensor(labels)
    of_classes = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    wanted = 2 * functional.cross_entropy(scores, target, weight=of_classes, ignore_index=ignored)
    forward(layer)
    metrics = layer.metrics.take()
    assert_close(np.divide(*metrics["loss"]), numbers(wanted))
    counts = target != ignored
    hits = (scores.argmax(1) == target)[counts]
    assert metrics["accuracy"] == (2 * int(hits.sum()), int(counts.sum()))
    backward(layer)
    wanted.backward()
    assert_close(layer.sources[0].grad, numbers(scores.grad))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_cross_entropy_of_pixels(weights: list[float] | None) -> None:
    x, labels = source((2, 7, 3, 4)), source((2, 12), grad=False)
    labels.data[...] = np.random.default_rng(1).integers(-1, 7, (2, 12))
    block = {"ignore_index": -1, **({"class_weights": weights} if weights else {})}
    layer = wire("PixelSoftmaxLoss", [x, labels], pixelsoftmaxloss_conf=block)
    scores, target = tensor(x.data), torch.from_numpy(labels.data.reshape(2, 3, 4).astype(np.int64))
    of_classes = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    wanted = functional.cross_entropy(scores, target, weight=of_classes, ignore_index=-1)
    forward(layer)
    metrics = layer.metrics.take()
    assert_close(np.divide(*metrics["loss"]), numbers(wanted))
    hits = (scores.argmax(1) == target)[target >= 0]
    assert metrics["accuracy"] == (int(hits.sum()), len(hits))
    assert_close(layer.features[0].data, numbers(torch.softmax(scores, 1)).transpose(0, 2, 3, 1).reshape(2, 12, 7))
    backward(layer)
    wanted.backward()
    assert_close(layer.sources[0].grad, numbers(scores.grad))


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 5.0])
def test_focal_loss(gamma: float) -> None:
    x, labels = source((6, 7)), [0, 2, 6, 5, 2, 1]
    x.data[1] *= 30  # probabilities of nearly 0 and 1
    layer = wire("SoftmaxLoss", [x, source((6,), labels=labels, grad=False)], softmaxloss_conf={"focal_gamma": gamma})
    scores = tensor(x.data)
    log_q = torch.log_softmax(scores, 1)[range(6), labels]
    wanted = -((1 - log_q.exp()) ** gamma * log_q).mean()
    forward(layer)
    assert_close(np.divide(*layer.metrics.take()["loss"]), numbers(wanted))
    backward(layer)
    wanted.backward()
    assert_close(layer.sources[0].grad, numbers(scores.grad))


@pytest.mark.parametrize("delta", [0.5, 1.0])
def test_huber_loss(delta: float) -> None:
    x, target = source((5, 7)), source((5, 7), seed=1, grad=False)
    values = tensor(x.data)
    wanted = torch.nn.HuberLoss(delta=delta)(values, tensor(target.data, learns=False))
    check_loss(wire("HuberLoss", [x, target], huberloss_conf={"delta": delta}), "loss", wanted, values)


def test_contrastive_loss() -> None:
    x, other, alike = source((6, 3)), source((6, 3), seed=1), source((6, 1), grad=False)
    alike.data[:, 0] = [1, 0, 0, 1, 0, 0]
    other.data[5] = x.data[5] + 0.1  # nearer than the margin
    layer = wire("ContrastiveLoss", [x, other, alike], contrastiveloss_conf={"margin": 2.0})
    one, two = tensor(x.data), tensor(other.data)
    d, s = (one - two).norm(dim=1), tensor(alike.data[:, 0], learns=False)
    wanted = (s * d**2 + (1 - s) * torch.clamp(2 - d, min=0) ** 2).sum() / 12
    assert 0 < int((d < 2).sum()) < 6
    check_loss(layer, "loss", wanted, one)
    assert_close(other.grad, numbers(two.grad))


@pytest.mark.parametrize("margin", [0.3, 2.0])
def test_triplet_loss(margin: float) -> None:
    sources = [source((8, 3), seed=seed) for seed in range(3)]
    layer = wire("TripletLoss", sources, tripletloss_conf={"margin": margin})
    tensors = [tensor(each.data) for each in sources]
    wanted = torch.nn.TripletMarginLoss(margin=margin)(*tensors)
    check_loss(layer, "loss", wanted, tensors[0])
    for mine, theirs in zip(sources[1:], tensors[1:], strict=True):
        assert_close(mine.grad, numbers(theirs.grad))
